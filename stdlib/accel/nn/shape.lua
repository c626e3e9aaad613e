--- Modules that compute nothing: Identity, Flatten, Unflatten.
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Gives its input back.
--- example: accel.nn.Identity()(accel.ones(2)) --> { 1, 1 }
---@class accel.nn.Identity : accel.nn.Module
M.Identity = Module:extend("accel.nn.Identity")

function M.Identity.forward(_, ...) return ... end

--- Joins dimensions start_dim (2) to end_dim (-1): by default all but the batch.
--- example: accel.nn.Flatten()(accel.ones(2, 3, 4)).shape --> { 2, 12 }
---@class accel.nn.Flatten : accel.nn.Module
M.Flatten = Module:extend("accel.nn.Flatten")

local flatten_arguments = arguments("Flatten", { "start_dim", 2, any = true }, { "end_dim", -1, any = true })

---@param start_dim? integer
---@param end_dim? integer
function M.Flatten:init(start_dim, end_dim, ...)
  local o = flatten_arguments(start_dim, end_dim, ...)
  self.start_dim = check.integer("Flatten", "start_dim", o.start_dim)
  self.end_dim = check.integer("Flatten", "end_dim", o.end_dim)
end

function M.Flatten:forward(x) return x:flatten(self.start_dim, self.end_dim) end

function M.Flatten:extra_repr() return ("start_dim=%d, end_dim=%d"):format(self.start_dim, self.end_dim) end

--- Splits dimension dim into several of the given sizes, one of which may be -1: the remainder.
--- example: accel.nn.Unflatten(2, { 3, 4 })(accel.ones(2, 12)).shape --> { 2, 3, 4 }
---@class accel.nn.Unflatten : accel.nn.Module
M.Unflatten = Module:extend("accel.nn.Unflatten")

local unflatten_arguments = arguments("Unflatten", { "dim" }, { "unflattened_size", list = true })

---@param dim integer
---@param unflattened_size integer[]
function M.Unflatten:init(dim, unflattened_size, ...)
  local o = unflatten_arguments(dim, unflattened_size, ...)
  self.dim = check.integer("Unflatten", "dim", o.dim)
  local sizes, left = o.unflattened_size, nil
  if type(sizes) == "table" then -- one -1 is put aside
    sizes = { table.unpack(sizes) }
    for i, size in ipairs(sizes) do
      if size == -1 and not left then left = i end
    end
    if left then table.remove(sizes, left) end
  end
  self.sizes = left and #sizes == 0 and {} or check.sizes("Unflatten", "unflattened_size", sizes)
  if left then table.insert(self.sizes, left, -1) end
end

function M.Unflatten:forward(x)
  local old, new = x.shape, {}
  local dim = self.dim < 0 and #old + 1 + self.dim or self.dim
  if dim < 1 or dim > #old then
    raise("Unflatten: dim %d is out of range for shape %s", self.dim, tensors.shape_string(x))
  end
  local product, left = 1, nil
  for i, size in ipairs(self.sizes) do
    if size == -1 then left = i else product = product * size end
  end
  if left and old[dim] % product ~= 0 or not left and old[dim] ~= product then
    raise("Unflatten: dimension %d of shape %s cannot be cut into %s", self.dim, tensors.shape_string(x),
      arguments.text(self.sizes))
  end
  table.move(old, 1, dim - 1, 1, new)
  table.move(self.sizes, 1, #self.sizes, dim, new)
  if left then new[dim + left - 1] = old[dim] // product end
  table.move(old, dim + 1, #old, #new + 1, new)
  return x:reshape(new)
end

function M.Unflatten:extra_repr()
  return ("dim=%d, unflattened_size=%s"):format(self.dim, arguments.text(self.sizes))
end

return M
