--- Comparisons of whole tensors with one Lua boolean as the result, for `if`: accel.allclose and accel.equal, also
--- methods. Element by element: x:isclose(y), x:eq(y).
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Whether |x - other| <= atol + rtol * |other| for all elements. The shapes must broadcast. Options by position or
--- name, as in isclose: rtol = 1e-5, atol = 1e-8, equal_nan = false.
--- example: accel.allclose(accel.tensor { 1, 2 }, accel.tensor { 1, 2.0000001 }) --> true
--- example: accel.tensor({ 1, 2 }):allclose(accel.tensor { 1, 3 }) --> false
---@param x accel.Tensor
---@param other accel.Tensor
---@param ... any rtol, atol, equal_nan
---@return boolean
function M.allclose(x, other, ...)
  local close = accel.isclose(x, other, ...)
  return close:numel() == 0 or close:all():item()
end

--- Whether both have the same shape and equal elements. dtypes may differ. NaN equals nothing.
--- example: accel.equal(accel.tensor { 1, 2 }, accel.tensor { 1, 2 }) --> true
--- example: accel.tensor({ 1, 2 }):equal(accel.tensor { { 1, 2 } }) --> false
---@param x accel.Tensor
---@param other accel.Tensor
---@return boolean
function M.equal(x, other)
  for _, t in ipairs { { "x", x }, { "other", other } } do
    if not tensors.is_tensor(t[2]) then raise("equal: %s must be a tensor, got %s", t[1], check.shown(t[2])) end
  end
  if not tensors.same_shape(x, other) then return false end
  return x:numel() == 0 or x:eq(other):all():item()
end

return M
