--- Questions about tensors that several parts of the library ask.
local accel = require "accel"

local M = {}

local meta = getmetatable(accel.zeros(1))
local floating = { f64 = true, f32 = true, f16 = true, bf16 = true }

--- Whether x is a tensor.
function M.is_tensor(x) return type(x) == "userdata" and getmetatable(x) == meta end

--- Whether a dtype holds floating-point numbers.
function M.is_floating(dtype) return floating[dtype] or false end

--- "(2, 3)"
function M.shape_string(t)
  local parts = {}
  for i, n in ipairs(t.shape) do parts[i] = ("%d"):format(n) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

function M.same_shape(a, b)
  local x, y = a.shape, b.shape
  if #x ~= #y then return false end
  for i = 1, #x do
    if x[i] ~= y[i] then return false end
  end
  return true
end

--- Bytes of a tensor's elements.
---@param t accel.Tensor
---@return integer
function M.bytes(t) return t:numel() * t:element_size() end

return M
