--- Random tensors that are made of several ops: parts of accel.functional. Their draws are functions of seed, call and position, as
--- those of the ops.
local accel = require "accel.core"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local is_tensor = tensors.is_tensor

--- The options of the tensor that is drawn into, the generator, and whether the result is a leaf of gradients.
local function made(opts)
  local o = {}
  for key, value in next, opts or {} do o[key] = value end
  local generator, grad = o.generator, o.requires_grad
  o.generator, o.requires_grad = nil, nil
  return o, generator, grad
end

--- Independent values from normal distributions. mean and std are numbers with a shape, or tensors that broadcast (one of them may be a
--- number). Options: generator, and with numbers dtype, device, requires_grad.
--- example: accel.normal(5, 0, { 2 }) --> { 5, 5 }
--- example: accel.normal(accel.tensor { 1.0, 2 }, 0) --> { 1, 2 }
---@param mean number|accel.Tensor
---@param std? number|accel.Tensor
---@param size? integer[]|table
---@param opts? accel.RandomOptions
---@return accel.Tensor
function M.normal(mean, std, size, opts)
  if type(std) == "table" and not is_tensor(std) then std, opts = nil, std end
  if is_tensor(mean) or is_tensor(std) then
    std = std == nil and 1 or std
    if size ~= nil and opts == nil then size, opts = nil, size end
    if size ~= nil then raise "normal: the shape is that of mean and std; leave out size" end
    for key in next, opts or {} do
      if key ~= "generator" then raise("normal: unknown option '%s'; with tensors there is generator", key) end
    end
    if is_tensor(std) and std:numel() > 0 and std:lt(0):any():item() then raise "normal: std must not be negative" end
    if not is_tensor(std) and std < 0 then raise("normal: std must not be negative, got %g", std) end
    local like = is_tensor(mean) and mean or std
    if is_tensor(mean) and is_tensor(std) then like = (mean + std):detach() end
    return accel.no_grad(function()
      return accel.randn_like(like, { generator = opts and opts.generator }) * std + mean
    end)
  end
  if type(size) ~= "table" then raise "normal: with two numbers the third argument is the shape" end
  local o, generator, grad = made(opts)
  local x = accel.empty(size, o):normal_(mean, std or 1, { generator = generator })
  return grad and x:requires_grad_(true) or x
end

--- randint in the shape, dtype and device of x: integers from low to high - 1, from 0 with one number.
--- example: accel.randint_like(accel.zeros(2, 3), 5, 6) --> { { 5, 5, 5 }, { 5, 5, 5 } }
---@param x accel.Tensor
---@param low integer
---@param high? integer
---@param opts? accel.RandomOptions
---@return accel.Tensor
function M.randint_like(x, low, high, opts)
  if type(high) == "table" then high, opts = nil, high end
  if high == nil then low, high = 0, low end
  local o, generator, grad = made(opts)
  local y = accel.empty_like(x, o):randint_(low, high, { generator = generator })
  return grad and y:requires_grad_(true) or y
end

return M
