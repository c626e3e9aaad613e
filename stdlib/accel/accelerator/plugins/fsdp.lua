--- FullyShardedDataParallelPlugin: how a model is sharded over ranks, versions 1 and 2.
local base = require "accel.accelerator.plugins.base"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local scalar = require "accel.config.scalar"

local M = {}

local none <const> = options.none
local WHO <const> = "FullyShardedDataParallelPlugin"

local STRATEGIES <const> = { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" }
local STATE_DICTS <const> = { "FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT" }
local PREFETCHES <const> = { "BACKWARD_PRE", "BACKWARD_POST" }
local POLICIES <const> = { "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP" }

--- One of a list by name, in any case, or by its number from 1.
local function pick(field, value, list, also)
  local number = math.tointeger(tonumber(value))
  if number and list[number] then return list[number] end
  local word = tostring(value):upper()
  for _, name in ipairs(list) do
    if name == word then return name end
  end
  if also and word == also then return also end
  raise("%s: %s is not a valid %s; expected one of %s", WHO, check.shown(value), field, table.concat(list, ", "))
end

--- fsdp_version 1 shards flat parameters, 2 each parameter by itself. Missing values come from the environment (FSDP_...), which
--- a launch with fsdp_config sets. Fields that one version does not have are nil in it.
--- example: accel.accelerator.FullyShardedDataParallelPlugin { fsdp_version = 2 }.state_dict_type --> "SHARDED_STATE_DICT"
---@class accel.accelerator.FullyShardedDataParallelPlugin : accel.accelerator.Plugin
local Fsdp = base.extend(WHO, {
  { "fsdp_version", none, "FSDP_VERSION", "int" },
  { "sharding_strategy", none },
  { "reshard_after_forward", none },
  { "cpu_offload", none, "FSDP_OFFLOAD_PARAMS", "bool" },
  { "backward_prefetch", none },
  { "mixed_precision_policy", none },
  { "auto_wrap_policy", none },
  { "ignored_modules", none, "FSDP_IGNORED_MODULES", "text" },
  { "state_dict_type", none },
  { "state_dict_config", none },
  { "optim_state_dict_config", none },
  { "limit_all_gathers", true },
  { "use_orig_params", none },
  { "param_init_fn", none },
  { "sync_module_states", none },
  { "forward_prefetch", none },
  { "activation_checkpointing", none },
  { "activation_checkpointing_offload", none },
  { "cpu_ram_efficient_loading", none },
  { "transformer_cls_names_to_wrap", none },
  { "min_num_params", none },
})
M.FullyShardedDataParallelPlugin = Fsdp

local function from(field, name, kind, default)
  if field ~= nil then return field end
  return base.read(WHO, "FSDP_" .. name, kind, default)
end

local function strategy(self)
  if self.fsdp_version == 2 then
    local value = from(self.reshard_after_forward, "RESHARD_AFTER_FORWARD", "bool", true)
    if type(value) ~= "boolean" then
      raise("%s: reshard_after_forward must be a boolean in version 2, got %s", WHO, check.shown(value))
    end
    self.sharding_strategy, self.reshard_after_forward = nil, value
    return
  end
  if type(self.reshard_after_forward) == "boolean" then
    raise("%s: reshard_after_forward is a boolean only in version 2; use sharding_strategy", WHO)
  end
  local given = self.sharding_strategy or self.reshard_after_forward
  self.sharding_strategy = pick("ShardingStrategy", from(given, "SHARDING_STRATEGY", "text", "FULL_SHARD"), STRATEGIES)
  self.reshard_after_forward = nil
end

local function prefetch(self)
  local value = from(self.backward_prefetch, "BACKWARD_PREFETCH", "text")
  if value == nil or tostring(value):upper() == "NO_PREFETCH" then self.backward_prefetch = nil
  else
    value = pick("BackwardPrefetch", value, PREFETCHES, "NO_PREFETCH")
    self.backward_prefetch = self.fsdp_version == 1 and value or nil
  end
end

local function state_dict(self)
  local default = self.fsdp_version == 1 and "FULL_STATE_DICT" or "SHARDED_STATE_DICT"
  local kind = pick("StateDictType", from(self.state_dict_type, "STATE_DICT_TYPE", "text", default), STATE_DICTS)
  if kind == "LOCAL_STATE_DICT" and self.fsdp_version == 2 then
    raise("%s: state_dict_type LOCAL_STATE_DICT needs version 1; use FULL_STATE_DICT or SHARDED_STATE_DICT", WHO)
  end
  self:set_state_dict_type(kind)
end

--- Selects the format of checkpoints, and thereby the fields of their configurations.
--- example: local p = accel.accelerator.FullyShardedDataParallelPlugin {} p:set_state_dict_type "SHARDED_STATE_DICT" return
---   p.state_dict_config.offload_to_cpu --> true
---@param kind string
function Fsdp:set_state_dict_type(kind)
  self.state_dict_type = pick("StateDictType", kind, STATE_DICTS)
  if self.state_dict_type == "FULL_STATE_DICT" then
    self.state_dict_config = self.state_dict_config or { offload_to_cpu = true, rank0_only = true }
    self.optim_state_dict_config = self.optim_state_dict_config or { offload_to_cpu = true, rank0_only = true }
  elseif self.state_dict_type == "SHARDED_STATE_DICT" then
    self.state_dict_config = self.state_dict_config or { offload_to_cpu = true, _use_dtensor = false }
    self.optim_state_dict_config = self.optim_state_dict_config or { offload_to_cpu = true, _use_dtensor = false }
  end
end

--- Warns of fields that a script has set and that have no effect with the others.
local function unused(self, names, why)
  for _, name in ipairs(names) do
    if self[name] ~= nil then no_effect.once(WHO, name, why) end
  end
end

local function wrap_policy(self)
  local value = from(self.auto_wrap_policy, "AUTO_WRAP_POLICY", "text", "NO_WRAP")
  local word = type(value) == "function" and "FUNCTION" or tostring(value):upper()
  if word ~= "SIZE_BASED_WRAP" then unused(self, { "min_num_params" }, "without auto_wrap_policy = 'SIZE_BASED_WRAP'; leave it out") end
  if word ~= "TRANSFORMER_BASED_WRAP" then
    unused(self, { "transformer_cls_names_to_wrap" }, "without auto_wrap_policy = 'TRANSFORMER_BASED_WRAP'; leave it out")
  end
  if word == "FUNCTION" then return end
  if word ~= POLICIES[1] and word ~= POLICIES[2] and word ~= POLICIES[3] then
    raise("%s: invalid auto wrap policy %s; expected one of %s", WHO, tostring(value), table.concat(POLICIES, ", "))
  end
  self.auto_wrap_policy = word ~= "NO_WRAP" and word or nil
  if word == "TRANSFORMER_BASED_WRAP" then
    local names = from(self.transformer_cls_names_to_wrap, "TRANSFORMER_CLS_TO_WRAP", "text")
    if type(names) == "string" then
      local list = {}
      for name in (names .. ","):gmatch "([^,]*)," do list[#list + 1] = name end
      names = list
    end
    if names ~= nil and type(names) ~= "table" then
      raise("%s: transformer_cls_names_to_wrap must be a list of class names, or these with commas, got %s", WHO, check.shown(names))
    end
    self.transformer_cls_names_to_wrap = names
  elseif word == "SIZE_BASED_WRAP" then
    self.min_num_params = check.count(WHO, "min_num_params", from(self.min_num_params, "MIN_NUM_PARAMS", "int", 0))
  end
end

local function activations(self)
  self.activation_checkpointing = from(self.activation_checkpointing, "ACTIVATION_CHECKPOINTING", "bool", false)
  self.activation_checkpointing_offload = from(self.activation_checkpointing_offload, "ACTIVATION_CHECKPOINTING_OFFLOAD",
    "bool", false)
  if not self.activation_checkpointing_offload then return end
  if not self.activation_checkpointing then
    raise("%s: activation_checkpointing_offload=true needs activation_checkpointing=true", WHO)
  end
  if self.fsdp_version ~= 2 then raise("%s: activation_checkpointing_offload=true needs fsdp_version=2", WHO) end
end

local function of_version_1(self)
  self.use_orig_params = from(self.use_orig_params, "USE_ORIG_PARAMS", "bool", false)
  self.sync_module_states = from(self.sync_module_states, "SYNC_MODULE_STATES", "bool", false)
  self.forward_prefetch = from(self.forward_prefetch, "FORWARD_PREFETCH", "bool", false)
end

function Fsdp:init(...)
  base.Plugin.init(self, ...)
  self.fsdp_version = self.fsdp_version or 1
  if self.fsdp_version ~= 1 and self.fsdp_version ~= 2 then
    raise("%s: fsdp_version must be 1 or 2, got %s", WHO, check.shown(self.fsdp_version))
  end
  strategy(self)
  self.cpu_offload = self.cpu_offload or false
  if type(self.cpu_offload) ~= "boolean" and type(self.cpu_offload) ~= "table" then
    raise("%s: cpu_offload must be true or false, got %s", WHO, check.shown(self.cpu_offload))
  end
  if self.param_init_fn ~= nil then check.callable(WHO, "param_init_fn", self.param_init_fn) end
  prefetch(self)
  if self.mixed_precision_policy ~= nil then self:set_mixed_precision(self.mixed_precision_policy, nil, true) end
  state_dict(self)
  wrap_policy(self)
  activations(self)
  self.cpu_ram_efficient_loading = from(self.cpu_ram_efficient_loading, "CPU_RAM_EFFICIENT_LOADING", "bool", false)
  if self.fsdp_version == 1 then
    local given = self.sync_module_states
    of_version_1(self)
    if self.cpu_ram_efficient_loading then
      if given == false then
        no_effect.once(WHO, "sync_module_states", "if false: with cpu_ram_efficient_loading only rank 0 has values; set it to true")
      end
      self.sync_module_states = true
    end
    -- ranks but the first have no values to begin with: memory is made, rank 0's values come
    if self.sync_module_states then self.param_init_fn = self.param_init_fn or function(module) return module end end
  else
    if self.forward_prefetch then raise("%s: forward_prefetch needs version 1; leave it out, or set fsdp_version = 1", WHO) end
    unused(self, { "use_orig_params", "sync_module_states", "param_init_fn" }, "in version 2; leave it out, or set fsdp_version = 1")
    self.use_orig_params, self.sync_module_states, self.forward_prefetch, self.param_init_fn = nil, nil, nil, nil
  end
end

local DTYPES <const> = { fp8 = "bf16", fp16 = "f16", bf16 = "bf16", fp32 = "f32" }

--- Sets the formats of parameters, reductions and buffers (outputs in version 2): a word fp8 (bf16 then), fp16, bf16, fp32, or a table
--- with param_dtype, reduce_dtype and buffer_dtype or output_dtype.
--- example: local p = accel.accelerator.FullyShardedDataParallelPlugin {} p:set_mixed_precision "bf16" return
---   p.mixed_precision_policy.param_dtype --> "bf16"
---@param precision string|table
---@param buffer_autocast? boolean buffers stay in f32
---@param override? boolean replace a policy that is set
function Fsdp:set_mixed_precision(precision, buffer_autocast, override, ...)
  check.surplus("set_mixed_precision", ...)
  for name, value in pairs { buffer_autocast = buffer_autocast, override = override } do
    if type(value) ~= "boolean" then raise("%s: set_mixed_precision: %s must be a boolean, got %s", WHO, name, check.shown(value)) end
  end
  local third = self.fsdp_version == 1 and "buffer_dtype" or "output_dtype"
  local policy
  if type(precision) == "string" then
    local dtype = DTYPES[precision]
    if not dtype then raise("%s: mixed_precision_policy must be fp8, fp16, bf16 or fp32, got '%s'", WHO, precision) end
    policy = { param_dtype = dtype, reduce_dtype = dtype, [third] = buffer_autocast and "f32" or dtype }
  elseif type(precision) == "table" then
    if buffer_autocast then raise("%s: set_mixed_precision: buffer_autocast only works with a word; set %s in the table", WHO, third) end
    for _, key in ipairs { "param_dtype", "reduce_dtype", third } do
      if precision[key] == nil then raise("%s: mixed_precision_policy lacks %s", WHO, key) end
    end
    policy = precision
  else
    raise("%s: mixed_precision_policy must be a word or a table, got %s", WHO, scalar.python_text(precision))
  end
  if self.mixed_precision_policy == nil or override then self.mixed_precision_policy = policy end
end

require "accel.util.absent".members(Fsdp, "FullyShardedDataParallelPlugin")

return M
