--- Questions about tensors: parts of accel.functional.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- The number of elements.
--- example: accel.numel(accel.ones(2, 3)) --> 6
---@param x accel.Tensor
---@return integer
function M.numel(x) return x:numel() end

--- The number of dims, as x.ndim and x:dim().
--- example: accel.ones(2, 3):ndimension() --> 2
---@param x accel.Tensor
---@return integer
function M.ndimension(x) return x.ndim end

--- Whether the only element of x is not 0.
--- example: accel.is_nonzero(accel.tensor { 0.5 }) --> true
---@param x accel.Tensor of one element
---@return boolean
function M.is_nonzero(x)
  if x:numel() ~= 1 then raise("is_nonzero: needs a tensor of one element, got shape %s; use any or all", tensors.shape_string(x)) end
  local v = x:item()
  return v ~= 0 and v ~= false
end

--- Whether two tensors have one shape.
--- example: accel.is_same_size(accel.ones(2), accel.zeros(2)) --> true
---@param x accel.Tensor
---@param other accel.Tensor
---@return boolean
function M.is_same_size(x, other) return tensors.same_shape(x, other) end

--- Whether other ranks of this machine use the same memory. Copies from the CPU and ranks' parameters need no call: always false.
--- example: accel.ones(1):is_shared() --> false
---@param x accel.Tensor
---@return boolean
function M.is_shared(x) return x == nil end -- luacheck: no unused

--- Whether the memory is page-locked for copies to a GPU. accel copies through its own buffers: always false.
--- example: accel.ones(1):is_pinned() --> false
---@param x accel.Tensor
---@return boolean
function M.is_pinned(x) return x == nil end

--- Whether x was made in PyTorch's inference mode. accel.no_grad() makes ordinary tensors: always false.
--- example: accel.is_inference(accel.ones(1)) --> false
---@param x accel.Tensor
---@return boolean
function M.is_inference(x) return x == nil end

return M
