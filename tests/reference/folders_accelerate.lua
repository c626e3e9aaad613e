-- Folders of Accelerate's save_state: every file is read as data and compared, the state is loaded, and five more batches give Accelerate's
-- losses, rates and weights. Rows of several processes continue in ranks (folders_accelerate_ranks.lua). Used by folders.lua.
local accel = require "accel"
local here = debug.getinfo(1, "S").source:match "^@(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local typed = require "typed"
local nn, optim = accel.nn, accel.optim

local M = {}

local LOSS <const>, WEIGHTS <const>, RANKS <const>, HALF <const> = 1e-6, 1e-5, 1e-5, 1e-2 -- bars of the README and the rows

function M.read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a")
end

--- Whether a file exists.
function M.exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end
local exists = M.exists

--- Whether a value of accel.load is the one that typed JSON describes, with its tensors' bits by name. If not, also the first difference.
function M.same(want, got, tensors, at)
  if got == accel.json.null then got = nil end
  return typed.same(want, got, at, function(described, t, place)
    local wanted = tensors[described.tensor or described.array]
    local is = wanted and accel.is_tensor(t)
    return is and t.dtype == wanted.dtype and table.concat(t.shape, ",") == table.concat(wanted.shape, ",")
      and t:detach():contiguous():to_bytes() == wanted:to_bytes(), ("%s: other values than the tensor's %s"):format(place, described.dtype)
  end)
end

-- ---- the objects of a row ----

local Chain = nn.Module:extend "Chain" -- modules by name, one after the other, with tanh in front of the last but one's output

function Chain:init(list, names)
  self.names = names
  for i, name in ipairs(names) do self:register_module(name, list[i]) end
end

function Chain:forward(x)
  local n = #self.names
  for i, name in ipairs(self.names) do
    x = self[name](x)
    if i == n - 1 then x = x:tanh() end
  end
  return x
end

local function make_module(m)
  local class, bias = m[2], m[5] ~= "no bias"
  if class == "Linear" then return nn.Linear(m[3], m[4], { bias = bias }) end
  return nn[class](table.unpack(m, 3))
end

--- The model of a description, with random weights.
function M.model(about)
  local list, names, numbered = {}, {}, true
  for i, m in ipairs(about.modules) do
    list[i], names[i] = make_module(m), m[1]
    numbered = numbered and m[1] == ("%d"):format(i - 1)
  end
  if numbered then return nn.Sequential(table.unpack(list)) end
  local model = Chain(list, names)
  if about.tied then
    local function place(name) return name:match "^(.*)%.([^.]*)$" end
    local to, key = place(about.tied[1])
    local from, source = place(about.tied[2])
    model[to]:register_parameter(key, model[from][source])
  end
  return model
end

local function options_of(about, skip)
  local o = {}
  for key, value in pairs(about) do
    if not skip[key] then o[key] = value end
  end
  return o
end

local GROUPS <const> = {
  ["two or more dimensions"] = function(p) return p.ndim > 1 end,
  ["one dimension"] = function(p) return p.ndim < 2 end,
}

function M.optimizer(about, model)
  local params = model:parameters()
  if about.groups then
    local groups = {}
    for g, group in ipairs(about.groups) do
      groups[g] = options_of(group, { parameters = true, name = true })
      groups[g].params = {}
      for _, p in ipairs(params) do
        if GROUPS[group.parameters](p) then table.insert(groups[g].params, p) end
      end
    end
    params = groups
  end
  return optim[about.class](params, options_of(about, { class = true, schedule = true, groups = true }))
end

function M.schedule(about, optimizer)
  local class = optim.lr_scheduler[about.class]
  if about.parts then
    local parts = {}
    for k, part in ipairs(about.parts) do parts[k] = M.schedule(part, optimizer) end
    return class(optimizer, parts, about.milestones)
  elseif about.factor then -- a formula in s
    return class(optimizer, assert(load("local min, max, s = math.min, math.max, ... return " .. about.factor)))
  end
  return class(optimizer, options_of(about, { class = true }))
end

--- The loss of batch k (from 0) on rank r of n.
function M.loss(model, about, data, batch, k, half, r, n)
  local function rows(t)
    t = t:narrow(1, k * batch + 1, batch)
    if (n or 1) == 1 then return t end
    local own = {}
    for row = r, batch - 1, n do own[#own + 1] = row end
    return t:index_select(1, accel.tensor(own, { dtype = "i64" }))
  end
  if about.forward then
    local ids = rows(data.ids)
    local width = ids.shape[2]
    local logits = model(ids:narrow(2, 1, width - 1))
    return nn.functional.cross_entropy(logits:reshape(-1, logits.shape[3]), ids:narrow(2, 2, width - 1):reshape(-1))
  end
  local x = rows(data.x)
  local logits = model(half and x:to "bf16" or x)
  return nn.functional.cross_entropy(half and logits:to "f32" or logits, rows(data.y))
end

--- An accelerator with prepared models, optimizers and schedules, in the order of the row.
function M.session(about, opts)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a, sets = accel.Accelerator(opts), {}
  if about.scaler then a.scaler = accel.amp.GradScaler { init_scale = 2.0 } end
  accel.manual_seed(77)
  for i, description in ipairs(about.models) do
    local model = M.model(description)
    if about.half then model = model:to "bf16" end
    local optimizer, schedule = M.optimizer(about.optimizers[i], model), nil
    if about.optimizers[i].schedule then schedule = M.schedule(about.optimizers[i].schedule, optimizer) end
    local set = { about = description }
    if schedule and about.schedules_alone then
      set.model, set.optimizer = a:prepare(model, optimizer)
      set.schedule = a:prepare(schedule)
    elseif schedule then set.model, set.optimizer, set.schedule = a:prepare(model, optimizer, schedule)
    else set.model, set.optimizer = a:prepare(model, optimizer) end
    sets[i] = set
  end
  return a, sets
end

--- Trains on batches [from, from + count). Returns the losses, a list for each batch, and the rates after each step.
function M.train(a, sets, about, data, from, count)
  local losses, rates = {}, {}
  for k = from, from + count - 1 do
    local row, lrs = {}, {}
    for i, set in ipairs(sets) do
      a:accumulate(set.model, function()
        local loss = M.loss(set.model, set.about, data, about.batch, k, about.half, a.process_index, a.num_processes)
        a:backward(loss)
        if about.clip_grad_norm and a.sync_gradients then a:clip_grad_norm_(set.model:parameters(), about.clip_grad_norm) end
        set.optimizer:step()
        if set.schedule then set.schedule:step() end
        set.optimizer:zero_grad()
        row[i] = loss:item()
      end)
    end
    for i, set in ipairs(sets) do
      lrs[i] = {}
      for g, group in ipairs(set.optimizer.param_groups) do lrs[i][g] = group.lr end
    end
    losses[#losses + 1], rates[#rates + 1] = row, lrs
  end
  return losses, rates
end

-- ---- comparisons ----

local function relative(got, want) return math.abs(got - want) / math.max(math.abs(want), 1e-30) end

--- Compares nested lists of numbers by position. A number in the place of a list of one counts as that list.
function M.numbers(quantity, got, want, bar, report)
  if type(want) ~= "table" then
    if type(got) == "table" and #got == 1 then got = got[1] end
    if type(got) ~= "number" or not (relative(got, want) <= bar) then
      report(quantity, type(got) == "number" and relative(got, want) or tostring(got), bar)
    end
    return
  end
  if type(got) ~= "table" or #got ~= #want then return report(quantity, type(got) == "table" and #got or tostring(got), #want) end
  for i, w in ipairs(want) do M.numbers(("%s[%d]"):format(quantity, i), got[i], w, bar, report) end
end

--- Every file of the row, read as data.
local function compare_files(path, folder, about, tensors, report)
  for name, want in accel.pairs(about.files) do
    local at = path .. "/" .. (name:find "^checkpoints/" and "" or folder .. "/") .. name
    if want.safetensors then
      local state, message = accel.load(at)
      if not state then report(name, message, "loads") end
      for key, form in pairs(state and want.safetensors or {}) do
        local t = state[key]
        local fits = t and table.concat(t.shape, ",") == table.concat(form[2], ",")
        if not fits then report(name .. "/" .. key, t and "another shape" or "missing", form[1]) end
      end
    elseif not want.object then
      local value, message = accel.load(at, { device = "cpu" })
      if value == nil then report(name, message, "loads")
      else
        if name:find "random_states" and #(want.dict or {}) == 1 then value = { step = value.step } end -- the row has the step alone
        local ok, why = M.same(want, value, tensors, name)
        if not ok then report("files", why, "equal") end
      end
    end
  end
end

--- The plain data of a typed tree's entry, for the few that the comparison needs.
local function typed_entry(tree, key)
  for _, pair in ipairs(tree.dict or {}) do
    if pair[1].str == key then return pair[2].float and tonumber(pair[2].hex) or tonumber(pair[2].int) end
  end
end

--- An object to register, which keeps what it is given.
function M.box()
  return { state_dict = function(self) return self.value end, load_state_dict = function(self, value) self.value = value end }
end

local function boxes_of(about)
  local list = {}
  for name in pairs(about.files or {}) do
    if name:find "custom_checkpoint_%d+%.pkl$" then list[#list + 1] = M.box() end
  end
  return list
end

local function compare_weights(sets, tensors, bar, report)
  local n = 0
  for i, set in ipairs(sets) do
    for name, t in pairs(set.model:state_dict()) do
      local want = tensors[("after/%d/%s"):format(i - 1, name)]
      if want then
        n = n + 1
        local far = (t:detach():to "f64" - want:to "f64"):abs():max():item()
        if not (far <= bar * math.max(1, want:to "f64":abs():max():item())) then report("after/" .. name, far, bar) end
      end
    end
  end
  return n
end

--- A row of one process.
local function check_one(path, about, tensors, data, report)
  local auto = not exists(path .. "/folder/optimizer.bin")
  local opts = { gradient_accumulation_steps = about.gradient_accumulation_steps,
    project_config = auto and accel.ProjectConfiguration { project_dir = path, automatic_checkpoint_naming = true } or nil }
  local a, sets = M.session(about, opts)
  local boxes = boxes_of(about)
  if #boxes > 0 then a:register_for_checkpointing(table.unpack(boxes)) end
  local folder = auto and a:load_state() or a:load_state(path .. "/folder")
  if auto then -- the highest number
    local most = -1
    for name in pairs(about.files) do most = math.max(most, tonumber(name:match "checkpoint_(%d+)/") or -1) end
    if tonumber(folder:match "(%d+)$") ~= most then report("load_state()", folder, most) end
  end
  local step = about.accelerator_step
  if step and a.gradient_state.step ~= step then report("step", a.gradient_state.step, step) end
  for i, box in ipairs(boxes) do
    local ok, why = M.same(about.files[("custom_checkpoint_%d.pkl"):format(i - 1)], box.value, tensors, "object " .. i - 1)
    if not ok then report("registered", why, "equal") end
  end
  if about.scaler then
    local want = typed_entry(about.files["scaler.pt"], "scale")
    if a.scaler:get_scale() ~= want then report("scale", a.scaler:get_scale(), want) end
  end
  local losses, rates = M.train(a, sets, about, data, about.steps_before, #about.losses_after_load)
  local bar = about.half and HALF or LOSS
  M.numbers("losses_after_load", losses, about.losses_after_load, bar, report)
  if about.lr_after_each_step then M.numbers("lr_after_each_step", rates, about.lr_after_each_step, 1e-9, report) end
  if not about.half then compare_weights(sets, tensors, WEIGHTS, report) end -- of bf16 the row compares losses alone
end

--- A row of data loaders: the rows that Accelerate took, in its order, give its losses. A loader of ours over ordered data continues
--- after as many batches as the folder's loader had yielded.
local function check_loader(path, about, data, report)
  local a, sets = M.session(about, {})
  local set = sets[1]
  local indices = accel.data.TensorDataset(accel.arange(about.rows))
  local loader = a:prepare(accel.data.DataLoader(indices, { batch_size = about.batch }))
  a:load_state(path .. "/folder")
  local losses = {}
  for k, rows in ipairs(about.after_load.rows) do
    local index = accel.tensor(rows, { dtype = "i64" })
    local loss = nn.functional.cross_entropy(set.model(data.x:index_select(1, index)), data.y:index_select(1, index))
    a:backward(loss)
    set.optimizer:step()
    set.optimizer:zero_grad()
    losses[k] = loss:item()
  end
  M.numbers("after_load.losses", losses, about.after_load.losses, LOSS, report)
  local seen = about.use_stateful_dataloader and #about.before.rows or 0
  for batch in loader() do
    local first = batch[1]:flatten()[1]:item()
    if first ~= seen * about.batch then report("position of the loader", first, seen * about.batch) end
    break
  end
end

--- Whole tensors of FSDP's folders, bit for bit.
local function compare_whole(path, tensors, report)
  local folder = require "accel.ckpt.accelerate".open(path .. "/folder")
  local model, optimizer = folder:model(0), folder:optimizer(0)
  for name, want in pairs(tensors) do
    local got, key = model[name:match "^model/(.*)" or ""], nil
    if name:find "^optimizer/" then
      local p
      p, key = name:match "^optimizer/(.*)/([^/]*)$"
      got = (optimizer.state[p] or {})[key]
    end
    if not name:find "^true/" and name:find "^[mo][op][dt]" then
      local t = accel.is_tensor(got) and got:detach() or got
      if not accel.is_tensor(t) then report(name, tostring(t), "a tensor")
      elseif t:contiguous():to_bytes() ~= want:to_bytes() then report(name, "other bits", "equal") end
    end
  end
end

--- A row of several processes, in ranks of their own. They print one line for each quantity that differs.
local function check_ranks(path, about, report)
  local command = ("'%s' --num_threads 1 --num_processes %d '%s/folders_accelerate_ranks.lua' '%s' 2>&1"):format(
    accel.process.program(), about.processes, here, path)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  local ok = pipe:close()
  for quantity, distance, bar in text:gmatch "DIFFERS\t([^\t\n]*)\t([^\t\n]*)\t([^\t\n]*)" do report(quantity, distance, bar) end
  if not ok then report("ranks", text, "status 0") end
end

--- In a rank: loads the state under a plugin or none and continues.
function M.on_ranks(path, report)
  local about, tensors = M.read_json(path .. "/expected.json"), {}
  if exists(path .. "/expected.safetensors") then tensors = assert(accel.load(path .. "/expected.safetensors")) end
  local data = assert(accel.load((path:gsub("[^/]*$", "data/data.safetensors"))))
  local want = about.losses_without_stop or about.losses_after_load
  for _, sharded in ipairs(about.losses_without_stop and { 0, 1, 2 } or { 0 }) do
    local opts = { step_unit = about.schedule_steps and "update" or "process" }
    if sharded > 0 then opts.fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = sharded } end
    local a, sets = M.session(about, opts)
    a:load_state(path .. "/folder")
    local state, any = sets[1].optimizer:state_dict(), false
    if sharded == 0 then -- values that the reference wrote wrongly
      local names = {}
      for name in a:unwrap_model(sets[1].model):named_parameters() do names[#names + 1] = name end
      for i, name in ipairs(names) do
        for key, t in pairs(state.state[i - 1] or {}) do
          local right = tensors[("true/optimizer/%s/%s"):format(name, key)]
          if right then state.state[i - 1][key], any = right:to(t.dtype), true end
        end
      end
      if any then sets[1].optimizer:load_state_dict(state) end
    end
    local faulty = false
    for name in pairs(tensors) do faulty = faulty or name:find "^true/" ~= nil end
    if sharded == 0 or not faulty then
      local losses, rates = M.train(a, sets, about, data, about.steps_before, #want[1])
      local title = sharded == 0 and "" or (" under FSDP %d"):format(sharded)
      M.numbers("losses of rank " .. a.process_index .. title, losses, want[a.process_index + 1], RANKS, report)
      if about.lr_after_each_step then
        for k, r in ipairs(rates) do rates[k] = r[1] end
        M.numbers("lr_after_each_step", rates, about.lr_after_each_step, 1e-9, report)
      end
      if sharded == 0 then compare_weights(sets, tensors, WEIGHTS, report) end
    end
  end
end

--- Compares one row. report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@return string? outcome "left out"
---@return string? reason
function M.check(path, report)
  if path:find "%.json$" then return require "folders_accelerate_written".check_types(path, report) end
  local about = M.read_json(path .. "/expected.json")
  local files, tensors = about.files, exists(path .. "/expected.safetensors") and assert(accel.load(path .. "/expected.safetensors")) or {}
  if files and not files[1] then compare_files(path, "folder", about, tensors, report) end
  if about.same_as then
    about = M.read_json(path:gsub("[^/]*$", about.same_as) .. "/expected.json")
    tensors = {}
  end
  for name, file in pairs(about.files or {}) do
    if type(file) == "table" and file.safetensors and name:find "model" then
      for _, form in pairs(file.safetensors) do about.half = about.half or form[1] == "bfloat16" end
    end
  end
  local data = assert(accel.load((path:gsub("[^/]*$", "data/data.safetensors"))))
  if about.losses_without_stop then compare_whole(path, tensors, report) end
  if (about.processes or 1) > 1 then check_ranks(path, about, report)
  elseif about.after_load then check_loader(path, about, data, report)
  else
    check_one(path, about, tensors, data, report)
    require "folders_accelerate_written".check(path, about, data, report)
  end
end

return M
