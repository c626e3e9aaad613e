--- resolve(opts): from the table of accel.Accelerator, the environment and the defaults to one configuration, of which
--- every setting knows its origin. Everything that may be wrong with the table is found here, before anything is made.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configuration = require "accel.accelerator.configuration"
local environment = require "accel.accelerator.environment"
local handlers = require "accel.accelerator.handlers"
local low_memory = require "accel.accelerator.low_memory"
local options = require "accel.util.options"
local parallelism = require "accel.accelerator.parallelism"
local raise = require "accel.util.raise"
local random = require "accel.accelerator.random"
local recipes = require "accel.accelerator.recipes"
local sharding = require "accel.accelerator.sharding"
local state = require "accel.accelerator.state"

local none <const> = options.none
local WHO <const> = "Accelerator"

local declared = {
  device_placement = true, split_batches = none, mixed_precision = none, gradient_accumulation_steps = none,
  micro_batches = none, cpu = false, dataloader_config = none, rng_types = none, log_with = none, project_dir = none,
  project_config = none, gradient_accumulation_plugin = none, step_scheduler_with_optimizer = true,
  kwargs_handlers = none, step_unit = "update",
  deepspeed_plugin = none, deepspeed_plugins = none, fsdp_plugin = none, torch_tp_plugin = none,
  megatron_lm_plugin = none, dynamo_backend = none, dynamo_plugin = none, parallelism_config = none, memory = "normal",
}

--- Settings that stand in another table of the constructor, and the class of that.
local moved = {
  even_batches = "dataloader_config", dispatch_batches = "dataloader_config", data_seed = "dataloader_config",
  use_seedable_sampler = "dataloader_config", non_blocking = "dataloader_config",
  use_stateful_dataloader = "dataloader_config", logging_dir = "project_config",
  automatic_checkpoint_naming = "project_config", total_limit = "project_config", on_existing = "project_config",
  sync_with_dataloader = "gradient_accumulation_plugin", sync_each_batch = "gradient_accumulation_plugin",
  adjust_scheduler = "gradient_accumulation_plugin",
}
local homes = {
  dataloader_config = configuration.DataLoaderConfiguration, project_config = configuration.ProjectConfiguration,
  gradient_accumulation_plugin = configuration.GradientAccumulationPlugin,
}

local function short(cls) return cls.__name:match "[^.]*$" end

local function refuse_moved(given)
  if type(given) ~= "table" then return end
  for key, home in accel.pairs(moved) do
    if given[key] ~= nil then
      raise("%s: %s stands in %s: say %s = accel.%s { %s = %s }", WHO, key, home, home, short(homes[home]), key,
        check.shown(given[key]))
    end
  end
end

--- Options of features that accel does not have yet: the reasons are in accel.util.absent.
local absent <const> = { "torch_tp_plugin" }

local function refuse_absent(o)
  for _, key in ipairs(absent) do
    if o[key] ~= nil then raise("%s: %s", WHO, require("accel.util.absent").explain(key)) end
  end
end

--- Compilation of prepared models: a plugin, the name of a backend, or the environment's setting.
local function dynamo(values, origins, o)
  local Plugin = require "accel.accelerator.plugins.dynamo".TorchDynamoPlugin
  if o.dynamo_plugin ~= nil and o.dynamo_backend ~= nil then raise("%s: give dynamo_plugin or dynamo_backend, not both", WHO) end
  local plugin, origin = o.dynamo_plugin, "dynamo_plugin"
  if plugin ~= nil and not class.isinstance(plugin, Plugin) then
    raise("%s: dynamo_plugin must be a TorchDynamoPlugin, made by accel.TorchDynamoPlugin { ... }, got %s", WHO, check.shown(plugin))
  elseif o.dynamo_backend ~= nil then
    plugin, origin = Plugin { backend = o.dynamo_backend }, "dynamo_backend"
  elseif not plugin then
    plugin, origin = Plugin {}, environment.get "ACCELERATE_DYNAMO_BACKEND" and "ACCELERATE_DYNAMO_BACKEND" or "default"
  end
  if plugin.backend ~= "NO" then values.dynamo_plugin, origins.dynamo_plugin = plugin, origin end
end

local function instance(key, value)
  local cls = homes[key]
  if value ~= nil and not class.isinstance(value, cls) then
    raise("%s: %s must be a %s, made by accel.%s { ... }, got %s", WHO, key, short(cls), short(cls), check.shown(value))
  end
  return value
end

--- The settings of a record, as settings of the configuration. given: the record that the script made, nil for defaults.
local function take(values, origins, record, given, origin)
  local own = given and given:to_kwargs() or {}
  for key in next, class.of(record).defaults do
    values[key], origins[key] = rawget(record, key), own[key] ~= nil and origin or "default"
  end
end

--- Handler class -> the setting that holds it.
local fields = {
  AutocastKwargs = "autocast_handler", DistributedDataParallelKwargs = "ddp_handler",
  GradScalerKwargs = "scaler_handler", InitProcessGroupKwargs = "init_handler", ProfileKwargs = "profile_handler",
  TERecipeKwargs = "te_recipe_handler", AORecipeKwargs = "ao_recipe_handler", MSAMPRecipeKwargs = "msamp_recipe_handler",
}

local function take_handlers(values, origins, list)
  for _, field in next, fields do origins[field] = "default" end
  if list == nil then return end
  if type(list) ~= "table" or class.of(list) then
    raise("%s: kwargs_handlers must be a list { handler, ... }, got %s", WHO, check.shown(list))
  end
  for i, handler in ipairs(list) do
    if class.isclass(handler) then
      raise("%s: kwargs_handlers[%d] is a class; call it, with its settings: %s { ... }", WHO, i, short(handler))
    end
    if not class.isinstance(handler, handlers.KwargsHandler) then
      raise("%s: kwargs_handlers[%d] must be a handler such as GradScalerKwargs, got %s", WHO, i, check.shown(handler))
    end
    local name = short(class.of(handler))
    local field = fields[name]
    if not field then raise("%s: kwargs_handlers[%d]: %s configures nothing here", WHO, i, name) end
    if values[field] then raise("%s: kwargs_handlers has two %s; give one", WHO, name) end
    values[field], origins[field] = handler, "kwargs_handlers"
  end
end

local STEPS <const> = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"

--- Micro-steps of an update: the plugin's, the environment's, or the number given. The record is the Accelerator's own:
--- the script's stays as it is.
local function accumulation(values, origins, o)
  local plugin = instance("gradient_accumulation_plugin", o.gradient_accumulation_plugin)
  local steps, origin, asked = o.gradient_accumulation_steps, "argument", sharding.accumulation_steps(values)
  if asked and (steps ~= nil and steps ~= asked or plugin and plugin.num_steps ~= asked) then
    raise("%s: deepspeed_plugin sets gradient_accumulation_steps = %d, the constructor %d", WHO, asked,
      steps or plugin.num_steps)
  elseif asked and not plugin then
    steps, origin = asked, "deepspeed_plugin"
  end
  if steps ~= nil then check.positive(WHO, "gradient_accumulation_steps", steps) end
  if plugin then
    if steps ~= nil and steps ~= 1 then
      raise("%s: give gradient_accumulation_steps or gradient_accumulation_plugin, not both", WHO)
    end
    steps, origin = plugin.num_steps, "gradient_accumulation_plugin"
  else
    local from_env = environment.get_int_from_env({ STEPS }, -1)
    if from_env ~= -1 then steps, origin = check.positive(WHO, STEPS, from_env), STEPS end
    if steps == nil then steps, origin = 1, "default" end
  end
  local settings = plugin and plugin:to_kwargs() or {}
  settings.num_steps = steps
  local own = configuration.GradientAccumulationPlugin(settings)
  take(values, origins, own, plugin, "gradient_accumulation_plugin")
  values.gradient_accumulation_steps, origins.gradient_accumulation_steps = steps, origin
  values.num_steps, origins.num_steps = nil, nil
  return own
end

--- In an elastic job the number of micro-batches of an update stays what it is at the start, and so does the order of their sums. nil in
--- others, and for sharding plugins, which an elastic job refuses.
local function elastic_micro_batches(values, origins, parts)
  if not require "accel.elastic.core".active() or values.fsdp_plugin or values.deepspeed_plugin or values.parallelism_config
    or values.megatron_lm_plugin then return nil end
  if not values.ddp_handler then
    values.ddp_handler = require "accel.accelerator.handlers".DistributedDataParallelKwargs {}
  end
  values.ddp_handler.deterministic = "world"
  local m = values.gradient_accumulation_steps * parts.state.num_processes
  parts.elastic_note = ("Accelerator: each update of this elastic job has %d micro-batches (gradient_accumulation_steps x ranks), also after"
    .. ' ranks are lost; to silence this, set micro_batches = %d and DistributedDataParallelKwargs { deterministic = "world" }'):format(m, m)
  values.gradient_accumulation_steps, origins.gradient_accumulation_steps = 1, "default"
  return m
end

--- A fixed number of micro-batches of an update, over all ranks: the micro-steps of this rank are its share.
local function fixed_micro_batches(values, origins, o, parts)
  local m = o.micro_batches
  if m == nil then m = elastic_micro_batches(values, origins, parts) end
  if m == nil then return end
  check.positive(WHO, "micro_batches", m)
  if not values.ddp_handler or values.ddp_handler.deterministic ~= "world" then
    raise('%s: micro_batches fixes the order in which gradients are added up, for DistributedDataParallelKwargs { deterministic = "world" }'
      .. " only; set both, or use gradient_accumulation_steps", WHO)
  end
  if values.parallelism_config or values.megatron_lm_plugin then
    raise("%s: micro_batches does not support parallelism_config and megatron_lm_plugin yet; leave it out", WHO)
  end
  if origins.gradient_accumulation_steps ~= "default" and values.gradient_accumulation_steps ~= 1 then
    raise("%s: give micro_batches, of all ranks, or gradient_accumulation_steps, of each rank, not both", WHO)
  end
  local ranks = parts.state.num_processes
  if m < ranks then raise("%s: micro_batches = %d is below the number of ranks, %d; every rank needs one", WHO, m, ranks) end
  local _, count = require "accel.dist.quota".of(m, ranks, parts.state.process_index)
  parts.gradient_accumulation_plugin.num_steps = count
  values.gradient_accumulation_steps, origins.gradient_accumulation_steps = count, "micro_batches"
  values.micro_batches, origins.micro_batches = m, o.micro_batches and "argument" or "elastic job"
end

local function loaders(values, origins, o)
  local given, origin = instance("dataloader_config", o.dataloader_config), "dataloader_config"
  local settings = given and given:to_kwargs() or {}
  if o.split_batches ~= nil then
    if type(o.split_batches) ~= "boolean" then
      raise("%s: split_batches must be a boolean, got %s", WHO, check.shown(o.split_batches))
    end
    if given and given.split_batches ~= o.split_batches then
      raise("%s: split_batches differs from dataloader_config.split_batches; give it there only", WHO)
    end
    settings.split_batches = o.split_batches
    if not given then origin = "argument" end
  end
  local own = configuration.DataLoaderConfiguration(settings)
  take(values, origins, own, given or own, origin)
  return own
end

--- The project's record is the script's own if given, so that the checkpoint counter is shared.
local function project(values, origins, o)
  local given = instance("project_config", o.project_config)
  local own = given or configuration.ProjectConfiguration {}
  local by_argument, logging_dir = false, own.logging_dir
  if o.project_dir ~= nil then
    if type(o.project_dir) ~= "string" then
      raise("%s: project_dir must be a string, got %s", WHO, check.shown(o.project_dir))
    end
    if own.project_dir == nil then
      own:set_directories(o.project_dir)
      by_argument = true
    end
  end
  take(values, origins, own, own, "project_config")
  if by_argument then
    origins.project_dir = "argument"
    if logging_dir == nil then origins.logging_dir = "argument" end
  end
  return own
end

--- A line for every plugin with settings that have no effect.
local function idle_fields(values, deepspeed)
  local plugins = {}
  for _, key in ipairs { "fsdp_plugin", "megatron_lm_plugin", "parallelism_config", "dynamo_plugin", "ddp_handler", "autocast_handler" } do
    plugins[#plugins + 1] = values[key]
  end
  for _, name in ipairs(deepspeed and deepspeed.staged.order or {}) do plugins[#plugins + 1] = deepspeed.staged.plugins[name] end
  return require "accel.accelerator.plugins.idle".lines(plugins)
end

---@param opts? table
---@return {values: table<string, any>, origins: table<string, string>, log_with: any,
---  gradient_accumulation_plugin: table, dataloader_config: table, project_configuration: table, state: table}
return function(opts)
  refuse_moved(opts)
  local o, values, origins = options(WHO, opts, declared), {}, {}
  refuse_absent(o)
  check.word(WHO, "step_unit", o.step_unit, { "update", "process" })
  check.word(WHO, "memory", o.memory, low_memory.WORDS)
  take_handlers(values, origins, o.kwargs_handlers)
  dynamo(values, origins, o)
  local deepspeed = sharding.take(values, origins, o)
  parallelism.take(values, origins, o)
  local parts = {
    gradient_accumulation_plugin = accumulation(values, origins, o), dataloader_config = loaders(values, origins, o),
    project_configuration = project(values, origins, o), log_with = o.log_with, values = values, origins = origins,
  }
  for _, key in ipairs { "device_placement", "step_scheduler_with_optimizer", "step_unit", "memory" } do
    values[key], origins[key] = o[key], opts and opts[key] ~= nil and "argument" or "default"
  end
  values.rng_types = random.check_types(WHO, o.rng_types or { "generator" })
  origins.rng_types = o.rng_types and "argument" or "default"
  parts.state = state.AcceleratorState {
    mixed_precision = deepspeed and deepspeed.mixed_precision or not values.deepspeed_plugin and o.mixed_precision or nil,
    cpu = o.cpu, init_handler = values.init_handler, _from_accelerator = true,
  }
  low_memory.check(values, parts.state.mixed_precision)
  fixed_micro_batches(values, origins, o, parts)
  local recipe = recipes.take(values, origins, parts.state.mixed_precision == "fp8" or deepspeed and deepspeed.mixed_precision == "fp8")
  sharding.commit(deepspeed)
  parts.notes = deepspeed and deepspeed.notes
  parts.idle = idle_fields(values, deepspeed)
  parts.idle[#parts.idle + 1] = recipe
  parts.idle[#parts.idle + 1] = parts.elastic_note
  local ds = values.deepspeed_plugin
  if ds and ds.enable_msamp and parts.state.mixed_precision == "no" then
    table.insert(parts.idle, "DeepSpeedPlugin: enable_msamp has no effect with mixed_precision = \"no\"; set \"bf16\" or \"fp8\"")
  end
  for _, key in ipairs { "num_processes", "mixed_precision", "device" } do
    values[key], origins[key] = parts.state[key], state.origin(key)
  end
  return parts
end
