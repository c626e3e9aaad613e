--- States of optimizers and schedules as PyTorch's state_dict has them, from and to the plain data of accel's checkpoints (optimizer.lua).
--- PyTorch numbers parameters through the groups, so they are identified by their positions. FSDP names them. Used by
--- accel.accelerator.checkpoint_foreign, which loads, and accelerate_write.lua.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tree = require "accel.ckpt.tree"

local M = {}

local null <const> = accel.json.null

-- ---- optimizers ----

--- Options of PyTorch's groups that select a kernel, or that accel's class implies. They change no value.
local KERNEL <const> = { foreach = true, fused = true, capturable = true, differentiable = true, params = true, param_names = true,
  decoupled_weight_decay = true, initial_lr = true, maximize = true, relative_step = true, warmup_init = true }

--- A stored option in the form of this optimizer's. nil if it has another type.
local function option(own, given)
  if accel.is_tensor(given) and given:numel() == 1 then given = given:item() end
  if type(given) ~= type(own) then return nil end
  if type(given) ~= "table" then return given end
  if #given ~= #own then return nil end
  local list = {}
  for i, value in ipairs(given) do
    if value == null then list[i] = false else list[i] = value end
  end
  return list
end

--- The options and states of Transformers' Adafactor by the names of PyTorch's, which accel has. The second moment is bounded from below
--- by the square of eps[1] here, and by eps[1] there.
local function from_transformers(group, entries)
  if group.clip_threshold == nil then return end
  if group.beta1 ~= nil and group.beta1 ~= null then raise "Adafactor with beta1 has a first moment, which accel.optim.Adafactor lacks" end
  if group.relative_step then raise "Adafactor with relative_step sets its rates itself, which accel.optim.Adafactor does not" end
  group.d, group.beta2_decay, group.clip_threshold, group.decay_rate, group.beta1 = group.clip_threshold, group.decay_rate, nil, nil, nil
  if type(group.eps) == "table" then group.eps = { math.sqrt(group.eps[1]), group.eps[2] } end
  for _, entry in next, entries do
    if entry.exp_avg_sq_row then
      entry.row_var, entry.col_var = entry.exp_avg_sq_row:unsqueeze(-1), entry.exp_avg_sq_col:unsqueeze(-2)
    else
      entry.variance = entry.exp_avg_sq
    end
    entry.exp_avg_sq_row, entry.exp_avg_sq_col, entry.exp_avg_sq, entry.RMS = nil, nil, nil, nil
  end
end

--- The labels of a group's parameters in the order of `names`. PyTorch lists frozen parameters and stores nothing for them, and here they
--- may be missing from the group. An optimizer that PyTorch made from named parameters stores their names (param_names).
local function labels_of(g, stored, names, state, given)
  local known, all = {}, true
  local function misfit()
    raise("parameter group %d: %d parameters are stored, here are %d; make the groups as they were", g - 1, #stored, #names)
  end
  if type(given) == "table" and #given == #stored then
    local labels, named, left = {}, {}, 0
    for i, name in ipairs(given) do named[name], left = stored[i], left + (state[stored[i]] ~= nil and 1 or 0) end
    for _, name in ipairs(names) do
      local label = named[name]
      labels[#labels + 1] = label
      if label ~= nil and state[label] ~= nil then left = left - 1 end
    end
    if #labels == #names then return left == 0 and labels or misfit() end
  end
  for _, name in ipairs(names) do known[name] = true end
  for _, label in ipairs(stored) do all = all and known[label] ~= nil end
  if all and #stored == #names then return names end
  if #stored == #names then return stored end
  local kept = {}
  for _, label in ipairs(stored) do
    if state[label] ~= nil then kept[#kept + 1] = label end
  end
  return #kept == #names and kept or misfit()
end

local function copied(t)
  local out = {}
  for key, value in next, t do out[key] = value end
  return out
end

--- Whether the first moments of all parameters are their second moments, bit for bit: PyTorch's FSDP 1 writes such files on a CPU.
local function has_moments_twice(state)
  local any = false
  for _, entry in next, state do
    local a, b = entry.exp_avg, entry.exp_avg_sq
    if not (accel.is_tensor(a) and accel.is_tensor(b) and a.dtype == b.dtype and accel.equal(a, b)) then return false end
    any = any or a:abs():max():item() > 0
  end
  return any
end

--- The plain data of an optimizer from PyTorch's state, and notes on options without effect.
---@param stored {state: table, param_groups: table[]}
---@param own table[] param_groups of this optimizer's state_dict
---@param names string[][] of its parameters, by group
---@param take fun(name: string, tensor: accel.Tensor) gets the tensors
---@param former? fun(g: integer): integer[]? of a file that accel wrote: positions of group g's parameters in earlier versions (models/order.lua)
---@return table plain
---@return string[] notes
---@return integer step the most steps of a parameter
function M.optimizer_in(stored, own, names, take, former)
  local plain, notes, most, groups, met = { groups = {}, state = {}, rest = { numbering = 2 } }, {}, 0, {}, {}
  for _, group in ipairs(stored.param_groups) do
    if type(group) ~= "table" or type(group.params) ~= "table" then raise "a parameter group has no params" end
    if #group.params > 0 or #stored.param_groups == #names then groups[#groups + 1] = copied(group) end
  end
  if #groups ~= #names then raise("%d parameter groups are stored, here are %d; make the groups as they were", #groups, #names) end
  for g, group in ipairs(groups) do
    local given = group.param_names or type(stored.param_names) == "table" and stored.param_names[g]
    local labels, entries = labels_of(g, group.params, names[g], stored.state, given), {}
    local places = not given and former and former(g)
    if places and labels ~= names[g] then
      local sorted = {}
      for k, place in ipairs(places) do sorted[k] = labels[place] end
      labels = sorted
    end
    for _, label in ipairs(group.params) do met[label] = true end
    for k, label in ipairs(labels) do
      met[label] = true
      local entry = stored.state[label]
      if entry ~= nil then entries[k] = copied(entry) end
    end
    from_transformers(group, entries)
    local made = { params = names[g] }
    for key, value in next, own[g] do
      if key ~= "params" then
        made[key] = group[key] ~= nil and option(value, group[key]) or value
        if group[key] == false then made[key] = false end
      end
    end
    for key, value in next, group do
      if own[g][key] == nil and not KERNEL[key] and value and value ~= null then
        notes[#notes + 1] = ("option '%s' of parameter group %d"):format(tostring(key), g - 1)
      end
    end
    plain.groups[g] = made
    for k, entry in next, entries do
      local name, step = names[g][k], accel.is_tensor(entry.step) and entry.step:item() or entry.step
      if type(step) == "number" then most = math.max(most, math.floor(step)) end
      plain.state[name] = tree.split(entry, "state." .. name, take)
    end
  end
  for label in next, stored.state do
    if not met[label] then raise("it has a state of parameter %s, which no group lists", accel.inspect(label)) end
  end
  table.sort(notes)
  if has_moments_twice(stored.state) then
    notes[#notes + 1] = "true exp_avg: the file has exp_avg_sq in its place, a fault of FSDP 1 on a CPU, and those values were taken"
  end
  return plain, notes, most
end

--- A value of a state as PyTorch has it: counts and other numbers are f32 tensors of one element. Parameters that step together share them
--- here, and in PyTorch each has its own, since steps change them in place.
local function scalar(t)
  if t.ndim > 0 then return t end
  if not t:is_floating_point() or t.dtype == "f64" then return t:to "f32" end
  return t:clone()
end

--- PyTorch's state from the plain data of an optimizer.
---@param plain table
---@param find fun(name: string): accel.Tensor the tensors, on the CPU
---@param class string of the optimizer: "accel.optim.AdamW"
---@return table state
function M.optimizer_out(plain, find, class)
  local pickle = require "accel.util.pickle"
  if plain.other ~= nil then raise("%s: its state does not name parameters, so it has no form in PyTorch", class) end
  local state, groups, names, n = {}, {}, {}, 0
  for g, group in ipairs(plain.groups) do
    local made, params = ordered(), {}
    names[g] = pickle.list(table.move(group.params, 1, #group.params, 1, {}))
    for key, value in accel.pairs(group) do
      if type(value) == "table" then
        local list = {}
        for i, x in ipairs(value) do list[i] = x == false and null or x end
        value = pickle.tuple(list)
      end
      if key ~= "params" then made[key] = value end
    end
    for key, value in accel.pairs { foreach = null, fused = null, capturable = false, differentiable = false, maximize = false } do
      if made[key] == nil then made[key] = value end
    end
    if made.decoupled_weight_decay == nil and class:find "%.AdamW?$" then made.decoupled_weight_decay = class:find "%.AdamW$" ~= nil end
    for k, name in ipairs(group.params) do
      local entry = plain.state[name]
      if entry then
        local value = ordered()
        for key, x in accel.pairs(tree.join(entry, find)) do value[key] = accel.is_tensor(x) and scalar(x:detach()) or x end
        state[n] = value
      end
      params[k], n = n, n + 1
    end
    made.params = pickle.list(params)
    groups[g] = made
  end
  -- PyTorch takes state and param_groups alone. Names of its own form, in groups, would forbid it to add groups without names
  return { state = pickle.dict(state), param_groups = pickle.list(groups), param_names = pickle.list(names) }
end

-- ---- schedules ----

local function count(value)
  return type(value) == "number" and math.tointeger(value) or nil
end

--- The state of a schedule from PyTorch's. nil if that is empty, which means to start anew.
---@param stored table
---@param own table this schedule's state_dict
---@return table? state
function M.schedule_in(stored, own)
  if type(stored) ~= "table" then raise "it is not the state of a schedule" end
  if next(stored) == nil then return nil end
  local parts = stored._schedulers
  if (parts ~= nil) ~= (own._schedulers ~= nil) or parts and #parts ~= #own._schedulers then
    raise("it is the state of %s, and here the schedule %s; make the schedule as it was",
      parts and ("%d schedules"):format(#parts) or "one schedule", own._schedulers and ("has %d"):format(#own._schedulers) or "is one")
  end
  local state, first = {}, parts and parts[1] or {}
  for key, value in next, own do
    local given = stored[key]
    if given == nil and key == "base_lrs" then given = first.base_lrs end
    if given == nil and key == "lrs" then given = stored._last_lr end
    if given == nil and type(value) ~= "table" and key ~= "last_epoch" then
      raise("it has no %s: it is the state of another kind of schedule", key)
    end
    state[key] = given ~= nil and type(given) == type(value) and given or value
  end
  state.last_epoch = count(stored.last_epoch) or count(first.last_epoch) or raise "it has no last_epoch"
  return state
end

--- Options of a schedule that have other values in PyTorch's state: one text for each.
---@param stored table
---@param own table? options of the schedule's constructor
---@return string[]
function M.schedule_differences(stored, own)
  local list = {}
  for key, value in accel.pairs(own or {}) do
    local given = stored[key]
    if key ~= "last_epoch" and given ~= nil and type(value) ~= "table" and type(given) == type(value) and given ~= value then
      list[#list + 1] = ("%s is %s there and %s here"):format(key, tostring(given), tostring(value))
    end
  end
  return list
end

--- PyTorch's state of a schedule. Options are left out: those of the schedule that loads it stay.
---@param state table of state_dict
---@param lrs number[] of the optimizer's groups now
---@return table
function M.schedule_out(state, lrs)
  local pickle, out = require "accel.util.pickle", ordered()
  for key, value in accel.pairs(state) do
    if key == "_schedulers" then
      local parts = {}
      for k, part in ipairs(value) do parts[k] = M.schedule_out(part, part.base_lrs or lrs) end
      out[key] = pickle.list(parts)
    elseif key ~= "lrs" then
      out[key] = type(value) == "table" and pickle.list(value) or value
    end
  end
  out._step_count = math.max(1, state.last_epoch + 1)
  out._last_lr = pickle.list(state.lrs or lrs)
  return out
end

return M
