--- accel.Accelerator: what a training loop needs to run unchanged on any number of ranks and in any precision.
---
--- This file reads the constructor's table and answers for attributes; methods stand by topic in the files named in
--- METHODS.
local accel = require "accel"
local GradientState = require "accel.accelerator.gradient_state"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configuration = require "accel.accelerator.configuration"
local environment = require "accel.accelerator.environment"
local handlers = require "accel.accelerator.handlers"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.random"
local state = require "accel.accelerator.state"

local METHODS <const> = { "prepare", "accumulation", "training", "collectives", "processes", "trackers", "absent" }

--- What a training loop needs to run unchanged on any number of ranks and in any precision. The options have Accelerate's
--- names; those of features that are not in this build raise when they are set.
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
--- example: local a = accel.Accelerator { gradient_accumulation_steps = 2 } return a.num_processes, a.device --> 1, "cpu"
---@class accel.Accelerator
---@field state accel.accelerator.AcceleratorState
---@field gradient_state accel.accelerator.GradientState
---@field device string
---@field mixed_precision string "no", "fp16" or "bf16"
---@field scaler accel.amp.GradScaler? with fp16
---@field num_processes integer
---@field process_index integer
---@field local_process_index integer
---@field is_main_process boolean
---@field is_local_main_process boolean
---@field is_last_process boolean
---@field sync_gradients boolean settable
---@field gradient_accumulation_steps integer settable
---@field even_batches boolean settable
local Accelerator = class("accel.Accelerator")

local none <const> = options.none

local declared = {
  device_placement = true, split_batches = none, mixed_precision = none, gradient_accumulation_steps = none,
  cpu = false, dataloader_config = none, rng_types = none, log_with = none, project_dir = none,
  project_config = none, gradient_accumulation_plugin = none, step_scheduler_with_optimizer = true,
  kwargs_handlers = none, step_unit = "update",
  deepspeed_plugin = none, deepspeed_plugins = none, fsdp_plugin = none, torch_tp_plugin = none,
  megatron_lm_plugin = none, dynamo_backend = none, dynamo_plugin = none, parallelism_config = none,
}

--- Options of what is not there yet.
local absent = {
  deepspeed_plugin = "sharding by DeepSpeed's options", deepspeed_plugins = "sharding by DeepSpeed's options",
  fsdp_plugin = "sharding of models", torch_tp_plugin = "tensor parallelism", megatron_lm_plugin = "Megatron-LM",
  dynamo_plugin = "compilation", dynamo_backend = "compilation", parallelism_config = "a mesh of parallelisms",
}

--- Options that stand elsewhere, or that nothing here needs.
local moved = {
  even_batches = "dataloader_config", dispatch_batches = "dataloader_config", data_seed = "dataloader_config",
  use_seedable_sampler = "dataloader_config", non_blocking = "dataloader_config",
  use_stateful_dataloader = "dataloader_config", logging_dir = "project_config",
  automatic_checkpoint_naming = "project_config", total_limit = "project_config",
  sync_with_dataloader = "gradient_accumulation_plugin", sync_each_batch = "gradient_accumulation_plugin",
  adjust_scheduler = "gradient_accumulation_plugin",
}
local homes = {
  dataloader_config = "DataLoaderConfiguration", project_config = "ProjectConfiguration",
  gradient_accumulation_plugin = "GradientAccumulationPlugin",
}

local function refuse_moved(given)
  if type(given) ~= "table" then return end
  for key, home in accel.pairs(moved) do
    if given[key] ~= nil then
      raise("Accelerator: %s stands in %s: say %s = accel.%s { %s = %s }", key, home, home, homes[home], key,
        check.shown(given[key]))
    end
  end
end

local function refuse_absent(o)
  for key, what in accel.pairs(absent) do
    local value = o[key]
    if value ~= nil and not (key == "dynamo_backend" and tostring(value):lower() == "no") then
      raise("Accelerator: %s: %s is not in this build", key, what)
    end
  end
end

local function instance(key, value, cls)
  if value ~= nil and not class.isinstance(value, cls) then
    local name = cls.__name:match "[^.]*$"
    raise("Accelerator: %s must be a %s, made by accel.%s { ... }, got %s", key, name, name, check.shown(value))
  end
  return value
end

--- Handler class -> the field that keeps it.
local fields = {
  AutocastKwargs = "autocast_handler", DistributedDataParallelKwargs = "ddp_handler",
  GradScalerKwargs = "scaler_handler", InitProcessGroupKwargs = "init_handler", ProfileKwargs = "profile_handler",
}

local function take_handlers(self, list)
  if list == nil then return end
  if type(list) ~= "table" or class.of(list) then
    raise("Accelerator: kwargs_handlers must be a list { handler, ... }, got %s", check.shown(list))
  end
  for i, handler in ipairs(list) do
    if class.isclass(handler) then
      raise("Accelerator: kwargs_handlers[%d] is a class; call it, with its settings: %s { ... }", i,
        handler.__name:match "[^.]*$")
    end
    if not class.isinstance(handler, handlers.KwargsHandler) then
      raise("Accelerator: kwargs_handlers[%d] must be a handler such as GradScalerKwargs, got %s", i, check.shown(handler))
    end
    local name = getmetatable(handler).__name:match "[^.]*$"
    local field = fields[name]
    if not field then raise("Accelerator: kwargs_handlers[%d]: %s configures nothing here", i, name) end
    if rawget(self, field) then raise("Accelerator: kwargs_handlers has two %s; give one", name) end
    rawset(self, field, handler)
  end
end

--- Micro-steps of an update: the environment's, a plugin's, or the number given.
local function accumulation_plugin(o)
  local steps, plugin = o.gradient_accumulation_steps, o.gradient_accumulation_plugin
  instance("gradient_accumulation_plugin", plugin, configuration.GradientAccumulationPlugin)
  if steps ~= nil then check.positive("Accelerator", "gradient_accumulation_steps", steps) end
  if plugin then
    if steps ~= nil and steps ~= 1 then
      raise "Accelerator: give gradient_accumulation_steps or gradient_accumulation_plugin, not both"
    end
    return plugin
  end
  local from_env = environment.get_int_from_env({ "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" }, -1)
  if from_env ~= -1 then
    steps = check.positive("Accelerator", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS", from_env)
  end
  return configuration.GradientAccumulationPlugin { num_steps = steps or 1 }
end

local function loader_config(o)
  local config = instance("dataloader_config", o.dataloader_config, configuration.DataLoaderConfiguration)
  if o.split_batches ~= nil then
    if type(o.split_batches) ~= "boolean" then
      raise("Accelerator: split_batches must be a boolean, got %s", check.shown(o.split_batches))
    end
    if config and config.split_batches ~= o.split_batches then
      raise "Accelerator: split_batches differs from dataloader_config.split_batches; give it there only"
    end
    config = config or configuration.DataLoaderConfiguration { split_batches = o.split_batches }
  end
  return config or configuration.DataLoaderConfiguration {}
end

local function project(o)
  local config = instance("project_config", o.project_config, configuration.ProjectConfiguration)
    or configuration.ProjectConfiguration {}
  if o.project_dir ~= nil then
    if type(o.project_dir) ~= "string" then
      raise("Accelerator: project_dir must be a string, got %s", check.shown(o.project_dir))
    end
    if config.project_dir == nil then config:set_directories(o.project_dir) end
  end
  return config
end

local function make_scaler(self)
  if self.mixed_precision ~= "fp16" then return nil end
  return require("accel.amp").GradScaler(self.scaler_handler and self.scaler_handler:to_kwargs() or {})
end

---@param opts? table
---  device_placement boolean = true: prepared models and batches go to the device
---  split_batches boolean: a loader's batch is that of all ranks together (default: dataloader_config's, false)
---  mixed_precision string: "no", "fp16" or "bf16" (default: the environment's, "no")
---  gradient_accumulation_steps integer: micro-batches of an update (default: the environment's, 1)
---  cpu boolean = false: accepted; there is no other device in this build
---  dataloader_config accel.accelerator.DataLoaderConfiguration: even_batches, dispatch_batches, ...
---  rng_types string[]: generators that all ranks share (default: { "generator" })
---  log_with string|table|list: trackers, by name or made
---  project_dir string: where runs write
---  project_config accel.accelerator.ProjectConfiguration: the same and more
---  gradient_accumulation_plugin accel.accelerator.GradientAccumulationPlugin: in the place of the number
---  step_scheduler_with_optimizer boolean = true: a prepared schedule advances with applied updates only
---  kwargs_handlers list: GradScalerKwargs, DistributedDataParallelKwargs, AutocastKwargs, ..., one of each at most
---  step_unit string = "update": a prepared schedule advances by one for every applied update, whatever the number of
---    ranks; "process": by num_processes, as Accelerate does
---  fsdp_plugin any: not in this build, as what follows
---  deepspeed_plugin any: sharding by DeepSpeed's options
---  deepspeed_plugins any: several of them
---  torch_tp_plugin any: tensor parallelism
---  megatron_lm_plugin any: Megatron-LM
---  parallelism_config any: a mesh of parallelisms
---  dynamo_backend string: compilation; "no" is taken
---  dynamo_plugin any: compilation
function Accelerator:init(opts)
  refuse_moved(opts)
  local o = options("Accelerator", opts, declared)
  refuse_absent(o)
  check.word("Accelerator", "step_unit", o.step_unit, { "update", "process" })
  take_handlers(self, o.kwargs_handlers)
  local plugin, config, project_configuration = accumulation_plugin(o), loader_config(o), project(o)
  rawset(self, "state", state.AcceleratorState {
    mixed_precision = o.mixed_precision, cpu = o.cpu, init_handler = self.init_handler, _from_accelerator = true,
  })
  rawset(self, "gradient_accumulation_plugin", plugin)
  rawset(self, "gradient_state", GradientState(plugin))
  rawset(self, "dataloader_config", config)
  rawset(self, "project_configuration", project_configuration)
  rawset(self, "device_placement", o.device_placement)
  rawset(self, "step_scheduler_with_optimizer", o.step_scheduler_with_optimizer)
  rawset(self, "step_unit", o.step_unit)
  rawset(self, "rng_types", random.check_types("Accelerator", o.rng_types or { "generator" }))
  rawset(self, "num_processes", self.state.num_processes)
  rawset(self, "mixed_precision", self.state.mixed_precision)
  rawset(self, "device", self.state.device)
  for _, list in ipairs { "_models", "_optimizers", "_schedulers", "_dataloaders" } do rawset(self, list, {}) end
  for _, map in ipairs { "_prepared", "_forwards" } do rawset(self, map, setmetatable({}, { __mode = "k" })) end
  rawset(self, "scaler", make_scaler(self))
  for _, name in ipairs(METHODS) do
    local start = require("accel.accelerator." .. name).start
    if start then start(self, o) end
  end
end

-- Attributes -------------------------------------------------------------------------------------

--- Read on access: what another object knows.
local attributes = {}

for _, key in ipairs { "process_index", "local_process_index", "is_main_process", "is_local_main_process",
  "is_last_process", "distributed_type", "use_distributed", "multi_device", "backend" } do
  attributes[key] = function(self) return self.state[key] end
end

for _, key in ipairs { "split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking",
  "use_stateful_dataloader" } do
  attributes[key] = function(self) return self.dataloader_config[key] end
end

function attributes:project_dir() return self.project_configuration.project_dir end
function attributes:logging_dir() return self.project_configuration.logging_dir end
function attributes:save_iteration() return self.project_configuration.iteration end
function attributes:sync_gradients() return self.gradient_state.sync_gradients end
function attributes:gradient_accumulation_steps() return self.gradient_state.num_steps end

--- Written through to where it is read.
local setters = {
  sync_gradients = function(self, value) self.gradient_state.sync_gradients = value and true or false end,
  gradient_accumulation_steps = function(self, value)
    value = check.positive("Accelerator", "gradient_accumulation_steps", value)
    self.gradient_accumulation_plugin.num_steps, self.gradient_state.num_steps = value, value
  end,
  even_batches = function(self, value)
    if type(value) ~= "boolean" then raise("even_batches must be a boolean, got %s", check.shown(value)) end
    self.dataloader_config.even_batches = value
  end,
}

for _, name in ipairs(METHODS) do
  for key, value in next, (require("accel.accelerator." .. name)) do
    if key == "attributes" then
      for attribute, compute in next, value do attributes[attribute] = compute end
    elseif type(value) == "function" and key ~= "start" then
      Accelerator[key] = value
    end
  end
end

--- Fields that may be absent.
local optional = { scaler = true }
for _, field in next, fields do optional[field] = true end

--- A name that is near to one that there is would be nil, and false in a condition; scripts' own names stay free.
local function refuse_misspelt(self, key)
  local names = {}
  for _, set in ipairs { Accelerator, attributes, self, optional } do
    for name in next, set do
      if type(name) == "string" and name:byte() ~= 95 then names[#names + 1] = name end
    end
  end
  local near = nearest(key, names)
  if near then raise("Accelerator: no '%s' here; did you mean '%s'?", key, near) end
end

function Accelerator.__index(self, key)
  local value = Accelerator[key]
  if value ~= nil then return value end
  local compute = attributes[key]
  if compute then return compute(self) end
  if not optional[key] and type(key) == "string" and #key > 5 and key:byte() ~= 95 then refuse_misspelt(self, key) end
  return nil
end

function Accelerator.__newindex(self, key, value)
  local set = setters[key]
  if set then return set(self, value) end
  if attributes[key] then raise("Accelerator: %s cannot be set", tostring(key)) end
  rawset(self, key, value)
end

--- A warning, once per Accelerator, on the main process.
function Accelerator:_warn(text)
  local said = rawget(self, "_said") or {}
  rawset(self, "_said", said)
  if said[text] or not self.is_main_process then return end
  said[text] = true
  io.stderr:write("accel: ", text, "\n")
end

function Accelerator.__tostring(self)
  return ("Accelerator(process %d of %d, device=%s, mixed_precision=%s, gradient_accumulation_steps=%d)"):format(
    self.process_index, self.num_processes, self.device, self.mixed_precision, self.gradient_accumulation_steps)
end

return Accelerator
