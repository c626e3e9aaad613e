--- From the words of FullyShardedDataParallelPlugin and DeepSpeedPlugin to the options of
--- nn.parallel.FullyShardedDataParallel: what is asked for and not there is an error that says so. Used by resolve.lua and
--- prepare.lua.
local class = require "accel.util.class"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
local offloading = require "accel.accelerator.offloading"
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

--- What of a plugin is not in accel yet.
local function check_deepspeed(p)
  local who, notes = "DeepSpeedPlugin", require("accel.deepspeed.keys").check(p.deepspeed_config)
  offloading.deepspeed(p)
  local stage = p.zero_stage
  if math.type(stage) ~= "integer" or stage < 0 or stage > 3 then
    raise("%s: zero_stage must be 0, 1, 2 or 3, got %s", who, check.shown(stage))
  end
  return notes
end

--- The DeepSpeed plugins of the constructor, or of the environment: checked, with the precision taken into their blocks. The first
--- Accelerator of a process says them for all that follow. They count once M.commit is called.
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
  local staged, notes = plugins.collect(given), {}
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

--- The plugins that M.take returned are those of the process.
function M.commit(deepspeed)
  if deepspeed then require("accel.deepspeed.plugins").commit(deepspeed.staged) end
end

--- Micro-batches of an update as DeepSpeed's plugin has them; nil where it leaves them to the constructor.
---@param values table
---@return integer?
function M.accumulation_steps(values)
  local p = values.deepspeed_plugin
  local steps = p and p.gradient_accumulation_steps
  return math.type(steps) == "integer" and steps or nil
end

local function wrap_policy(p, model)
  if type(p.auto_wrap_policy) == "function" then return { kind = "lambda", fn = p.auto_wrap_policy } end
  if p.auto_wrap_policy == "TRANSFORMER_BASED_WRAP" then
    local classes = p.transformer_cls_names_to_wrap or model._no_split_modules
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

--- Whether a plugin has an effect on one rank as well, where nothing is cut.
---@param accelerator accel.Accelerator
---@return boolean
function M.alone(accelerator)
  local p = accelerator.fsdp_plugin
  return p ~= nil and (p.activation_checkpointing or p.mixed_precision_policy ~= nil)
end

--- Whether a plugin puts parts of training on a tier, which is done on one rank as well.
---@param accelerator accel.Accelerator
---@return boolean
function M.offloads(accelerator)
  local fsdp, ds = accelerator.fsdp_plugin, accelerator.deepspeed_plugin
  return (fsdp and offloading.fsdp(fsdp) or ds and offloading.deepspeed(ds)) ~= nil
end

--- The options of nn.parallel.FullyShardedDataParallel for a model; nil where the Accelerator does not shard.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module
---@return table?
function M.options(accelerator, model)
  local fsdp, ds, ddp = accelerator.fsdp_plugin, accelerator.deepspeed_plugin, accelerator.ddp_handler
  if not fsdp and not ds then return nil end
  local o = { deterministic = ddp and ddp.deterministic, broadcast_buffers = ddp == nil or ddp.broadcast_buffers ~= false }
  if ds then
    for key, value in next, require("accel.deepspeed.units").options(ds, model) do o[key] = value end
    o.offload = offloading.deepspeed(ds)
    return o
  end
  for key, value in next, require("accel.accelerator.sharding_fsdp").options(fsdp, model, wrap_policy(fsdp, model)) do
    o[key] = value
  end
  o.device_id, o.offload = accelerator.device, offloading.fsdp(fsdp)
  return o
end

return M
