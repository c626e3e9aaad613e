--- Derivatives of sampled functions, and of one special function: parts of accel.functional.
local accel = require "accel.core"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

-- The derivative along dim d at points that are `step` apart, or at coordinates (a tensor of one dim).
local function along(x, d, step, order)
  local n = x.shape[d]
  if n < order + 1 then raise("gradient: dim %d has %d elements; it needs %d", d, n, order + 1) end
  local function part(from, count) return x:narrow(d, from, count) end
  local function gaps(from, count) -- distances of neighbours, shaped to broadcast along d
    local shape = {}
    for i = 1, x.ndim do shape[i] = i == d and count or 1 end
    return step:narrow(1, from + 1, count):sub(step:narrow(1, from, count)):to(x.dtype):reshape(shape)
  end
  local inner, first, last
  if tensors.is_tensor(step) then
    if step.ndim ~= 1 or #step ~= n then raise("gradient: coordinates of dim %d must have shape (%d)", d, n) end
    local g = gaps(1, n - 1)
    if n > 2 then
      local a, b = g:narrow(d, 1, n - 2), g:narrow(d, 2, n - 2)
      inner = part(1, n - 2) * (-b / (a * (a + b))) + part(2, n - 2) * ((b - a) / (a * b)) + part(3, n - 2) * (a / (b * (a + b)))
    end
    local a, z = g:narrow(d, 1, 1), g:narrow(d, n - 1, 1)
    if order == 1 then
      first, last = (part(2, 1) - part(1, 1)) / a, (part(n, 1) - part(n - 1, 1)) / z
    else
      local b, y = g:narrow(d, 2, 1), g:narrow(d, n - 2, 1)
      first = part(1, 1) * (-(a * 2 + b) / (a * (a + b))) + part(2, 1) * ((a + b) / (a * b)) - part(3, 1) * (a / (b * (a + b)))
      last = part(n - 2, 1) * (z / (y * (y + z))) - part(n - 1, 1) * ((y + z) / (y * z)) + part(n, 1) * ((z * 2 + y) / (z * (y + z)))
    end
  else
    if n > 2 then inner = (part(3, n - 2) - part(1, n - 2)) / (2 * step) end
    if order == 1 then
      first, last = (part(2, 1) - part(1, 1)) / step, (part(n, 1) - part(n - 1, 1)) / step
    else
      first = (part(1, 1) * -3 + part(2, 1) * 4 - part(3, 1)) / (2 * step)
      last = (part(n - 2, 1) - part(n - 1, 1) * 4 + part(n, 1) * 3) / (2 * step)
    end
  end
  return inner and accel.cat({ first, inner, last }, d) or accel.cat({ first, last }, d)
end

--- The derivatives of x, a function sampled at the points of a grid, along each dim of `dim` (all of them by default): second-order
--- differences inside, of edge_order (1 or 2) at the ends. spacing: the distance of points, a list with one for each dim, or a list of
--- tensors with the coordinates.
--- example: accel.gradient(accel.tensor { 1.0, 4, 9, 16 })[1] --> { 3, 4, 6, 7 }
--- example: accel.gradient(accel.tensor { 1.0, 4, 9 }, { spacing = 2 })[1] --> { 1.5, 2, 2.5 }
---@param x accel.Tensor
---@param opts? {spacing: any, dim: integer|integer[]|nil, edge_order: integer?}
---@return accel.Tensor[]
function M.gradient(x, opts)
  opts = opts or {}
  for key in next, opts do
    if key ~= "spacing" and key ~= "dim" and key ~= "edge_order" then
      raise("gradient: unknown option '%s'; there are spacing, dim and edge_order", key)
    end
  end
  local order = opts.edge_order or 1
  if order ~= 1 and order ~= 2 then raise("gradient: edge_order must be 1 or 2, got %s", tostring(order)) end
  local dims = opts.dim
  if math.type(dims) == "integer" then dims = { dims } end
  if dims == nil then
    dims = {}
    for d = 1, x.ndim do dims[d] = d end
  end
  local list = type(opts.spacing) == "table" and not tensors.is_tensor(opts.spacing)
  if list and #opts.spacing ~= #dims then
    raise("gradient: spacing has %d entries for %d dims", #opts.spacing, #dims)
  end
  if not x:is_floating_point() and not x:is_complex() then x = x:to "f32" end
  local out, seen = {}, {}
  for i, d in ipairs(dims) do
    local at = d < 0 and d + x.ndim + 1 or d
    if seen[at] then raise("gradient: dim %d is listed twice", d) end
    seen[at] = true
    if at < 1 or at > x.ndim then raise("gradient: dim %d of a tensor of %d dims", d, x.ndim) end
    local step = opts.spacing
    if list then step = opts.spacing[i] end
    out[i] = along(x, at, step == nil and 1 or step, order)
  end
  return out
end

--- accel.polygamma as a method: derivative n of digamma.
--- example: accel.tensor({ 1.0, 2 }):polygamma(1) --> { 1.644934, 0.644934 }
---@param x accel.Tensor
---@param n integer
---@return accel.Tensor
function M.polygamma(x, n) return accel.polygamma(n, x) end

return M
