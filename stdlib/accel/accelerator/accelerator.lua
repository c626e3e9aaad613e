--- accel.Accelerator runs an unchanged training loop on any number of ranks and in any precision.
---
--- The constructor resolves its table and the environment into one configuration that never changes (resolve.lua,
--- config.lua). It also creates the owners of all changing state:
---   gradient_state         settings of accumulation, position of the loop     gradient_state.lua
---   dataloader_config      even_batches                                      (the setter below)
---   project_configuration  directories, number of the next checkpoint        configuration.lua
---   _prepared              models, optimizers, schedules, loaders            prepared.lua, filled by prepare.lua
---   _update, scaler        the update under way, its last factor             update.lua, amp/grad_scaler.lua
---   _micro_steps           blocks of accumulate                              micro_step.lua
---   _parallel              the mesh of ranks and the split models on it     parallelism.lua
---   _trackers              runs of trackers                                  trackers.lua
---   _checkpointing         registered objects, hooks, a save under way       checkpoint.lua
---   _resume                the checkpoint from which this run continues     resume.lua
--- Methods stand by topic in the files named in METHODS.
local Elastic = require "accel.accelerator.elastic"
local GradientState = require "accel.accelerator.gradient_state"
local Config = require "accel.accelerator.config"
local MicroBatchRandom = require "accel.accelerator.micro_batch_random"
local MicroSteps = require "accel.accelerator.micro_step"
local Prepared = require "accel.accelerator.prepared"
local Resume = require "accel.accelerator.resume"
local Update = require "accel.accelerator.update"
local check = require "accel.util.check"
local checkpoint_content = require "accel.accelerator.checkpoint_content"
local checkpoint_folder = require "accel.accelerator.checkpoint_folder"
local class = require "accel.util.class"
local filter_trackers = require("accel.track.general_tracker").filter_trackers
local nearest = require "accel.util.nearest"
local parallelism = require "accel.accelerator.parallelism"
local raise = require "accel.util.raise"
local resolve = require "accel.accelerator.resolve"
local state = require "accel.accelerator.state"

local METHODS <const> = { "prepare", "accumulation", "training", "collectives", "processes", "trackers", "save",
  "checkpoint", "profiling", "membership" }

--- Runs an unchanged training loop on any number of ranks and in any precision. The options have Accelerate's names.
--- Options of missing features raise when you set them.
---
---   local accelerator = accel.Accelerator { gradient_accumulation_steps = 2, mixed_precision = "bf16" }
---   model, optimizer, loader, scheduler = accelerator:prepare(model, optimizer, loader, scheduler)
---   for batch in loader() do
---     local _ <close> = accelerator:accumulate(model)
---     local loss = loss_fn(model(batch[1]), batch[2])
---     accelerator:backward(loss)
---     optimizer:step()
---     scheduler:step()
---     optimizer:zero_grad()
---   end
---
--- `print(accelerator.config)` lists every setting with its value and its origin: argument, environment or default.
---
--- example: local a = accel.Accelerator { gradient_accumulation_steps = 2 } return a.num_processes, a.device --> 1, "cpu"
---@class accel.Accelerator
---@field config accel.accelerator.Config every setting as it was resolved, with its origin
---@field state accel.accelerator.AcceleratorState
---@field gradient_state accel.accelerator.GradientState
---@field device string
---@field mixed_precision string "no", "fp16", "bf16" or "fp8"
---@field fp8_backend string? with fp8 whose recipe: "AO", "TE" or "MSAMP"
---@field scaler accel.amp.GradScaler? with fp16. Settable, for a scaler with other settings or another precision
---@field num_processes integer
---@field process_index integer
---@field local_process_index integer
---@field is_main_process boolean
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field sync_gradients boolean settable
---@field gradient_accumulation_steps integer settable
---@field micro_batches integer? of an update over all ranks
---@field even_batches boolean settable
---@field deepspeed_plugin accel.accelerator.DeepSpeedPlugin? the active one
---@field deepspeed_config table? its configuration, as prepare has filled it
---@field deepspeed_engine_wrapped accel.deepspeed.Engine? once a model is prepared under it
---@field step integer updates that were applied
---@field generation integer of the ranks in an elastic job, 1 at its start. It grows with every loss
---@field last_update table? in an elastic job: { step, loss, generation, micro_batches, redone }. loss is the mean over the update's
---  micro-batches, redone the number of them that were computed again
---@field resumed_from string? the checkpoint from which accel-run --resume continues this run
local Accelerator = class("accel.Accelerator")

local function make_scaler(config)
  if config.mixed_precision ~= "fp16" then return nil end
  if config.deepspeed_plugin then return config.deepspeed_plugin:scaler() end
  return require("accel.amp").GradScaler(config.scaler_handler and config.scaler_handler:to_kwargs() or {})
end

---@param opts? table
---  device_placement boolean = true: prepared models and batches go to the device
---  split_batches boolean: a loader's batch size is the global batch size (default: dataloader_config's, false)
---  mixed_precision string: "no", "fp16", "bf16" or "fp8" (default: the environment's, "no")
---  gradient_accumulation_steps integer: micro-batches of an update (default: the environment's, 1)
---  micro_batches integer: micro-batches of an update over all ranks, in the place of gradient_accumulation_steps, for
---    DistributedDataParallelKwargs { deterministic = "world" }. Any number of ranks up to it gives the same bits
---  cpu boolean = false: stay on the CPU
---  dataloader_config accel.accelerator.DataLoaderConfiguration: even_batches, dispatch_batches, ...
---  rng_types string[]: generators that all ranks share (default: { "generator" })
---  log_with string|table|list: trackers, by name ("tensorboard", "jsonl", "csv") or objects. "all": every available one
---  project_dir string: the folder for the files of a run
---  project_config accel.accelerator.ProjectConfiguration: the same and more
---  gradient_accumulation_plugin accel.accelerator.GradientAccumulationPlugin: in the place of the number
---  step_scheduler_with_optimizer boolean = true: a prepared schedule advances with applied updates only
---  kwargs_handlers list: GradScalerKwargs, DistributedDataParallelKwargs, AutocastKwargs, ..., one of each at most
---  step_unit string = "update": a prepared schedule advances by one for every applied update, whatever the number of
---    ranks. "process": by num_processes, as Accelerate does
---  fsdp_plugin accel.accelerator.FullyShardedDataParallelPlugin: parameters, gradients and optimizer states are cut over ranks
---  deepspeed_plugin accel.accelerator.DeepSpeedPlugin: the same in DeepSpeed's words, stages 0 to 3
---  deepspeed_plugins table: several of them by name. state:select_deepspeed_plugin(name) selects the active one
---  torch_tp_plugin any: tensor parallelism by a separate plugin: not in accel yet, so it raises. Use parallelism_config
---  megatron_lm_plugin accel.accelerator.MegatronLMPlugin: tensor, pipeline and data parallelism in Megatron-LM's words
---  parallelism_config accel.accelerator.ParallelismConfig: a mesh of data, tensor, sequence, context and pipeline parallelism
---  dynamo_backend string: compilation of prepared models, as accel.compile does it: "inductor", "eager", "no"
---  dynamo_plugin accel.accelerator.TorchDynamoPlugin: the same with its other settings
---  memory string = "normal": "low" trains in less memory. Blocks are computed again in backward, AdamW, Adam and Lion keep states of 8
---    bits, and backward steps each parameter and drops its gradient. "reduced": the same, but gradients stay until optimizer:step(),
---    which clipping, fp16 and several optimizers need
function Accelerator:init(opts)
  local resolved = resolve(opts)
  self.config = Config(resolved.values, resolved.origins)
  self.state = resolved.state
  self.gradient_state = GradientState(resolved.gradient_accumulation_plugin)
  self.dataloader_config, self.project_configuration = resolved.dataloader_config, resolved.project_configuration
  self._parallel = parallelism.open(resolved.values, self.num_processes)
  state.bind(self.state, resolved.values, self._parallel and self._parallel.mesh)
  self._prepared = Prepared()
  self._update = Update(self._prepared, make_scaler(self.config), self._parallel and self._parallel:axis "data")
  self._micro_steps = MicroSteps()
  self._checkpointing = { custom = {}, save_hooks = {}, load_hooks = {} }
  self._trackers = { entries = filter_trackers(resolved.log_with, self.logging_dir), running = {} }
  self.gradient_state.random = self.micro_batches and MicroBatchRandom(self.micro_batches) or nil
  self._elastic = Elastic.of(self)
  self.gradient_state.elastic = self._elastic
  self._resume = Resume(self)
  Elastic.together(self, checkpoint_folder.look, self)
  if resolved.notes and #resolved.notes > 0 then
    self:_warn("keys of the DeepSpeed configuration that have no effect here: " .. table.concat(resolved.notes, "; "))
  end
  for _, line in ipairs(resolved.idle) do self:_warn(line) end
  for _, line in ipairs(require "accel.accelerator.variables".lines()) do self:_warn(line) end
end

-- Attributes -------------------------------------------------------------------------------------

--- Fields that are read on access from their owner, above all the state, whose views scripts read as well. All other fields are constants
--- of the configuration.
local attributes = {}

for _, key in ipairs { "process_index", "local_process_index", "is_main_process", "is_local_main_process",
  "is_last_process", "use_distributed", "multi_device", "backend", "distributed_type", "is_fsdp2" } do
  attributes[key] = function(self) return self.state[key] end
end

for _, key in ipairs { "device", "num_processes" } do -- code that ends a run reads them after a reset as well
  attributes[key] = function(self)
    local value = state.fact(key)
    if value == nil then value = self.config._values[key] end
    return value
  end
end

for _, key in ipairs { "split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking",
  "use_stateful_dataloader" } do
  attributes[key] = function(self) return self.dataloader_config[key] end
end

for _, key in ipairs { "models", "optimizers", "schedulers", "dataloaders" } do
  attributes["_" .. key] = function(self) return self._prepared[key] end
end

function attributes:scaler()
  local update = rawget(self, "_update")
  return update and update._scaler
end
function attributes:project_dir() return self.project_configuration.project_dir end
function attributes:logging_dir() return self.project_configuration.logging_dir end
function attributes:save_iteration() return self.project_configuration.iteration end
function attributes:sync_gradients() return self.gradient_state.sync_gradients end
function attributes:gradient_accumulation_steps() return self.gradient_state.num_steps end
function attributes:gradient_accumulation_plugin() return self.gradient_state.plugin end
function attributes:step()
  if #self._prepared.optimizers == 0 and self._update.n > 0 then
    self:_warn "Accelerator: step counts the updates of prepared optimizers, and there are none; give the optimizer to prepare"
  end
  return checkpoint_content.step(self)
end
function attributes:generation()
  local elastic = rawget(self, "_elastic")
  return elastic and elastic.core.generation() or 1
end
function attributes:last_update()
  local elastic = rawget(self, "_elastic")
  return elastic and elastic.transaction.last_update
end
function attributes:resumed_from() return self._resume.path end
function attributes:log_with() return self._trackers.entries end
function attributes:trackers() return self._trackers.running end

--- The process's active plugin, or the configuration's if there is only one.
function attributes:deepspeed_plugin() return self.state.deepspeed_plugin end
function attributes:deepspeed_config()
  local plugin = self.deepspeed_plugin
  return plugin and plugin.deepspeed_config
end
function attributes:deepspeed_engine_wrapped() return rawget(self, "_deepspeed") end
function attributes:mixed_precision()
  local plugin = self.deepspeed_plugin
  local own = self.config.mixed_precision -- a DeepSpeed configuration has no block for fp8
  return plugin and own ~= "fp8" and plugin:precision() or own
end

function attributes:is_composable_parallelism_enabled() return self.parallelism_config ~= nil and self.fsdp_plugin ~= nil end

--- The mesh of ranks (accel.parallel.DeviceMesh), or nil for plain data parallelism.
function attributes:torch_device_mesh() return self._parallel and self._parallel.mesh end

for name, dims in next, { tensor_parallel_rank = "tp", pipeline_parallel_rank = "pp", context_parallel_rank = "cp",
  data_parallel_rank = "dp", data_parallel_shard_rank = "dp_shard" } do
  attributes[name] = function(self)
    if self._parallel then return self._parallel:axis(dims).rank end
    return dims == "dp" and self.process_index or 0
  end
end

--- Whether this process is one that saves models: the first of every machine.
function attributes:should_save_model() return self.is_local_main_process end

--- Whether any prepared optimizer skipped its last step, for gradients that were not finite.
function attributes:optimizer_step_was_skipped()
  for _, optimizer in ipairs(self._prepared.optimizers) do
    if optimizer.step_was_skipped then return true end
  end
  return false
end

--- Written through to the owner.
local setters = {
  sync_gradients = function(self, value) self.gradient_state.sync_gradients = value and true or false end,
  gradient_accumulation_steps = function(self, value)
    if self.micro_batches then raise "Accelerator: gradient_accumulation_steps is this rank's share of micro_batches, and cannot be set" end
    self.gradient_state.num_steps = check.positive("Accelerator", "gradient_accumulation_steps", value)
  end,
  scaler = function(self, value)
    if value ~= nil and not class.isinstance(value, require("accel.amp").GradScaler) then
      raise("Accelerator: scaler must be an accel.amp.GradScaler or nil, got %s", check.shown(value))
    end
    self._update._scaler = value
  end,
  even_batches = function(self, value)
    if type(value) ~= "boolean" then raise("even_batches must be a boolean, got %s", check.shown(value)) end
    self.dataloader_config.even_batches = value
  end,
}

for _, topic in ipairs(METHODS) do
  for name, method in next, (require("accel.accelerator." .. topic)) do Accelerator[name] = method end
end

--- Attributes that may be nil.
local optional = {
  micro_batches = true, scaler = true, autocast_handler = true, ddp_handler = true, scaler_handler = true, init_handler = true,
  profile_handler = true, te_recipe_handler = true, ao_recipe_handler = true, msamp_recipe_handler = true,
  last_update = true, data_seed = true, total_limit = true, resumed_from = true,
  -- Accelerate also returns nil if the feature is off
  deepspeed_plugin = true, deepspeed_config = true, deepspeed_engine_wrapped = true,
  fsdp_plugin = true, megatron_lm_plugin = true, torch_tp_plugin = true, dynamo_plugin = true,
  parallelism_config = true, torch_device_mesh = true, fp8_backend = true,
}

--- A misspelled name would be nil, and false in a condition. Scripts may add their own names.
local function refuse_misspelt(self, key)
  local names = {}
  for _, set in ipairs { Accelerator, attributes, self, optional, self.config._values } do
    for name in next, set do
      if type(name) == "string" and name:byte() ~= 95 then names[#names + 1] = name end
    end
  end
  local near = nearest(key, names)
  if near then raise("Accelerator: there is no field '%s'; did you mean '%s'?", key, near) end
end

function Accelerator.__index(self, key)
  local value = Accelerator[key]
  if value ~= nil then return value end
  local compute = attributes[key]
  if compute then return compute(self) end
  local config = rawget(self, "config")
  value = config and config._values[key]
  if value ~= nil then return value end
  if config and not optional[key] and type(key) == "string" and key:byte() ~= 95 then
    require("accel.util.absent").refuse("Accelerator:", key)
    if #key > 5 then refuse_misspelt(self, key) end
  end
  return nil
end

function Accelerator.__newindex(self, key, value)
  local set = setters[key]
  if set then return set(self, value) end
  local config = rawget(self, "config")
  if attributes[key] or config and config._values[key] ~= nil then raise("Accelerator: %s cannot be set", tostring(key)) end
  rawset(self, key, value)
end

local warned = setmetatable({}, { __mode = "k" })

--- A warning, once per Accelerator, on the main process.
function Accelerator:_warn(text)
  local said = warned[self] or {}
  warned[self] = said
  if said[text] or not self.is_main_process then return end
  said[text] = true
  io.stderr:write("accel: ", require("accel.util.terminal").visible(text, true), "\n")
end

function Accelerator.__tostring(self)
  return ("Accelerator(process %d of %d, device=%s, mixed_precision=%s, gradient_accumulation_steps=%d)"):format(
    self.process_index, self.num_processes, self.device, self.mixed_precision, self.gradient_accumulation_steps)
end

return Accelerator
