--- Converts the options of FullyShardedDataParallelPlugin and DeepSpeedPlugin to the options of
--- nn.parallel.FullyShardedDataParallel. An unsupported setting raises an error that names it. Used by resolve.lua and
--- prepare.lua.
local class = require "accel.util.class"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
local listed = require "accel.util.listed"
local offloading = require "accel.offload.from_plugin"
local raise = require "accel.util.raise"

local M = {}

local PLUGINS <const> = {
  fsdp_plugin = { "FullyShardedDataParallelPlugin", "accel.accelerator.plugins.fsdp", "ACCELERATE_USE_FSDP" },
  deepspeed_plugin = { "DeepSpeedPlugin", "accel.accelerator.plugins.deepspeed", "ACCELERATE_USE_DEEPSPEED" },
}

local function plugin_of(key, given)
  local name, home, variable = table.unpack(PLUGINS[key])
  if given == nil then
    if not environment.parse_flag_from_env(variable) then return nil end
    return require(home)[name] {}, variable
  end
  if not class.isinstance(given, require(home)[name]) then
    raise("Accelerator: %s must be a %s, made by accel.%s { ... }, got %s", key, name, name, check.shown(given))
  end
  return given, "argument"
end

--- Fields of a plugin that accel does not have yet.
local function check_deepspeed(p)
  local who, notes = "DeepSpeedPlugin", require("accel.deepspeed.keys").check(p.deepspeed_config, { steps_per_print = p._steps_per_print })
  offloading.deepspeed(p)
  local stage = p.zero_stage
  if math.type(stage) ~= "integer" or stage < 0 or stage > 3 then
    raise("%s: zero_stage must be 0, 1, 2 or 3, got %s", who, check.shown(stage))
  end
  return notes
end

--- The DeepSpeed plugins of the constructor, or of the environment: checked, with the precision taken into their blocks. The first
--- Accelerator of a process sets them for all later ones. They count once M.commit is called.
local function take_deepspeed(values, origins, o)
  local given = o.deepspeed_plugin
  if given ~= nil and o.deepspeed_plugins ~= nil then raise "Accelerator: give deepspeed_plugin or deepspeed_plugins, not both" end
  local plugins, origin = require "accel.deepspeed.plugins", "argument"
  if plugins.any() then
    if (given or o.deepspeed_plugins) ~= nil and given ~= plugins.active() then
      raise "Accelerator: a second one takes no deepspeed_plugin: give all of them to the first one, deepspeed_plugins = { name = plugin, ... }, \
and call accelerator.state:select_deepspeed_plugin(name)"
    end
    values.deepspeed_plugin, origins.deepspeed_plugin = plugins.active(), "first Accelerator"
    return
  end
  if o.deepspeed_plugins ~= nil then given = o.deepspeed_plugins else given, origin = plugin_of("deepspeed_plugin", given) end
  if given == nil then return end
  local staged, notes = plugins.collect(given, require("accel.accelerator.plugins.deepspeed").DeepSpeedPlugin), {}
  local precision = tostring(o.mixed_precision or environment.get "ACCELERATE_MIXED_PRECISION" or "no"):lower()
  for _, name in ipairs(staged.order) do
    local plugin = staged.plugins[name]
    for _, note in ipairs(check_deepspeed(plugin)) do notes[#notes + 1] = note end
    plugin:set_mixed_precision(precision)
    plugin:precision()
  end
  local first = staged.plugins[staged.order[1]]
  values.deepspeed_plugin, origins.deepspeed_plugin = first, origin
  return { staged = staged, notes = notes, mixed_precision = precision == "fp8" and precision or first:precision() }
end

--- Takes the plugins of the constructor, or those that the environment asks for, into the configuration.
---@param values table
---@param origins table
---@param o table options of the constructor
---@return {staged: table, notes: string[], mixed_precision: string}? deepspeed for M.commit, with the precision that it asks for
function M.take(values, origins, o)
  local plugin, origin = plugin_of("fsdp_plugin", o.fsdp_plugin)
  values.fsdp_plugin, origins.fsdp_plugin = plugin, plugin and origin or nil
  if plugin and (o.deepspeed_plugin ~= nil or o.deepspeed_plugins ~= nil) then
    raise "Accelerator: fsdp_plugin and deepspeed_plugin both shard the model; give one"
  end
  if values.fsdp_plugin then
    require "accel.shard.efficient_loading".set(values.fsdp_plugin.cpu_ram_efficient_loading)
  end
  local deepspeed = take_deepspeed(values, origins, o)
  if plugin and values.deepspeed_plugin then
    raise "Accelerator: fsdp_plugin and deepspeed_plugin both shard the model; give one"
  end
  return deepspeed
end

--- The plugins returned by M.take become the process's.
function M.commit(deepspeed)
  if deepspeed then require("accel.deepspeed.plugins").commit(deepspeed.staged) end
end

--- Micro-batches of an update from DeepSpeed's plugin. nil if it leaves them to the constructor.
---@param values table
---@return integer?
function M.accumulation_steps(values)
  local p = values.deepspeed_plugin
  local steps = p and p.gradient_accumulation_steps
  return math.type(steps) == "integer" and steps or nil
end

--- The classes of a model's blocks, as declared by the model or, under adapters, by its base.
local function blocks_of(model)
  local base = model._no_split_modules == nil and model.get_base_model and model:get_base_model()
  return (base or model)._no_split_modules
end

local function wrap_policy(p, model)
  if type(p.auto_wrap_policy) == "function" then return { kind = "lambda", fn = p.auto_wrap_policy } end
  if p.auto_wrap_policy == "TRANSFORMER_BASED_WRAP" then
    local classes = p.transformer_cls_names_to_wrap or blocks_of(model)
    if not classes or #classes == 0 then
      raise("FullyShardedDataParallelPlugin: TRANSFORMER_BASED_WRAP needs transformer_cls_names_to_wrap = { \"Block\" }, since"
        .. " the model does not say which of its classes are blocks")
    end
    return { kind = "transformer", classes = classes }
  elseif p.auto_wrap_policy == "SIZE_BASED_WRAP" and (p.min_num_params or 0) > 0 then
    return { kind = "size", min_num_params = p.min_num_params }
  end
  return { kind = "none" }
end

--- Whether a plugin has an effect on one rank as well, which shards nothing.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@return boolean
function M.alone(accelerator, model)
  local p, ds = accelerator.fsdp_plugin, accelerator.deepspeed_plugin
  if ds and ds.zero_stage >= 1 and require "accel.shard.upcast".any(model) then return true end -- f32 masters
  return p ~= nil and (p.activation_checkpointing or p.mixed_precision_policy ~= nil)
end

--- Whether a plugin puts parts of training on a tier, which is done on one rank as well.
---@param accelerator accel.Accelerator
---@return boolean
function M.offloads(accelerator)
  local fsdp, ds = accelerator.fsdp_plugin, accelerator.deepspeed_plugin
  return (fsdp and offloading.fsdp(fsdp) or ds and offloading.deepspeed(ds)) ~= nil
end

--- A plugin that does not fit this model raises on one rank, which divides nothing, as on several.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@return table[]? units that several ranks would divide
function M.check(accelerator, model)
  local o = M.options(accelerator, model, true)
  if not o then return nil end
  local policies = require "accel.shard.policy"
  local units = o.fsdp_version == 2 and policies.per_parameter or policies.flat
  return (units(model, o.auto_wrap_policy, { modules = o.ignored_modules }))
end

--- Says which parameters of ignored modules learn: they drift apart unless the script averages their gradients.
local function warn_of_ignored(accelerator, model, modules)
  local ignored, names = {}, {}
  for _, module in ipairs(modules) do
    for _, p in ipairs(module:parameters()) do ignored[p] = p.requires_grad end
  end
  for name, p in pairs(next(ignored) and model:named_parameters() or {}) do names[#names + 1] = ignored[p] and name or nil end
  if #names > 0 then
    accelerator:_warn(("FullyShardedDataParallelPlugin: ignored_modules: ranks do not average the gradients of %s, and checkpoints hold the"
      .. " values of rank 0; freeze these parameters, or average their gradients before each step"):format(listed(names, 8)))
  end
end

--- The options of nn.parallel.FullyShardedDataParallel for a model. nil if the Accelerator does not shard.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@param only_check? boolean the model stays as it is
---@return table?
function M.options(accelerator, model, only_check)
  local fsdp, ds, ddp = accelerator.fsdp_plugin, accelerator.deepspeed_plugin, accelerator.ddp_handler
  if not fsdp and not ds then return nil end
  local o = { deterministic = ddp and ddp.deterministic, broadcast_buffers = ddp == nil or ddp.broadcast_buffers ~= false,
    micro_batches = accelerator.micro_batches }
  if ds then
    for key, value in next, require("accel.deepspeed.units").options(ds, model) do o[key] = value end
    o.offload = offloading.deepspeed(ds)
    return o
  end
  local own, others = require "accel.accelerator.sharding_fsdp", accelerator._prepared:all_models()
  for key, value in next, own.options(fsdp, model, wrap_policy(fsdp, model), others, only_check) do
    o[key] = value
  end
  if o.ignored_modules and not only_check and accelerator.num_processes > 1 then warn_of_ignored(accelerator, model, o.ignored_modules) end
  o.device_id, o.offload = accelerator.device, offloading.fsdp(fsdp)
  return o
end

return M
