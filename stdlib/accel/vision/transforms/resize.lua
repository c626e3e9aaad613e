--- Resizing for accel.vision.transforms.functional. u8 with antialias is Pillow's resize to the last bit. Floats and antialias = false are
--- PyTorch's.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.vision.core"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

local MODES <const> = { "nearest", "nearest-exact", "bilinear", "bicubic", "box", "hamming", "lanczos" }

--- Height and width of a result: one number is the shorter edge, and max_size the most for the longer one.
local function target(who, size, h, w, max_size)
  if type(size) == "table" and #size == 2 then
    if max_size then raise("%s: max_size needs a size of one number, for the shorter edge", who) end
    return pictures.pair(who, "size", size)
  end
  local short = check.positive(who, "size", type(size) == "table" and size[1] or size)
  local low, high = math.min(h, w), math.max(h, w)
  local long = math.tointeger((short * high / low) // 1)
  if max_size then
    if max_size <= short then raise("%s: max_size = %d must be above size = %d", who, max_size, short) end
    if long > max_size then short, long = math.tointeger((max_size * short / long) // 1), max_size end
  end
  if w <= h then return long, short end
  return short, long
end

--- Raises for a size or options that no picture can have.
---@param who string
---@param size any
---@param o {interpolation: string, max_size: integer?}
function M.check(who, size, o)
  if type(size) == "table" and #size == 2 then pictures.pair(who, "size", size)
  else check.positive(who, "size", type(size) == "table" and size[1] or size) end
  check.word(who, "interpolation", o.interpolation, MODES)
  if o.max_size then check.positive(who, "max_size", o.max_size) end
end

local function by_index(t, h, w, exact)
  local function pick(n, out)
    local list = {}
    for i = 0, out - 1 do list[i + 1] = math.min(n - 1, ((exact and i + 0.5 or i) * n / out) // 1 | 0) end
    return accel.tensor(list, { dtype = "i64", device = t.device })
  end
  return t:index_select(-2, pick(t:size(-2), h)):index_select(-1, pick(t:size(-1), w))
end

local function by_weights(t, h, w, filter)
  local dtype = t.dtype == "f64" and "f64" or "f32"
  local x = t:to(dtype)
  local function matrix(n, out) return core.resample_weights(n, 0, n, out, filter):to { dtype = dtype, device = t.device } end
  if x:size(-1) ~= w then x = x:matmul(matrix(x:size(-1), w):transpose(1, 2)) end
  if x:size(-2) ~= h then x = matrix(x:size(-2), h):matmul(x) end
  return x:to(t.dtype)
end

--- Integers through f32, rounded and cut.
local function as_float(t, f)
  if pictures.is_float(t) then return f(t) end
  return f(t:to "f32"):round():clamp(0, pictures.bound(t)):to(t.dtype)
end

local function plain(t, h, w, mode)
  local shape, n = {}, #t.shape
  for i = 1, n do shape[i] = t:size(i) end
  local flat = t:reshape { -1, shape[n - 2], shape[n - 1], shape[n] }
  local out = accel.interpolate(flat, { h, w }, { mode = mode })
  shape[n - 1], shape[n] = h, w
  return out:reshape(shape)
end

local function resized(t, h, w, mode, antialias)
  if t:size(-2) == h and t:size(-1) == w then return t end
  if mode == "nearest" or mode == "nearest-exact" then return by_index(t, h, w, mode == "nearest-exact") end
  if not antialias and (mode == "bilinear" or mode == "bicubic") then
    return as_float(t, function(x) return plain(x, h, w, mode) end)
  end
  local filter = pictures.FILTERS[mode]
  if pictures.is_u8(t) and t:size(-3) <= 4 then
    return pictures.each(t, function(x)
      local function one(part)
        return pictures.planes(core.resample(pictures.rows(part), h, w, filter, { 0, 0, part:size(3), part:size(2) }))
      end
      if x:size(1) % 2 == 1 then return one(x) end -- an even number: no channel is alpha for torchvision's tensors
      local parts = {}
      for c = 1, x:size(1) do parts[c] = one(x:narrow(1, c, 1)) end
      return accel.cat(parts, 1)
    end)
  end
  return as_float(t, function(x) return by_weights(x, h, w, filter) end)
end

--- Resizes pictures. One number is the size of the shorter edge. u8 pictures are resized in Pillow's fixed-point arithmetic.
--- - interpolation: "nearest", "nearest-exact", "bilinear", "bicubic", "box", "hamming" or "lanczos"
--- - max_size: the most for the longer edge, which then decides
--- - antialias: false to look at the nearest pixels alone (bilinear and bicubic)
--- example: accel.vision.transforms.functional.resize(accel.zeros(3, 20, 30), 10).shape --> {3, 10, 15}
---@param img accel.Tensor [..., channels, height, width]
---@param size integer|integer[]
---@param opts? {interpolation: string?, max_size: integer?, antialias: boolean?}
---@return accel.Tensor
function M.resize(img, size, opts, ...)
  local o = options("resize", opts, { interpolation = "bilinear", max_size = options.none, antialias = true }, ...)
  pictures.picture("resize", img)
  check.word("resize", "interpolation", o.interpolation, MODES)
  local max_size = o.max_size and check.positive("resize", "max_size", o.max_size)
  local h, w = target("resize", size, img:size(-2), img:size(-1), max_size)
  return resized(img, h, w, o.interpolation, o.antialias)
end

--- Crops a part, as crop does, and resizes it.
---@param img accel.Tensor [..., channels, height, width]
---@param top integer 0-based
---@param left integer 0-based
---@param height integer
---@param width integer
---@param size integer|integer[]
---@param opts? {interpolation: string?, antialias: boolean?}
---@return accel.Tensor
function M.resized_crop(img, top, left, height, width, size, opts, ...)
  local o = options("resized_crop", opts, { interpolation = "bilinear", antialias = true }, ...)
  local part = require("accel.vision.transforms.geometry").crop(img, top, left, height, width)
  return M.resize(part, size, o)
end

return M
