--- Loads a checkpoint in two phases. `check` opens, verifies and compares everything, and reads as much as fits in memory next to
--- the present values. `apply` puts it into place. Whatever raises before or in `apply` leaves models, optimizers, generators and
--- loaders as they were. Used by checkpoint.lua.
local accel = require "accel"
local ckpt_content = require "accel.accelerator.checkpoint_content"
local gradients = require "accel.accelerator.checkpoint_gradients"
local loader_position = require "accel.accelerator.loader_position"
local model_part = require "accel.ckpt.model"
local optimizer_part = require "accel.ckpt.optimizer"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.checkpoint_random"
local recipes = require "accel.accelerator.recipes"
local tensors = require "accel.util.tensors"
local tree = require "accel.ckpt.tree"

local M = {}

--- Models up to this size are first read into separate memory, so that a read that fails after the verification changes
--- nothing. Larger ones are read in place.
local STAGED <const> = 256 << 20

-- ---- phase 1: the stored objects ----

--- The plain data of a name. A folder of another tool has it as a value.
local function plain(c, name)
  if c.value then
    local value, message = c:value(name)
    if value == nil then raise("%s", message) end
    return value
  end
  local file, earlier = ckpt_content.plain_file(name)
  for _, entry in ipairs(c.manifest.files) do
    if entry.name == earlier then file = earlier end
  end
  local bytes, why = c:bytes(file)
  if not bytes then raise("%s: %s", file, why or "it is not in the checkpoint") end
  local value, message, code = accel.decode(bytes, { max_bytes = math.maxinteger })
  if code then raise("%s: %s", file, message) end
  return value
end

local function read_into(c, object, name, tensor, offsets)
  local ok, why = c:read(object, name, tensor, offsets)
  if not ok then raise("%s: '%s': %s", object, name, why) end
end

--- The stored tensors of an object, none for one that has no file.
local function stored_of(c, object)
  for _, name in ipairs(c:objects()) do
    if name == object then
      local list, why = c:tensors(object)
      return list or raise("%s: %s", object, why)
    end
  end
  return {}
end

local KINDS <const> = { "models", "optimizers", "schedulers", "dataloaders", "custom" }
local WORDS <const> = { models = "model", optimizers = "optimizer", schedulers = "scheduler", dataloaders = "data loader",
  custom = "registered object" }

--- A checkpoint's objects that this run lacks: one entry "2 optimizers" for each kind. Empty if none.
---@param record table of the manifest
---@param accelerator accel.Accelerator
---@return string[]
function M.absent(record, accelerator)
  local here, list = ckpt_content.classes(accelerator), {}
  for _, kind in ipairs(KINDS) do
    local n = #record.objects[kind] - #here[kind]
    if n > 0 then
      list[#list + 1] = ("%d %s%s (%s)"):format(n, WORDS[kind], n == 1 and "" or "s",
        table.concat(record.objects[kind], ", ", #here[kind] + 1))
    end
  end
  return list
end

local function check_counts(record, accelerator)
  local without = ckpt_content.without_optimizers(accelerator, "no_load_optim")
  local here = ckpt_content.classes(accelerator)
  if #record.objects.custom ~= #here.custom then
    raise("%d objects were registered for checkpointing when it was saved, here are %d", #record.objects.custom, #here.custom)
  end
  for _, kind in ipairs(KINDS) do
    local stored, own = record.objects[kind], here[kind]
    if without and (kind == "optimizers" or kind == "schedulers") then
      stored, own = {}, {}
    elseif kind == "optimizers" and #stored == 0 and #own > 0 and accelerator.megatron_lm_plugin then
      raise "the checkpoint has no optimizer states (no_save_optim); set no_load_optim to continue without them"
    elseif #stored ~= #own then
      raise("%d %ss are stored, %d are prepared here", #stored, WORDS[kind], #own)
    end
    for i = 1, kind ~= "models" and #own or 0 do
      if stored[i] ~= own[i] then
        raise("%s %d is stored as %s, here it is %s", WORDS[kind], i - 1, stored[i], own[i])
      end
    end
  end
  if record.scaler and not accelerator.scaler then
    raise 'the checkpoint has a loss scaler, this run has none; use mixed_precision = "fp16" as before'
  elseif accelerator.scaler and not record.scaler then
    raise "this run has a loss scaler, the checkpoint has none; use the former mixed_precision"
  end
  local _, fp8 = recipes.stateful(accelerator)
  if record.fp8 and not fp8 then
    raise 'the checkpoint has fp8 scales, this run has none; use mixed_precision = "fp8" and the former recipe'
  elseif fp8 and not record.fp8 then
    raise "this run has fp8 scales, the checkpoint has none; use the former mixed_precision and recipe"
  end
end

--- The tensors of model i: separate copies that were read, or the present ones to read into.
local function check_model(c, accelerator, i, plan)
  local object, model = ckpt_content.name("model", i), accelerator._prepared.models[i]
  local stored, cut = stored_of(c, object), (plan.record.cuts or {})[i] or nil
  local own, targets
  local mesh = ckpt_content.meshed(accelerator)
  local saved, adapter_only = (plan.record.adapters or {})[i], require "accel.accelerator.adapter_only"
  local adapter = saved and adapter_only.names(accelerator, "load_state", model, saved)
  if saved and not adapter then
    raise("%s: it was saved with adapter_only, so it holds only an adapter, and the model has none", object)
  end
  if mesh and not cut then
    own, targets = mesh.targets(accelerator, model)
  elseif cut or ckpt_content.sharded() and ckpt_content.sharded().engine(model) then
    own, targets = require "accel.shard.checkpoint".targets(accelerator, model, object, cut, adapter or nil)
  else
    local state = adapter and adapter_only.state(accelerator, "load_state", model, saved) or accelerator:unwrap_model(model):state_dict()
    own, targets = model_part.untied(state), {}
    for name, t in ordered.iterate(own) do targets[#targets + 1] = { name = name, target = t } end
  end
  if c.converts then -- other tools convert floating dtypes
    for _, s in ipairs(stored) do
      local t = own[s.name]
      if t and t:is_floating_point() and tensors.is_floating(s.dtype) then s.dtype = t.dtype end
    end
  end
  local problem = model_part.misfit(own, stored)
  if problem then raise("%s: %s", object, problem) end
  local has = {}
  for _, s in ipairs(stored) do has[s.name] = s.dtype end
  for _, entry in ipairs(targets) do
    local dtype = has[entry.name]
    entry.object = object
    if dtype and model_part.widens(dtype, own[entry.name].dtype) then entry.dtype = dtype end
    if dtype then plan.tensors[#plan.tensors + 1] = entry end
  end
end

--- The state dict that optimizer i takes over, in fresh memory.
local function check_optimizer(c, optimizer, i, known, parameters, mesh)
  local object = ckpt_content.name("optimizer", i)
  local stored, names, own = plain(c, object), ckpt_content.names(optimizer, known)
  local problem = optimizer_part.misfit(stored, names)
  if problem then raise("%s: %s", object, problem) end
  local shapes = {}
  for _, s in ipairs(stored_of(c, object)) do shapes[s.name] = s end
  for _, name in ipairs(tree.names(stored)) do
    if not shapes[name] then raise("%s: '%s' is missing", object, name) end
  end
  return optimizer_part.join(optimizer, stored, own, function(name, p)
    local s = shapes[name]
    if p and mesh then return mesh.read_state(p, s, function(...) read_into(c, object, ...) end) end
    local place = p and ckpt_content.sharded() and ckpt_content.sharded().place_of(p)
    if place then
      return ckpt_content.sharded().read_state(place, s, function(...) read_into(c, object, ...) end, optimizer.whole_states)
    end
    local device = parameters[name:match "^state%.(.*)%.[^.]*$" or ""] or "cpu"
    local t = accel.unscoped(accel.empty, s.shape, { dtype = s.dtype, device = device })
    read_into(c, object, name, t)
    return t
  end)
end

--- Other updates than the run had before give other numbers. Only who has set them can have meant that.
local function check_micro_batches(stored, accelerator)
  local own = accelerator.micro_batches
  if not stored or not own or stored == own then return end
  local text = ("its updates have %d micro-batches, those of this job %d"):format(stored, own)
  if accelerator.config:origin "micro_batches" ~= "argument" then
    raise("%s, gradient_accumulation_steps x ranks; set micro_batches = %d to continue the run on any number of ranks", text, stored)
  end
  accelerator:_warn(("load_state: %s; set micro_batches = %d to continue the run with the same numbers"):format(text, stored))
end

--- Phase 1. Raises if anything is missing, damaged or from another run. Changes nothing.
---@param accelerator accel.Accelerator
---@param c table an open checkpoint
---@param skip table<integer, boolean> models that hooks took over
---@return table plan for apply
function M.check(accelerator, c, skip)
  local prepared, record = accelerator._prepared, c.manifest.state
  local _ <close> = accel.no_grad()
  check_counts(record, accelerator)
  check_micro_batches(record.micro_batches, accelerator)
  local plan = { c = c, record = record, tensors = {}, optimizers = {}, schedulers = {}, loaders = {}, samplers = {},
    custom = {} }
  for i in ipairs(prepared.models) do
    if not skip[i] then check_model(c, accelerator, i, plan) end
  end
  local total = 0
  for _, entry in ipairs(plan.tensors) do total = total + tensors.bytes(entry.target) end
  for _, entry in ipairs(plan.tensors) do
    if total <= STAGED or entry.dtype then -- dtype: the stored dtype differs from the target's
      local target = entry.target
      entry.value = accel.unscoped(accel.empty, target.shape, { dtype = entry.dtype or target.dtype, device = target.device })
      read_into(c, entry.object, entry.name, entry.value, entry.offsets)
    end
  end
  local known, devices = ckpt_content.parameters(accelerator), {}
  for p, k in next, known do devices[k.name] = p.device end
  plan.without = ckpt_content.without_optimizers(accelerator, "no_load_optim")
  for i, optimizer in ipairs(plan.without and {} or prepared.optimizers) do
    plan.optimizers[i] = check_optimizer(c, optimizer, i, known, devices, ckpt_content.meshed(accelerator))
  end
  for i in ipairs(plan.without and {} or prepared.schedulers) do plan.schedulers[i] = plain(c, ckpt_content.name("scheduler", i)) end
  for i, loader in ipairs(prepared.dataloaders) do
    plan.loaders[i] = plain(c, ckpt_content.name("dl_state_dict", i))
    loader_position.from_state(loader, plan.loaders[i])
    if ckpt_content.sampler(loader) then plan.samplers[i] = plain(c, ckpt_content.name("sampler", i)) end
  end
  for i in ipairs(accelerator._checkpointing.custom) do
    plan.custom[i] = plain(c, ("custom_checkpoint_%d"):format(i - 1))
  end
  if record.scaler then plan.scaler = plain(c, "scaler") end
  if record.fp8 then plan.fp8 = plain(c, "fp8") end
  plan.random = random.take(accelerator, function(rank) return plain(c, ("random_states_%d"):format(rank)) end,
    accelerator.project_configuration.save_on_each_node and accelerator.num_processes or record.world.num_processes)
  if record.accumulation.pending then
    plan.gradients = gradients.read(accelerator, stored_of(c, "gradients"), function(name, t, offsets)
      read_into(c, "gradients", name, t, offsets)
    end, record.accumulation.weighted)
  end
  return plan
end

-- ---- phase 2: into place ----

--- Undoes the steps taken, last first.
local function undo(steps)
  for i = #steps, 1, -1 do pcall(steps[i]) end
end

local function apply_states(accelerator, plan, undone)
  local prepared = accelerator._prepared
  --- Gives an object a state, and records how to restore its present one.
  local function load(object, value, ...)
    local before = object:state_dict()
    undone[#undone + 1] = function() object:load_state_dict(before) end
    object:load_state_dict(value, ...)
  end
  for i, object in ipairs(accelerator._checkpointing.custom) do load(object, plan.custom[i]) end
  for i, schedule in ipairs(plan.without and {} or prepared.schedulers) do
    local seen, skipped = schedule.seen, schedule.skipped
    undone[#undone + 1] = function()
      rawset(schedule, "seen", seen)
      rawset(schedule, "skipped", skipped)
    end
    load(schedule, plan.schedulers[i].state)
    if #plan.schedulers[i].seen == #seen then rawset(schedule, "seen", plan.schedulers[i].seen) end
    rawset(schedule, "skipped", plan.schedulers[i].skipped)
  end
  for i, optimizer in ipairs(plan.without and {} or prepared.optimizers) do load(optimizer, plan.optimizers[i], { assign = true }) end
  if plan.scaler then load(accelerator.scaler, plan.scaler) end
  for i, scaling in ipairs(plan.fp8 and recipes.stateful(accelerator) or {}) do
    if scaling then load(scaling, plan.fp8[i]) end
  end
  for i, loader in ipairs(prepared.dataloaders) do
    local before = loader:state_dict()
    undone[#undone + 1] = function() loader:load_state_dict(before) end
    loader:_restore(plan.loaders[i])
    local sampler = ckpt_content.sampler(loader)
    if sampler then load(sampler, plan.samplers[i]) end
  end
end

local COUNTS <const> = { applied = "applied", skipped = "skipped", _in_a_row = "in_a_row", step_was_skipped = "left_out" }

--- Phase 2. An error leaves everything as it was, but for models above 256 MiB whose file cannot be read any more since it
--- was verified.
---@param accelerator accel.Accelerator
---@param plan table
function M.apply(accelerator, plan)
  local undone, prepared, record = {}, accelerator._prepared, plan.record
  local ok, why = pcall(function()
    apply_states(accelerator, plan, undone)
    local _ <close> = accel.no_grad()
    for _, entry in ipairs(plan.tensors) do
      if entry.value then entry.target:copy_(entry.value)
      else read_into(plan.c, entry.object, entry.name, entry.target, entry.offsets) end
    end
  end)
  if not ok then
    undo(undone)
    error(why, 0)
  end
  for i, optimizer in ipairs(prepared.optimizers) do
    for key, name in next, plan.without and {} or COUNTS do optimizer._counts:set(key, record.optimizers[i][name]) end
    optimizer.optimizer:zero_grad()
  end
  accelerator._update:discard()
  local state = accelerator.gradient_state
  state.step, state.sync_gradients, state.stale = record.accumulation.step, record.accumulation.sync_gradients, false
  if accelerator.micro_batches then state.step = 0 end -- it counted another rank's share; a save is between two updates
  if plan.gradients then gradients.set(accelerator, plan.gradients, record.accumulation.weighted) end
  random.set(accelerator, plan.random)
end

--- After phase 2, on all ranks: the ranks of a sharded model exchange the parts that each has loaded.
---@param accelerator accel.Accelerator
function M.publish(accelerator)
  local shard = ckpt_content.sharded()
  for _, model in ipairs(shard and accelerator._prepared.models or {}) do
    local engine = shard.engine(model)
    if engine then engine:after_step(true) end
  end
end

return M
