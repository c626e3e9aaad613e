--- Rearrangements of images in nn.functional.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

--- The dimensions before the last three, then those three.
local function parts(who, x)
  if not tensors.is_tensor(x) then raise("%s: x must be a tensor, got %s", who, check.shown(x)) end
  local shape = x.shape
  local n = #shape
  if n < 3 then raise("%s: expected (..., C, H, W), got shape %s", who, tensors.shape_string(x)) end
  return table.move(shape, 1, n - 3, 1, {}), shape[n - 2], shape[n - 1], shape[n]
end

--- How many images the dimensions before the last three hold: no -1, which could be anything without elements.
local function count(lead)
  local n = 1
  for _, size in ipairs(lead) do n = n * size end
  return n
end

local function joined(lead, ...)
  local out = table.move(lead, 1, #lead, 1, {})
  for _, size in ipairs { ... } do out[#out + 1] = size end
  return out
end

local shuffle_arguments = arguments("pixel_shuffle", { "x" }, { "upscale_factor" })
local unshuffle_arguments = arguments("pixel_unshuffle", { "x" }, { "downscale_factor" })
local channel_arguments = arguments("channel_shuffle", { "x" }, { "groups" })

--- Moves channels into space: (..., C r^2, H, W) -> (..., C, H r, W r).
--- example: accel.nn.functional.pixel_shuffle(accel.ones(1, 8, 2, 3), 2).shape --> { 1, 2, 4, 6 }
---@param ... any x, upscale_factor by position or in one table
---@return accel.Tensor
function F.pixel_shuffle(...)
  local o = shuffle_arguments(...)
  local x, r = o.x, check.positive("pixel_shuffle", "upscale_factor", o.upscale_factor)
  local lead, c, h, w = parts("pixel_shuffle", x)
  if c % (r * r) ~= 0 then raise("pixel_shuffle: %d channels are not a multiple of %d squared", c, r) end
  c = c // (r * r)
  local y = x:reshape(count(lead), c, r, r, h, w):permute(1, 2, 5, 3, 6, 4)
  return y:reshape(joined(lead, c, h * r, w * r))
end

--- Moves space into channels: (..., C, H r, W r) -> (..., C r^2, H, W).
--- example: accel.nn.functional.pixel_unshuffle(accel.ones(1, 2, 4, 6), 2).shape --> { 1, 8, 2, 3 }
---@param ... any x, downscale_factor by position or in one table
---@return accel.Tensor
function F.pixel_unshuffle(...)
  local o = unshuffle_arguments(...)
  local x, r = o.x, check.positive("pixel_unshuffle", "downscale_factor", o.downscale_factor)
  local lead, c, h, w = parts("pixel_unshuffle", x)
  if h % r ~= 0 or w % r ~= 0 then
    raise("pixel_unshuffle: %d x %d pixels are not a multiple of %d", h, w, r)
  end
  local y = x:reshape(count(lead), c, h // r, r, w // r, r):permute(1, 2, 4, 6, 3, 5)
  return y:reshape(joined(lead, c * r * r, h // r, w // r))
end

--- Interleaves the channels (dimension 2) of g groups: channel j of group i goes to place j g + i.
--- example: accel.nn.functional.channel_shuffle(accel.arange(4):view(1, 4, 1), 2):flatten() --> { 0, 2, 1, 3 }
---@param ... any x, groups by position or in one table
---@return accel.Tensor
function F.channel_shuffle(...)
  local o = channel_arguments(...)
  local x, g = o.x, check.positive("channel_shuffle", "groups", o.groups)
  if not tensors.is_tensor(x) then raise("channel_shuffle: x must be a tensor, got %s", check.shown(x)) end
  local shape = x.shape
  if #shape < 3 or shape[2] % g ~= 0 then
    raise("channel_shuffle: expected (N, C, ...) with C a multiple of %d, got shape %s", g,
      tensors.shape_string(x))
  end
  local rest = {}
  table.move(shape, 3, #shape, 1, rest)
  return x:reshape(joined({ shape[1], g, shape[2] // g }, table.unpack(rest))):transpose(2, 3):reshape(shape)
end

--- accel.interpolate under its older name.
--- example: accel.nn.functional.upsample(accel.ones(1, 1, 2), { scale_factor = 2 }).shape --> { 1, 1, 4 }
---@param x accel.Tensor
---@param ... any see accel.interpolate
---@return accel.Tensor
function F.upsample(x, ...) return accel.interpolate(x, ...) end

return F
