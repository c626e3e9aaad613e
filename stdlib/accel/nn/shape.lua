--- Modules that compute nothing: Identity, Flatten, Unflatten.
local Module = require "accel.nn.module"
local check = require "accel.util.check"

local M = {}

---@class accel.nn.Identity : accel.nn.Module
M.Identity = Module:extend("accel.nn.Identity")

function M.Identity.forward(_, ...) return ... end

--- nn.Flatten(start_dim = 2, end_dim = -1): joins dimensions, by default all but the batch.
---@class accel.nn.Flatten : accel.nn.Module
M.Flatten = Module:extend("accel.nn.Flatten")

---@param start_dim? integer
---@param end_dim? integer
function M.Flatten:init(start_dim, end_dim)
  self.start_dim = check.integer("Flatten", "start_dim", start_dim == nil and 2 or start_dim)
  self.end_dim = check.integer("Flatten", "end_dim", end_dim == nil and -1 or end_dim)
end

function M.Flatten:forward(x) return x:flatten(self.start_dim, self.end_dim) end

function M.Flatten:extra_repr() return ("start_dim=%d, end_dim=%d"):format(self.start_dim, self.end_dim) end

--- nn.Unflatten(dim, sizes): cuts one dimension into several.
---@class accel.nn.Unflatten : accel.nn.Module
M.Unflatten = Module:extend("accel.nn.Unflatten")

---@param dim integer
---@param sizes integer[]
function M.Unflatten:init(dim, sizes)
  self.dim = check.integer("Unflatten", "dim", dim)
  self.sizes = check.sizes("Unflatten", "sizes", sizes)
end

function M.Unflatten:forward(x)
  local old, new = x.shape, {}
  local dim = self.dim < 0 and #old + 1 + self.dim or self.dim
  table.move(old, 1, dim - 1, 1, new)
  table.move(self.sizes, 1, #self.sizes, dim, new)
  table.move(old, dim + 1, #old, #new + 1, new)
  return x:reshape(new)
end

return M
