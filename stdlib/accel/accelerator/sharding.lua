--- From the words of FullyShardedDataParallelPlugin and DeepSpeedPlugin to the options of
--- nn.parallel.FullyShardedDataParallel: what is asked for and not there is an error that says so. Used by resolve.lua and
--- prepare.lua.
local class = require "accel.util.class"
local check = require "accel.util.check"
local environment = require "accel.accelerator.environment"
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
local function refuse(who, field, advice) raise("%s: %s is not in accel yet; %s", who, field, advice) end

local function check_fsdp(p)
  local who = "FullyShardedDataParallelPlugin"
  if p.cpu_offload then refuse(who, "cpu_offload", "parameters stay on the device") end
  if p.activation_checkpointing_offload then
    refuse(who, "activation_checkpointing_offload", "activation_checkpointing computes them again")
  end
end

local function check_deepspeed(p)
  local who, config = "DeepSpeedPlugin", p.deepspeed_config
  for _, key in ipairs { "offload_optimizer_device", "offload_param_device" } do
    if p[key] ~= nil and p[key] ~= "none" then refuse(who, key, 'only "none" is there') end
  end
  for _, key in ipairs { "optimizer", "scheduler" } do
    if config[key] ~= nil then
      refuse(who, ("'%s' in the configuration"):format(key), "make it in the script and give it to prepare")
    end
  end
  if p.enable_msamp then refuse(who, "enable_msamp", 'there are mixed_precision = "bf16" and "fp16"') end
end

--- Takes the plugins of the constructor, or those that the environment asks for, into the configuration.
---@param values table
---@param origins table
---@param o table options of the constructor
function M.take(values, origins, o)
  for _, key in ipairs { "fsdp_plugin", "deepspeed_plugin" } do
    local plugin, origin = plugin_of(key, o[key])
    values[key], origins[key] = plugin, plugin and origin or nil
  end
  if values.fsdp_plugin and values.deepspeed_plugin then
    raise "Accelerator: fsdp_plugin and deepspeed_plugin both shard the model; give one"
  end
  if values.fsdp_plugin then
    check_fsdp(values.fsdp_plugin)
    require "accel.shard.efficient_loading".set(values.fsdp_plugin.cpu_ram_efficient_loading)
  end
  if values.deepspeed_plugin then check_deepspeed(values.deepspeed_plugin) end
end

--- Micro-batches of an update as DeepSpeed's plugin has them; nil where it leaves them to the constructor.
---@param values table
---@return integer?
function M.accumulation_steps(values)
  local p = values.deepspeed_plugin
  local steps = p and p.gradient_accumulation_steps
  return math.type(steps) == "integer" and steps or nil
end

--- The norm that DeepSpeed's plugin clips to before every step; nil for none.
---@param accelerator accel.Accelerator
---@return number?
function M.clipping(accelerator)
  local p = accelerator.deepspeed_plugin
  local value = p and p.gradient_clipping
  return type(value) == "number" and value > 0 and value or nil
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

--- Classes of the modules that a list holds, over and over: the blocks of a model whose stage 3 comes without a wrap policy.
local function blocks(model)
  local ModuleList, found, seen = require "accel.nn.module_list", {}, {}
  for _, module in ipairs(model:modules()) do
    if class.isinstance(module, ModuleList) then
      for _, child in ipairs(module:children()) do
        local cls = class.of(child)
        if not seen[cls] and #child:parameters() > 0 and not class.isinstance(child, ModuleList) then
          seen[cls] = true
          found[#found + 1] = cls
        end
      end
    end
  end
  return #found > 0 and { kind = "transformer", classes = found } or { kind = "none" }
end

--- Whether a plugin has an effect on one rank as well, where nothing is cut.
---@param accelerator accel.Accelerator
---@return boolean
function M.alone(accelerator)
  local p = accelerator.fsdp_plugin
  return p ~= nil and (p.activation_checkpointing or p.mixed_precision_policy ~= nil)
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
    o.zero_stage = ds.zero_stage
    -- DeepSpeed cuts every parameter by itself; here a unit is a block, which keeps what is gathered small
    o.auto_wrap_policy = blocks(model)
    return o
  end
  for key, value in next, require("accel.accelerator.sharding_fsdp").options(fsdp, model, wrap_policy(fsdp, model)) do
    o[key] = value
  end
  o.device_id = accelerator.device
  return o
end

return M
