--- Sampling of nn.functional: grids of affine maps, and interpolate under its older names.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

local affine_arguments = arguments("affine_grid", { "theta" }, { "size", list = true }, { "align_corners", false })

--- n coordinates from -1 to 1: of the centres of the elements, or with corners of -1 and 1 included.
local function line(n, corners, make)
  if n == 1 then return accel.zeros(1, make) end
  local x = accel.linspace(-1, 1, n, make)
  return corners and x or x * ((n - 1) / n)
end

--- The grid of an affine map, for grid_sample: theta (N, 2, 3) and size {N, C, H, W} -> (N, H, W, 2), or theta (N, 3, 4)
--- and size {N, C, D, H, W} -> (N, D, H, W, 3). Position (x, y) of the result is theta (x, y, 1).
--- example: accel.nn.functional.affine_grid(accel.tensor { { { 1.0, 0, 0.5 }, { 0, 1.0, 0 } } }, { 1, 1, 1, 2 }) --> { { { { 0, 0 }, { 1, 0 } } } }
---@param theta accel.Tensor
---@param ... any size, align_corners = false by position or in one table
---@return accel.Tensor
function F.affine_grid(theta, ...)
  local who = "affine_grid"
  local o = affine_arguments(theta, ...)
  local size = o.size
  theta = o.theta
  if not tensors.is_tensor(theta) or not tensors.is_floating(theta.dtype) then
    raise("%s: theta must be a tensor of floats, got %s", who, check.shown(theta))
  end
  if type(size) ~= "table" or (#size ~= 4 and #size ~= 5) then raise("%s: size must be {N, C, H, W} or {N, C, D, H, W}", who) end
  local n = #size - 2
  for i, extent in ipairs(size) do check.positive(who, ("size[%d]"):format(i), extent) end
  if theta.ndim ~= 3 or theta.shape[1] ~= size[1] or theta.shape[2] ~= n or theta.shape[3] ~= n + 1 then
    raise("%s: theta must have shape (%d, %d, %d) for this size, got %s", who, size[1], n, n + 1, tensors.shape_string(theta))
  end
  local make = { dtype = theta.dtype, device = theta.device }
  local space, base = { table.unpack(size, 3) }, {}
  for i = 1, n do -- x is the last dimension
    local view = {}
    for d = 1, n do view[d] = d == n + 1 - i and size[d + 2] or 1 end
    base[i] = line(size[n + 3 - i], o.align_corners, make):reshape(view):expand(space)
  end
  base[n + 1] = accel.ones(space, make)
  local points = accel.stack(base, n + 1):reshape(1, -1, n + 1):expand(size[1], -1, -1)
  local shape = { size[1], table.unpack(space) }
  shape[n + 2] = n
  return points:bmm(theta:transpose(2, 3)):reshape(shape)
end

local bilinear_arguments = arguments("upsample_bilinear", { "x" }, { "size", list = true }, { "scale_factor", list = true })
local nearest_arguments = arguments("upsample_nearest", { "x" }, { "size", list = true }, { "scale_factor", list = true })

--- interpolate with mode "bilinear" and align_corners = true, as older versions of PyTorch call it.
--- example: accel.nn.functional.upsample_bilinear(accel.ones(1, 1, 2, 2), { scale_factor = 2 }).shape --> { 1, 1, 4, 4 }
---@param x accel.Tensor (N, C, H, W)
---@param ... any size, scale_factor by position or in one table
---@return accel.Tensor
function F.upsample_bilinear(x, ...)
  local o = bilinear_arguments(x, ...)
  return accel.interpolate(o.x, { size = o.size, scale_factor = o.scale_factor, mode = "bilinear", align_corners = true })
end

--- interpolate with mode "nearest", as older versions of PyTorch call it.
--- example: accel.nn.functional.upsample_nearest(accel.ones(1, 1, 2, 2), 4).shape --> { 1, 1, 4, 4 }
---@param x accel.Tensor (N, C, ...)
---@param ... any size, scale_factor by position or in one table
---@return accel.Tensor
function F.upsample_nearest(x, ...)
  local o = nearest_arguments(x, ...)
  return accel.interpolate(o.x, { size = o.size, scale_factor = o.scale_factor })
end

return F
