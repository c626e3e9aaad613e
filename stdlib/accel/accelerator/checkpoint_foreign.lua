--- A checkpoint of Accelerate or of Transformers' Trainer with the interface of accel.ckpt, so that accelerator:load_state reads it into
--- the prepared objects: models, optimizers, schedules, the gradient scaler, registered objects, the number of micro-batches, positions of
--- loaders. One warning names everything in the folder that was not loaded. Used by checkpoint.lua.
---
--- The random states of Python, NumPy and PyTorch are of generators that accel does not have, so accel's stay unchanged. So does the order
--- of shuffled data, which follows from them.
local accel = require "accel"
local content = require "accel.accelerator.checkpoint_content"
local model_part = require "accel.ckpt.model"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.checkpoint_random"
local recipes = require "accel.accelerator.recipes"
local torch_state = require "accel.ckpt.torch_state"

local M = {}

local Checkpoint = {}
Checkpoint.__index = Checkpoint

--- The reader of a folder that another tool wrote. nil for other folders.
---@param path string
---@return table?
function M.opener(path)
  for _, name in ipairs { "accel.ckpt.trainer", "accel.ckpt.accelerate" } do
    local reader = require(name)
    if reader.is(path) then return reader end
  end
end

-- ---- the interface of accel.ckpt ----

function Checkpoint:objects()
  local list = {}
  for name in next, self.own do list[#list + 1] = name end
  for i in ipairs(self.accelerator._prepared.models) do
    if not self.own[content.name("model", i)] then list[#list + 1] = content.name("model", i) end
  end
  for i in ipairs(self.accelerator._prepared.optimizers) do list[#list + 1] = content.name("optimizer", i) end
  return list
end

function Checkpoint:value(name)
  local value = self.values[name]
  local bytes = value == nil and self.manifested and self.manifested:bytes((content.plain_file(name)))
  if bytes then value = accel.decode(bytes, { max_bytes = math.maxinteger }) end
  return value, ("%s has no %s"):format(self.folder.dir, name)
end

--- The names under which a model's tensors are read: name of any tied tensor -> the first of them.
local function tied_names(accelerator, model)
  local module, shard = accelerator:unwrap_model(model), content.sharded()
  if shard and shard.engine(model) then return select(2, shard.named(module)) end
  return select(2, model_part.untied(module:state_dict()))
end

local function load_model(self, i)
  local model = self.accelerator._prepared.models[i]
  local state, file, adapter = self.folder:model(i - 1)
  if not state then raise("%s has no %s", self.folder.dir, file) end
  local list, readers, tied = {}, {}, adapter and {} or tied_names(self.accelerator, model)
  for name, t in ordered.iterate(state) do
    if not accel.is_tensor(t) then raise("%s/%s: '%s' is not a tensor", self.folder.dir, file, name) end
    local own = tied[name] or name
    if not readers[own] then list[#list + 1] = { name = own, shape = t.shape, dtype = t.dtype } end
    readers[own] = t:detach()
  end
  self.list[content.name("model", i)], self.tensors_of[content.name("model", i)] = list, readers
end

function Checkpoint:tensors(object)
  if self.own[object] then return self.manifested:tensors(object) end
  local k = object == "model" and 1 or math.tointeger(tonumber(object:match "^model_(%d+)$" or nil))
  if k and not self.list[object] then load_model(self, object == "model" and 1 or k + 1) end
  return self.list[object] or {}
end

function Checkpoint:read(object, name, target, offsets)
  if self.own[object] then return self.manifested:read(object, name, target, offsets) end
  local whole = (self.tensors_of[object] or {})[name]
  if not whole then return nil, "it is not in the checkpoint" end
  for d = 1, target.ndim do
    local from = offsets and offsets[d] or 0
    if from > 0 or target.shape[d] < whole.shape[d] then whole = whole:narrow(d, from + 1, target.shape[d]) end
  end
  target:copy_(whole)
  return true
end

--- accel's manifest may stand beside the files of a folder that accel wrote. Files of other tools have no checksums.
function Checkpoint:verify(...)
  if self.manifested then return self.manifested:verify(...) end
  return true
end

function Checkpoint:close()
  self.tensors_of = {}
  if self.manifested then self.manifested:close() end
end

-- ---- what the folder holds ----

--- Raises with the file in front.
local function of_file(self, file, fn, ...)
  local results = table.pack(pcall(fn, ...))
  if not results[1] then raise("%s: %s", file, (tostring(results[2]):gsub("^[^\n:]*%.lua:%d+: ", ""))) end
  return table.unpack(results, 2, results.n)
end

--- Where earlier versions of accel, which wrote no names of parameters, had those of a group. nil: where they are now.
local function former_places(params)
  local order = package.loaded["accel.models.order"]
  local places = order and order.former(params)
  if places == false then
    raise("an earlier version of accel wrote it by numbers, when models listed their parameters in another order, and this group has an order"
      .. " of its own; save the folder anew with that version, without format")
  end
  return places
end

--- Reads the optimizers. Returns the number of steps of each, false if its state has none.
local function add_optimizers(self)
  local accelerator, steps = self.accelerator, {}
  local known = content.parameters(accelerator)
  for i, optimizer in ipairs(accelerator._prepared.optimizers) do
    local object = content.name("optimizer", i)
    local stored, file = self.folder:optimizer(i - 1)
    if not stored then raise("%s has no %s, and %d optimizer%s prepared here", self.folder.dir, file,
      #accelerator._prepared.optimizers, i == 1 and " is" or "s are") end
    local list, readers = {}, {}
    local function take(name, t)
      list[#list + 1] = { name = name, shape = t.shape, dtype = t.dtype }
      readers[name] = t:detach()
    end
    local former = self.manifested and function(g) return former_places(optimizer.param_groups[g].params) end
    local plain, notes, step = of_file(self, file, torch_state.optimizer_in, stored, optimizer:state_dict().param_groups,
      (content.names(optimizer, known)), take, former)
    for _, note in ipairs(notes) do self.left[#self.left + 1] = file .. "'s " .. note end
    self.values[object], self.list[object], self.tensors_of[object] = plain, list, readers
    steps[i] = step > 0 and step or false
  end
  return steps
end

local function add_schedules(self, applied)
  for i, schedule in ipairs(self.accelerator._prepared.schedulers) do
    local stored, file = self.folder:schedule(i - 1)
    if not stored then raise("%s has no %s, and a schedule is prepared here", self.folder.dir, file) end
    local own, seen = schedule:state_dict(), {}
    local state = of_file(self, file, torch_state.schedule_in, stored, own)
    if not state then self.left[#self.left + 1] = file .. " is empty" end
    for _, text in ipairs(torch_state.schedule_differences(stored, schedule.options)) do
      self.left[#self.left + 1] = ("%s's options (%s)"):format(file, text)
    end
    for k, optimizer in ipairs(schedule.optimizers) do
      for at, other in ipairs(self.accelerator._prepared.optimizers) do
        if other == optimizer then seen[k] = applied[at] end
      end
      seen[k] = seen[k] or optimizer.applied
    end
    self.values[content.name("scheduler", i)] = { state = state or own, seen = seen, skipped = 0 }
  end
end

--- The state of loader i: its position in the pass that is set, and the present one if the folder has none.
local function add_loaders(self)
  for i, loader in ipairs(self.accelerator._prepared.dataloaders) do
    local at, state = self.folder:loader(i - 1, loader), loader:state_dict()
    if at then
      state.epoch = at.epoch or state.epoch + (at.finished and 1 or 0)
      local batches, total = at.finished and 0 or at.batches, loader.source:total_batch_size()
      if state.samples then state.samples = batches * total
      else state.batches = state.shards and batches or batches * self.accelerator.num_processes end
    end
    self.values[content.name("dl_state_dict", i)] = state
    local sampler = content.sampler(loader)
    if sampler then self.values[content.name("sampler", i)] = sampler:state_dict() end
    self.loaders[i] = at
  end
end

local function add_custom(self)
  local names, objects = self.folder.custom, self.accelerator._checkpointing.custom
  if names and #names ~= #objects then
    raise("%s has %d registered object%s, and %d %s registered here", self.folder.dir, #names, #names == 1 and "" or "s", #objects,
      #objects == 1 and "is" or "are")
  end
  for i, object in ipairs(objects) do
    self.values[("custom_checkpoint_%d"):format(i - 1)] = names and self.folder:load(names[i]) or object:state_dict()
  end
end

--- The record of the manifest: this run's, with the position of the folder.
local function make_record(self, steps, position)
  local accelerator = self.accelerator
  local record, n = content.record(accelerator, {}), accelerator.gradient_accumulation_steps
  record.cuts = {}
  for i in ipairs(accelerator._prepared.models) do record.cuts[i] = false end
  record.accumulation = { step = position or 0, sync_gradients = true, pending = false, weighted = false }
  record.step = 0
  for i, counts in ipairs(record.optimizers) do
    counts.applied = steps[i] or (position or 0) // n // math.max(1, #accelerator._prepared.models)
    counts.skipped, counts.in_a_row, counts.left_out = 0, 0, false
    steps[i], record.step = counts.applied, math.max(record.step, counts.applied)
  end
  return record
end

local function listed(self, position)
  local left, accelerator = self.left, self.accelerator
  local shuffled = #accelerator._prepared.dataloaders > 0
  table.insert(left, 1, "the random states of Python, NumPy and PyTorch, whose generators accel does not have (call accel.set_seed)")
  if shuffled then
    local some = false
    for i in ipairs(accelerator._prepared.dataloaders) do some = some or self.loaders[i] ~= nil end
    left[#left + 1] = some and "the order of shuffled data" or "the position of data loaders (skip what was seen with skip_first_batches)"
  end
  if position and position % accelerator.gradient_accumulation_steps ~= 0 then
    left[#left + 1] = "the gradients of an unfinished update, which the folder does not hold"
  end
  for _, name in ipairs(self.folder:rest()) do left[#left + 1] = name end
  return table.concat(left, "; ")
end

--- own: the objects that accel's files hold, if it wrote the folder.
local function new(accelerator, folder, manifested)
  local own = {}
  for _, name in ipairs(manifested and manifested:objects() or {}) do own[name] = true end
  return setmetatable({ accelerator = accelerator, folder = folder, manifested = manifested, own = own, values = {}, list = {},
    tensors_of = {}, left = {}, loaders = {} }, Checkpoint)
end

--- Opens a folder of another tool for the prepared objects of an Accelerator. It runs on all ranks and raises on a mismatch. The second
--- result, called once everything is read, returns the text of a warning.
---@param accelerator accel.Accelerator
---@param reader table of M.opener
---@param path string
---@return table checkpoint
---@return fun(): string warning
function M.open(accelerator, reader, path)
  local self = new(accelerator, reader.open(path, accelerator.gradient_accumulation_steps))
  local steps, position, why = add_optimizers(self), self.folder:step(accelerator.process_index)
  if not position then self.left[#self.left + 1] = ("the number of micro-batches (%s)"):format(why) end
  local record = make_record(self, steps, position)
  add_schedules(self, steps)
  add_loaders(self)
  add_custom(self)
  if accelerator.scaler then
    local state, file = self.folder:scaler()
    if not state then raise('%s has no %s, and this run scales losses; set mixed_precision as it was', path, file) end
    self.values.scaler = state
  end
  for i, model in ipairs(self.folder.adapter and accelerator._prepared.models or {}) do
    record.adapters = record.adapters or {}
    record.adapters[i] = accelerator:unwrap_model(model).active_adapter or "default"
  end
  local scalings = recipes.stateful(accelerator)
  for i, scaling in ipairs(scalings) do scalings[i] = scaling and scaling:state_dict() end
  self.values.fp8 = record.fp8 and scalings or nil
  self.values[("random_states_%d"):format(accelerator.process_index)] = random.get(accelerator)
  self.manifest, self.converts = { state = record, files = {} }, true
  return self, function()
    return ("load_state: %s was written by %s; not loaded: %s"):format(path, self.folder.tool, listed(self, position))
  end
end

--- Opens a folder that accel wrote for Accelerate (save_state{ format = "accelerate" }): optimizers and registered objects are in
--- Accelerate's files, the rest is accel's own.
---@param accelerator accel.Accelerator
---@param c accel.ckpt.Reader
---@return table checkpoint
function M.mixed(accelerator, c)
  local self = new(accelerator, require "accel.ckpt.accelerate".open(c.path), c)
  if #accelerator._prepared.optimizers == #c.manifest.state.objects.optimizers then add_optimizers(self) end
  if #accelerator._checkpointing.custom == #self.folder.custom then add_custom(self) end
  self.manifest = c.manifest
  return self
end

return M
