--- Converts a DeepSpeed configuration to the options of nn.parallel.FullyShardedDataParallel: the modules that are units,
--- the sharding of their parameters, and the number of bits in transfers. Used by accelerator/sharding.lua.
local ModuleList = require "accel.nn.module_list"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

--- Classes of the modules that a list holds, over and over: the blocks of a model. DeepSpeed shards every parameter by itself.
--- Here a unit is a block, which limits the memory of gathered parameters.
local function blocks(model)
  local found, seen = {}, {}
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
  return found
end

--- Classes whose modules are gathered whole: mixtures of experts, of which different ranks use different parts.
---@param plugin accel.accelerator.DeepSpeedPlugin
---@param model accel.nn.Module
---@return table<table, true>
function M.leaves(plugin, model)
  local names, set = plugin:moe_leaf_classes(), {}
  for _, name in ipairs(names) do
    local found
    for _, module in ipairs(model:modules()) do
      local cls = class.of(module)
      if cls.__name:match "[^.]*$" == name then found = cls end
    end
    if not found then raise("DeepSpeedPlugin: the model has no module of the class '%s' (transformer_moe_cls_names, leaf_module)", name) end
    set[found] = true
  end
  return set
end

--- Modules that lie below one of the classes, or nothing.
local function below(model, leaves)
  local inner = {}
  for _, module in ipairs(model:modules()) do
    if leaves[class.of(module)] then
      for _, m in ipairs(module:modules()) do
        if m ~= module then inner[m] = true end
      end
    end
  end
  return inner
end

--- The wrap policy: blocks, and leaf modules inside or outside them. Nothing below a leaf module is wrapped.
function M.policy(plugin, model)
  local leaves = M.leaves(plugin, model)
  local inner, wanted = below(model, leaves), {}
  for _, cls in ipairs(blocks(model)) do wanted[cls] = true end
  for cls in next, leaves do wanted[cls] = true end
  if next(wanted) == nil then return { kind = "none" } end
  return { kind = "lambda", fn = function(module) return wanted[class.of(module)] ~= nil and not inner[module] end }
end

local function number(plugin, key, default)
  local value = plugin:get_value("zero_optimization." .. key)
  if value == nil or value == "auto" then return default end
  if math.type(value) == "float" and value == math.floor(value) and value < 2 ^ 62 then value = math.tointeger(value) end
  if math.type(value) ~= "integer" or value < 0 then
    raise("DeepSpeed's configuration: zero_optimization.%s must be a whole number, got %s", key, tostring(value))
  end
  return value
end

--- The configuration's settings for sharding and transfers of units: the option `zero` of FullyShardedDataParallel.
---   bucket            elements of a unit's part that is reduced at a time. A larger parameter is reduced alone
---   persist           stage 3: parameters of fewer elements stay whole on every rank
---   persist_total     and so many elements of these at most
---   overlap           reductions overlap with the backward
---   quantized_weights, quantized_gradients    ZeRO++: parameters are gathered in 8 bits, gradients exchanged in 4
---   secondary         ZeRO++: ranks of a group that hold all parameters once, for the backward
---   prefetch          elements of a backward's next units that are gathered ahead. 0: none, nil: one unit
function M.zero(plugin)
  local stage = plugin.zero_stage
  local overlap = plugin:get_value "zero_optimization.overlap_comm"
  local zero = {
    bucket = number(plugin, "reduce_bucket_size", 500000000), overlap = overlap ~= false,
    quantized_gradients = plugin:get_value "zero_optimization.zero_quantized_gradients" == true,
  }
  if stage == 3 then
    zero.persist = number(plugin, "stage3_param_persistence_threshold", 100000)
    zero.persist_total = number(plugin, "stage3_model_persistence_threshold", math.maxinteger)
    zero.prefetch = number(plugin, "stage3_prefetch_bucket_size", nil)
    zero.quantized_weights = plugin:get_value "zero_optimization.zero_quantized_weights" == true
    zero.secondary = number(plugin, "zero_hpz_partition_size", 1)
  end
  return zero
end

--- Keys of stages that the configuration does not have are named.
local function check_stage(plugin)
  local stage = plugin.zero_stage
  for _, key in ipairs { "zero_quantized_weights", "zero_hpz_partition_size" } do
    local value = plugin:get_value("zero_optimization." .. key)
    if stage ~= 3 and value and value ~= 1 then
      raise("DeepSpeed's configuration: zero_optimization.%s is of stage 3, the stage is %s", key, tostring(stage))
    end
  end
  if stage == 0 and plugin:get_value "zero_optimization.zero_quantized_gradients" then
    raise "DeepSpeed's configuration: zero_optimization.zero_quantized_gradients is of stages 1 to 3, the stage is 0"
  end
end

--- Options of FullyShardedDataParallel for a model under a plugin.
---@param plugin accel.accelerator.DeepSpeedPlugin
---@param model accel.nn.Module
---@return table
function M.options(plugin, model)
  check_stage(plugin)
  local stage = plugin.zero_stage
  -- DeepSpeed's stages 1 to 3 step on f32 in every precision
  return { zero_stage = stage, auto_wrap_policy = M.policy(plugin, model), zero = M.zero(plugin), master_weights = stage >= 1 }
end

return M
