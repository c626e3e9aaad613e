--- The content of an Accelerator's checkpoint: tensors by object and name, plain data by file, and the record in its
--- manifest. checkpoint.lua writes it, checkpoint_load.lua reads it.
---
---   model, model_1 ...           tensors of the models, by their names before prepare. Tied ones are stored once
---   optimizer, optimizer_1 ...   state tensors, state.<parameter>.<key>. The plain data of that name has groups and plain state
---   gradients                    only inside an update (checkpoint_gradients.lua)
---
--- Plain data: optimizer, scheduler, scaler, fp8, dl_state_dict, sampler, custom_checkpoint_0, random_states_<rank>. Each is a file
--- <name>.accel of accel.encode. Earlier releases wrote <name>.bin, which is the name of PyTorch's files in Accelerate's folders.
---
--- One process writes an object to <object>.safetensors, several to <object>/shard-<part>-..., as PyTorch's distributed
--- checkpoints are laid out. checkpoint_foreign.lua reads folders of other tools into the same form.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local gradients = require "accel.accelerator.checkpoint_gradients"
local model_part = require "accel.ckpt.model"
local optimizer_part = require "accel.ckpt.optimizer"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.checkpoint_random"
local recipes = require "accel.accelerator.recipes"

local M = {}

--- accel.shard.checkpoint, or nil without sharded models (which load it).
local function sharded() return package.loaded["accel.shard.owners"] and require "accel.shard.checkpoint" end
M.sharded = sharded

--- accel.parallel.checkpoint, or nil if this Accelerator splits no model over a mesh.
local function meshed(accelerator)
  local parallel = accelerator._parallel
  return parallel and parallel:is_model_parallel() and require "accel.parallel.checkpoint"
end
M.meshed = meshed

--- "model", "model_1", ...
---@param kind string
---@param i integer from 1
---@return string
function M.name(kind, i) return i == 1 and kind or ("%s_%d"):format(kind, i - 1) end

--- The k-th of n files of an object's tensors that one part writes.
---@param object string
---@param part integer
---@param parts integer
---@param k integer
---@param n integer
---@return string
function M.file(object, part, parts, k, n)
  if parts == 1 and n == 1 then return object .. ".safetensors" end
  return ("%s/shard-%05d-model-%05d-of-%05d.safetensors"):format(object, part + 1, k, n)
end

--- The file of plain data by its name, and its file in checkpoints of earlier releases.
---@param name string
---@return string file
---@return string earlier
function M.plain_file(name) return name .. ".accel", name .. ".bin" end

---@param value any plain data and tensors
---@return string
function M.encode(value) return accel.encode(value, { max_bytes = math.maxinteger }) end

local function class_name(x)
  local cls = class.of(x)
  return cls and cls.__name or type(x)
end

--- The sampler with state, or nil.
---@param loader accel.accelerator.DataLoader
---@return table?
function M.sampler(loader)
  local sampler = loader.sampler or (loader.batch_sampler or {}).sampler or loader.batch_sampler
  if type(sampler) == "table" and type(sampler.state_dict) == "function" and type(sampler.load_state_dict) == "function" then
    return sampler
  end
end

--- The names of parameters in an Accelerator's optimizers: parameter -> { name =, model = }.
---@param accelerator accel.Accelerator
---@return table<accel.Tensor, {name: string, model: integer}>
function M.parameters(accelerator)
  local known = {}
  for m, model in ipairs(accelerator._prepared.models) do
    for name, p in accelerator:unwrap_model(model):named_parameters() do
      known[p] = known[p] or { name = name, model = m - 1 }
    end
  end
  return known
end

--- Parameters that are the same on all ranks, since their gradients are averaged. Sharded parameters have their own places.
local function replicated(accelerator)
  local set = {}
  for _, model in ipairs(accelerator._prepared.models) do
    local reducer = rawget(model, "reducer")
    for _, p in ipairs(reducer and reducer.params or {}) do set[p] = true end
  end
  return set
end

--- The engine that shards a model over ranks, or nil.
local function engine_of(model)
  local shard = sharded()
  return shard and shard.engine(model)
end

--- The states of the models, as save hooks get them: of sharded ones whole copies on the main process, if there are hooks.
---@param accelerator accel.Accelerator
---@param hooks boolean
---@param adapters? (table|false)[] of adapter_only.all: those models' active adapters alone
---@return table<string, accel.Tensor>[]
function M.weights(accelerator, hooks, adapters)
  local list = {}
  for i, model in ipairs(accelerator._prepared.models) do
    if adapters and adapters[i] then
      list[i] = (hooks or not engine_of(model)) and accelerator:get_state_dict(model, { adapter_only = true }) or {}
    elseif not engine_of(model) and not meshed(accelerator) then list[i] = accelerator:unwrap_model(model):state_dict()
    else list[i] = hooks and accelerator:get_state_dict(model) or {} end
  end
  return list
end

--- Only the first part stores buffers, and parameters that no reducer keeps equal: the next forward overwrites the other
--- ranks' values.
local function model_object(accelerator, i, state, shared, adapter)
  local prepared = accelerator._prepared.models[i]
  local engine, mesh = engine_of(prepared), meshed(accelerator)
  if mesh then
    local object = mesh.model(accelerator, prepared)
    object.name = M.name("model", i)
    return object
  end
  if engine then
    local object = sharded().model(accelerator, prepared, engine, adapter or nil)
    object.name = M.name("model", i)
    return object
  end
  local model, owned = accelerator:unwrap_model(prepared), {}
  local shared_names = {}
  for name, p in model:named_parameters() do shared_names[adapter and adapter[p] or name] = shared[p] end
  local kept, tied = model_part.untied(state)
  for name, t in ordered.iterate(kept) do
    owned[#owned + 1] = { name = name, tensor = t, owner = not shared_names[name] and 0 or nil }
  end
  local metadata = { format = "pt" }
  for alias, name in next, tied do metadata[alias] = name end
  return { name = M.name("model", i), entries = owned, metadata = metadata }
end

--- The names of an optimizer's parameters, by group. For sharded parameters it also includes this rank's shards, which
--- the optimizer updates.
---@param optimizer table
---@param known table<accel.Tensor, {name: string, model: integer}>
---@return string[][] names
---@return string[][] own
function M.names(optimizer, known)
  local groups = optimizer._whole_groups or sharded() and sharded().parameters(optimizer)
  local names = optimizer_part.names(optimizer, known, groups)
  if not groups then return names, names end
  local own = {}
  for g, params in ipairs(groups) do
    local name_of = {}
    for i, p in ipairs(params) do name_of[p] = names[g][i] end
    own[g] = {}
    for i, p in ipairs(optimizer.param_groups[g].params) do
      local place = sharded() and sharded().place_of(p)
      own[g][i] = name_of[place and place.unit.params[place.i] or p]
    end
  end
  return names, own
end

--- The state of one optimizer: its object of tensors and its plain data. A collective if parameters are sharded over
--- ranks.
local function optimizer_object(accelerator, i, known, shared)
  local optimizer, entries = accelerator._prepared.optimizers[i], {}
  local names, own = M.names(optimizer, known)
  local plain = optimizer_part.split(optimizer, own, function(name, t, p)
    if p and meshed(accelerator) then return meshed(accelerator).add_state(entries, accelerator, name, t:detach(), p) end
    local place = p and sharded() and sharded().place_of(p)
    if place then return sharded().add_state(entries, accelerator, place, name, t:detach()) end
    entries[#entries + 1] = { name = name, tensor = t:detach(), owner = not (p and shared[p]) and 0 or nil }
  end, names)
  if names ~= own and plain.state then plain.state = require("accel.shard.checkpoint").merge(plain.state) end
  table.sort(entries, function(a, b) return a.name < b.name end)
  return { name = M.name("optimizer", i), entries = entries, metadata = { format = "pt" } }, plain
end

--- Everything, as this rank has it. A collective, since an update under way may have to be stored.
---@param accelerator accel.Accelerator
---@param weights table<integer, table<string, accel.Tensor>> by model. nil if hooks have taken over
---@param adapters? (table|false)[] of adapter_only.all
---@return {objects: table[], data: table<string, any>, own: table<string, any>} data: plain data of the first part by name, own: of this
---  rank
function M.collect(accelerator, weights, adapters)
  local prepared, shared, known = accelerator._prepared, replicated(accelerator), M.parameters(accelerator)
  local objects, data = {}, {}
  for i in ipairs(prepared.models) do
    if weights[i] then objects[#objects + 1] = model_object(accelerator, i, weights[i], shared, adapters and adapters[i]) end
  end
  local without = M.without_optimizers(accelerator, "no_save_optim")
  for i in ipairs(without and {} or prepared.optimizers) do
    local object, plain = optimizer_object(accelerator, i, known, shared)
    objects[#objects + 1] = object
    data[M.name("optimizer", i)] = plain
  end
  for i, schedule in ipairs(without and {} or prepared.schedulers) do
    data[M.name("scheduler", i)] = { state = schedule:state_dict(), seen = schedule.seen, skipped = schedule.skipped }
  end
  for i, loader in ipairs(prepared.dataloaders) do
    data[M.name("dl_state_dict", i)] = loader:state_dict()
    local sampler = M.sampler(loader)
    if sampler then data[M.name("sampler", i)] = sampler:state_dict() end
  end
  for i, object in ipairs(accelerator._checkpointing.custom) do
    data[("custom_checkpoint_%d"):format(i - 1)] = object:state_dict()
  end
  local scalings, any = recipes.stateful(accelerator)
  for i, scaling in ipairs(scalings) do scalings[i] = scaling and scaling:state_dict() end
  if any then data.fp8 = scalings end
  if accelerator.scaler then data.scaler = accelerator.scaler:state_dict() end
  if gradients.pending(accelerator) then
    if meshed(accelerator) then
      raise "save_state: an update is not complete, and the model is split over a mesh; save after optimizer:step()"
    end
    objects[#objects + 1] = { name = "gradients", entries = gradients.entries(accelerator) }
  end
  local own = { [("random_states_%d"):format(accelerator.process_index)] = random.get(accelerator) }
  return { objects = objects, data = data, own = own }
end

--- Whether states of optimizers and schedules are left out, by an option of Megatron-LM's plugin.
---@param accelerator accel.Accelerator
---@param field "no_save_optim"|"no_load_optim"
---@return boolean
function M.without_optimizers(accelerator, field)
  local plugin = accelerator.megatron_lm_plugin
  return plugin ~= nil and plugin[field]
end

--- The classes of prepared and registered objects, by kind. without: leave out optimizers and schedules.
---@param accelerator accel.Accelerator
---@param without? boolean
---@return table<string, string[]>
function M.classes(accelerator, without)
  local prepared, out = accelerator._prepared, {}
  local function add(kind, list, inner)
    out[kind] = {}
    for i, x in ipairs(list) do out[kind][i] = class_name(inner and rawget(x, inner) or x) end
  end
  add("models", prepared.models, "module")
  add("optimizers", without and {} or prepared.optimizers, "optimizer")
  add("schedulers", without and {} or prepared.schedulers, "scheduler")
  add("dataloaders", prepared.dataloaders)
  add("custom", accelerator._checkpointing.custom)
  return out
end

--- FNV-1a of the settings, to tell runs with other settings apart.
local function config_hash(accelerator)
  local h = 0xcbf29ce484222325
  local text = tostring(accelerator.config):gsub("process_index[^\n]*", "")
  for i = 1, #text do h = (h ~ text:byte(i)) * 0x100000001b3 end
  return ("%016x"):format(h)
end

--- Updates that were applied: the most of any optimizer.
---@param accelerator accel.Accelerator
---@return integer
function M.step(accelerator)
  local step = 0
  for _, optimizer in ipairs(accelerator._prepared.optimizers) do step = math.max(step, optimizer.applied) end
  return step
end

--- The record of the manifest: the position of the run and a list of its content.
---@param accelerator accel.Accelerator
---@param hooked integer[] models that hooks took over, counted from 0
---@param adapters? (table|false)[] of adapter_only.all
---@return table
function M.record(accelerator, hooked, adapters)
  local prepared, state = accelerator._prepared, accelerator.gradient_state
  local loader = prepared.dataloaders[1]
  local at = loader and loader:state_dict() or {}
  local optimizers = {}
  for i, o in ipairs(prepared.optimizers) do
    optimizers[i] = { applied = o.applied, skipped = o.skipped, in_a_row = o._in_a_row, left_out = o.step_was_skipped }
  end
  local only
  for i in ipairs(adapters or {}) do
    only = only or {}
    only[i] = adapters[i] and accelerator:unwrap_model(prepared.models[i]).active_adapter or false
  end
  local update, cuts = accelerator._update, {}
  for i, model in ipairs(prepared.models) do
    local engine = engine_of(model)
    cuts[i] = engine and sharded().cut(accelerator, engine) or false
  end
  return {
    step = M.step(accelerator), micro_batches = accelerator.micro_batches, epoch = at.epoch or 0, samples = at.samples or at.batches or 0,
    world = { num_processes = accelerator.num_processes, num_nodes = dist.get_num_nodes() },
    config = config_hash(accelerator),
    iteration = accelerator.project_configuration.iteration,
    objects = M.classes(accelerator, M.without_optimizers(accelerator, "no_save_optim")), hooked = hooked,
    scaler = accelerator.scaler ~= nil, fp8 = select(2, recipes.stateful(accelerator)), optimizers = optimizers, cuts = cuts, adapters = only,
    accumulation = { step = state.step, sync_gradients = state.sync_gradients, pending = gradients.pending(accelerator),
      weighted = update.weighted or false },
  }
end

return M
