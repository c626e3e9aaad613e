--- Questions about complex tensors: parts of accel.functional. conj and neg are computed at once here, so no tensor waits for either.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Whether the dtype is c64 or c128.
--- example: accel.is_complex(accel.ones(1, { dtype = "c64" })) --> true
---@param x accel.Tensor
---@return boolean
function M.is_complex(x)
  if not tensors.is_tensor(x) then raise("is_complex: expected a tensor, got %s", type(x)) end
  return x:is_complex()
end

--- Whether the conjugate is still to be computed. conj computes it at once: always false.
--- example: accel.is_conj(accel.ones(1, { dtype = "c64" }):conj()) --> false
---@param x accel.Tensor
---@return boolean
function M.is_conj(x) return x == nil end

--- Whether the negative is still to be computed. neg computes it at once: always false.
--- example: accel.is_neg(accel.ones(1):neg()) --> false
---@param x accel.Tensor
---@return boolean
function M.is_neg(x) return x == nil end

--- x, whose conjugate is computed already.
--- example: accel.resolve_conj(accel.ones(1)) --> { 1 }
---@param x accel.Tensor
---@return accel.Tensor
function M.resolve_conj(x) return x end

--- x, whose negative is computed already.
--- example: accel.resolve_neg(accel.ones(1)) --> { 1 }
---@param x accel.Tensor
---@return accel.Tensor
function M.resolve_neg(x) return x end

--- true for numbers without an imaginary part.
--- example: accel.isreal(accel.tensor { { real = 1, imag = 0 }, { real = 1, imag = 2 } }) --> { true, false }
---@param x accel.Tensor
---@return accel.Tensor
function M.isreal(x)
  if not x:is_complex() then return accel.ones_like(x, { dtype = "bool" }) end
  return x:imag():eq(0)
end

return M
