--- Dtypes of tensors and their promotion: parts of accel.functional.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- x in the dtype, and on the device, of another tensor.
--- example: accel.ones(2):type_as(accel.arange(1)).dtype --> "i64"
---@param x accel.Tensor
---@param other accel.Tensor
---@return accel.Tensor
function M.type_as(x, other) return x:to(other) end

--- x in another dtype. Without one, the name of its dtype.
--- example: accel.ones(1):type "f64".dtype --> "f64"
--- example: accel.ones(1):type() --> "f32"
---@param x accel.Tensor
---@param dtype accel.DType?
---@return accel.Tensor|string
function M.type(x, dtype)
  if dtype == nil then return x.dtype end
  return x:to(dtype)
end

--- As u8.
--- example: accel.ones(1):byte().dtype --> "u8"
---@param x accel.Tensor
---@return accel.Tensor
function M.byte(x) return x:to "u8" end

--- As i8.
--- example: accel.ones(1):char().dtype --> "i8"
---@param x accel.Tensor
---@return accel.Tensor
function M.char(x) return x:to "i8" end

--- As i16.
--- example: accel.ones(1):short().dtype --> "i16"
---@param x accel.Tensor
---@return accel.Tensor
function M.short(x) return x:to "i16" end

-- A value that promotion treats as a script's operand: on meta, so that nothing is computed.
local function probe(dtype) return accel.empty({ 1 }, { dtype = dtype, device = "meta" }) end

-- The dtype of a + b, of truth values bool.
local function joined(a, b)
  local function is_bool(v) return type(v) == "boolean" or type(v) ~= "number" and v.dtype == "bool" end
  if is_bool(a) and is_bool(b) then return "bool" end
  return accel.add(a, b).dtype
end

--- The dtype that two dtypes are promoted to.
--- example: accel.promote_types("i32", "f16") --> "f16"
---@param a accel.DType
---@param b accel.DType
---@return string
function M.promote_types(a, b) return joined(probe(a), probe(b)) end

local KIND <const> = { bool = 1, u8 = 2, i8 = 2, i16 = 2, i32 = 2, i64 = 2, f16 = 3, bf16 = 3, f32 = 3, f64 = 3, c64 = 4, c128 = 4 }

--- Whether a value of one dtype may be written into a tensor of another: not from floats to integers, nor from numbers to bool.
--- example: accel.can_cast("f32", "i64") --> false
---@param from accel.DType
---@param to accel.DType
---@return boolean
function M.can_cast(from, to)
  local a, b = KIND[probe(from).dtype], KIND[probe(to).dtype]
  return a <= b
end

-- A tensor of the same rank class on meta.
local function stand_in(v)
  if not tensors.is_tensor(v) then return v end
  return accel.empty(v.ndim == 0 and {} or { 1 }, { dtype = v.dtype, device = "meta" })
end

--- The dtype of an operation on two tensors or numbers.
--- example: accel.result_type(accel.ones(1, { dtype = "i64" }), 1.5) --> "f32"
---@param a accel.Tensor|number|boolean
---@param b accel.Tensor|number|boolean
---@return string
function M.result_type(a, b)
  if not tensors.is_tensor(a) and not tensors.is_tensor(b) then a = accel.tensor(a) end
  if not tensors.is_tensor(a) then a, b = b, a end
  return joined(stand_in(a), stand_in(b))
end

--- Whether the dtype of a tensor has a sign.
--- example: accel.ones(1, { dtype = "u8" }):is_signed() --> false
---@param x accel.Tensor
---@return boolean
function M.is_signed(x) return x.dtype:sub(1, 1) ~= "u" and x.dtype ~= "bool" end

--- Whether the dtype of a tensor holds floating-point numbers.
--- example: accel.is_floating_point(accel.ones(1)) --> true
---@param x accel.Tensor
---@return boolean
function M.is_floating_point(x)
  if not tensors.is_tensor(x) then raise("is_floating_point: expected a tensor, got %s", type(x)) end
  return x:is_floating_point()
end

return M
