--- Questions about tensors that several parts of the library ask.
local accel = require "accel"

local M = {}

local meta = getmetatable(accel.zeros(1))
local floating = { f64 = true, f32 = true, f16 = true, bf16 = true }

--- Whether x is a tensor.
---@param x any
function M.is_tensor(x) return type(x) == "userdata" and getmetatable(x) == meta end

--- Whether a dtype holds floating-point numbers.
---@param dtype string name of a dtype
function M.is_floating(dtype) return floating[dtype] or false end

--- "(2, 3)"
---@param t accel.Tensor
function M.shape_string(t)
  local parts = {}
  for i, n in ipairs(t.shape) do parts[i] = ("%d"):format(n) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- Whether two shapes, lists of extents, are the same.
---@param x integer[]
---@param y integer[]
---@return boolean
function M.same_sizes(x, y)
  if #x ~= #y then return false end
  for i = 1, #x do
    if x[i] ~= y[i] then return false end
  end
  return true
end

--- Whether two tensors have one shape.
---@param a accel.Tensor
---@param b accel.Tensor
---@return boolean
function M.same_shape(a, b) return M.same_sizes(a.shape, b.shape) end

--- How many elements a shape has.
---@param shape integer[]
---@return integer
function M.count(shape)
  local n = 1
  for _, extent in ipairs(shape) do n = n * extent end
  return n
end

--- Bytes of a tensor's elements.
---@param t accel.Tensor
---@return integer
function M.bytes(t) return t:numel() * t:element_size() end

return M
