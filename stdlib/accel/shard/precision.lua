--- Dtypes of a sharded model, as FSDP's MixedPrecision (version 1) and MixedPrecisionPolicy (version 2) name them:
---   param_dtype    dtype of gathered parameters and computation. Each rank keeps its part in the original dtype, and
---                  optimizers step on that
---   reduce_dtype   ranks add gradients up in it [param_dtype]
---   buffer_dtype   buffers (version 1)
---   output_dtype   dtype of a unit's outputs (version 2)
---   cast_forward_inputs   floating inputs are cast to param_dtype: of the model in version 1, of every unit in version 2 [true]
--- and master_weights: trained parameters of 16 bits have their parts in f32. Norms over batches keep theirs, as in PyTorch. Used by
--- nn.parallel.FullyShardedDataParallel.
local BatchNorm = require "accel.nn.batch_norm"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local none <const> = options.none
local HALF <const> = { f16 = true, bf16 = true }

--- The name of a floating dtype, in any spelling. nil for nil.
local function dtype_of(who, key, value)
  if value == nil then return nil end
  local ok, t = pcall(accel.empty, 0, { dtype = value, device = "cpu" })
  if type(value) ~= "string" or not ok or not tensors.is_floating(t.dtype) then
    raise('%s: mixed_precision.%s must be "f32", "bf16" or "f16", got %s', who, key, check.shown(value))
  end
  return t.dtype
end

---@class accel.shard.Precision
---@field param_dtype string?
---@field reduce_dtype string?
---@field buffer_dtype string?
---@field output_dtype string?
---@field cast_forward_inputs boolean
---@field each boolean inputs and outputs of every unit are cast, not of the model alone

--- A checked policy, or nil.
---@param who string
---@param policy table?
---@param version integer
---@return accel.shard.Precision?
function M.check(who, policy, version)
  if policy == nil then return nil end
  local o = options(who .. ": mixed_precision", policy, {
    param_dtype = none, reduce_dtype = none, buffer_dtype = none, output_dtype = none, cast_forward_inputs = true,
  })
  local out = { cast_forward_inputs = o.cast_forward_inputs, each = version == 2 }
  for _, key in ipairs { "param_dtype", "reduce_dtype", "buffer_dtype", "output_dtype" } do out[key] = dtype_of(who, key, o[key]) end
  local other = version == 2 and "buffer_dtype" or "output_dtype"
  if out[other] then
    raise("%s: mixed_precision.%s needs version %d, but fsdp_version is %d", who, other, 3 - version, version)
  end
  return out
end

--- Parameters and buffers of norms over batches.
local function of_batch_norms(module)
  local set = {}
  for _, m in ipairs(module:modules()) do
    if class.isinstance(m, BatchNorm.BatchNorm1d) or class.isinstance(m, BatchNorm.BatchNorm2d)
      or class.isinstance(m, BatchNorm.BatchNorm3d) then
      for _, list in ipairs { m:parameters(), m:buffers() } do
        for _, t in ipairs(list) do set[t] = true end
      end
    end
  end
  return set
end

--- The dtypes of a parameter's unit (accel.shard.Unit), as a function. nil if all keep their own.
---@param module accel.nn.Module
---@param policy accel.shard.Precision?
---@param masters boolean
---@return (fun(p: accel.Tensor): {dtype: string?, master: string?, reduce: string?})?
function M.dtypes(module, policy, masters)
  if not policy and not masters then return nil end
  local kept, given = of_batch_norms(module), policy or {}
  return function(p)
    if not tensors.is_floating(p.dtype) then return {} end
    local master = masters and p.requires_grad and HALF[p.dtype] and "f32" or nil
    if kept[p] then return { master = master } end
    return { dtype = given.param_dtype, master = master, reduce = given.reduce_dtype }
  end
end

--- Converts buffers and keeps their names. Returns the dtype that each of the new ones had.
---@param module accel.nn.Module
---@param dtype string
---@return table<accel.Tensor, string>
function M.cast_buffers(module, dtype)
  local was, kept, done = {}, of_batch_norms(module), {}
  local _ <close> = accel.no_grad()
  for _, m in ipairs(module:modules()) do
    for _, t, kind, field in m:_fields() do
      if kind == "buffer" and tensors.is_floating(t.dtype) and t.dtype ~= dtype and not kept[t] then
        local new = done[t] or accel.unscoped(t.to, t, dtype)
        done[t], was[new] = new, t.dtype
        rawset(rawget(m, field) == nil and m._tensors or m, field, new)
      end
    end
  end
  return was
end

--- A value with its floating tensors in this dtype. Plain tables are copied if anything in them changes.
local function cast(value, dtype)
  if tensors.is_tensor(value) then
    return tensors.is_floating(value.dtype) and value.dtype ~= dtype and value:to(dtype) or value
  end
  if type(value) ~= "table" or class.of(value) then return value end
  local copy
  for key, x in next, value do
    local y = cast(x, dtype)
    if y ~= x then
      if not copy then
        copy = setmetatable({}, getmetatable(value))
        for k, v in next, value do rawset(copy, k, v) end
      end
      rawset(copy, key, y)
    end
  end
  return copy or value
end

local function cast_all(dtype, ...)
  local all = table.pack(...)
  for i = 1, all.n do all[i] = cast(all[i], dtype) end
  return table.unpack(all, 1, all.n)
end

--- The arguments of a forward as the policy wants them.
---@param policy accel.shard.Precision?
---@param ... any
function M.inputs(policy, ...)
  if not policy or not policy.param_dtype or not policy.cast_forward_inputs then return ... end
  return cast_all(policy.param_dtype, ...)
end

--- A forward's outputs in the policy's dtype.
---@param policy accel.shard.Precision?
---@param ... any
function M.outputs(policy, ...)
  if not policy or not policy.output_dtype then return ... end
  return cast_all(policy.output_dtype, ...)
end

--- Hooks that do both at a unit's module below the model.
---@param module accel.nn.Module
---@param policy accel.shard.Precision
function M.add_hooks(module, policy)
  if policy.param_dtype and policy.cast_forward_inputs then
    module:register_forward_pre_hook(function(_, args)
      for i = 1, args.n or #args do args[i] = cast(args[i], policy.param_dtype) end
      return args
    end)
  end
  if policy.output_dtype then
    module:register_forward_hook(function(_, _, ...) return cast_all(policy.output_dtype, ...) end)
  end
end

return M
