--- accel.vision.pillow: Pillow's functions on u8 pictures, equal to it in every bit, for pipelines that were trained with Pillow or timm.
--- Pictures are u8 tensors of shape [channels, height, width]. Sizes are {width, height} and boxes {left, upper, right, lower}, as in Pillow.
local check = require "accel.util.check"
local core = require "accel.vision.core"
local F = require "accel.vision.transforms.functional"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

local FILTERS <const> = { "nearest", "lanczos", "bilinear", "bicubic", "box", "hamming" }

local function picture(who, img)
  pictures.picture(who, img)
  if not pictures.is_u8(img) or #img.shape ~= 3 then raise("%s: expected a u8 tensor of shape [channels, height, width]", who) end
  return img
end

local function size_of(who, size)
  if type(size) ~= "table" or #size ~= 2 then raise("%s: size must be {width, height}, got %s", who, check.shown(size)) end
  return check.positive(who, "width", size[1]), check.positive(who, "height", size[2])
end

--- Image.resize: the part `box` in another size.
--- - resample: "nearest", "lanczos", "bilinear", "bicubic", "box" or "hamming"
--- - box: {left, upper, right, lower}, fractions count. The default is all
---@param img accel.Tensor
---@param size integer[] {width, height}
---@param opts? {resample: string?, box: number[]?}
---@return accel.Tensor
function M.resize(img, size, opts, ...)
  local o = options("resize", opts, { resample = "bicubic", box = options.none }, ...)
  picture("resize", img)
  check.word("resize", "resample", o.resample, FILTERS)
  local w, h = size_of("resize", size)
  local box = o.box or { 0, 0, img:size(3), img:size(2) }
  local rows = pictures.rows(img)
  if o.resample == "nearest" then
    return pictures.planes(core.warp(rows, h, w, { (box[3] - box[1]) / w, 0, box[1], 0, (box[4] - box[2]) / h, box[2], 0, 0 }, 0))
  end
  return pictures.planes(core.resample(rows, h, w, pictures.FILTERS[o.resample], box))
end

--- Image.transform: pixel (x, y) of the result is the point (a x + b y + c, d x + e y + f) of the picture, with 8 coefficients divided by
--- (g x + h y + 1).
---@param img accel.Tensor
---@param size integer[] {width, height}
---@param data number[] 6 or 8 coefficients
---@param opts? {resample: string?, fillcolor: (number|number[])?}
---@return accel.Tensor
function M.transform(img, size, data, opts, ...)
  local o = options("transform", opts, { resample = "nearest", fillcolor = options.none }, ...)
  picture("transform", img)
  check.word("transform", "resample", o.resample, { "nearest", "bilinear", "bicubic" })
  if type(data) ~= "table" or #data ~= 6 and #data ~= 8 then raise "transform: data must have 6 or 8 coefficients" end
  local w, h = size_of("transform", size)
  local a = { table.unpack(data) }
  for i = #a + 1, 8 do a[i] = 0 end
  return pictures.planes(core.warp(pictures.rows(img), h, w, a, pictures.FILTERS[o.resample], pictures.fill("transform", o.fillcolor, img:size(1))))
end

--- Image.rotate: turned counter-clockwise by `angle` degrees.
---@param img accel.Tensor
---@param angle number
---@param opts? {resample: string?, expand: boolean?, fillcolor: (number|number[])?}
---@return accel.Tensor
function M.rotate(img, angle, opts, ...)
  local o = options("rotate", opts, { resample = "nearest", expand = false, fillcolor = options.none }, ...)
  return F.rotate(picture("rotate", img), angle, { interpolation = o.resample, expand = o.expand, fill = o.fillcolor, backend = "pil" })
end

--- ImageOps.fit: the largest middle part with the aspect of `size`, resized to it.
---@param img accel.Tensor
---@param size integer[] {width, height}
---@param opts? {resample: string?}
---@return accel.Tensor
function M.fit(img, size, opts, ...)
  local o = options("fit", opts, { resample = "bicubic" }, ...)
  local w, h = size_of("fit", size)
  local iw, ih = img:size(3), img:size(2)
  local cw, ch = iw, ih
  if iw / ih ~= w / h then
    if iw / ih >= w / h then cw = w / h * ih else ch = iw / (w / h) end
  end
  local left, top = (iw - cw) * 0.5, (ih - ch) * 0.5
  return M.resize(img, { w, h }, { resample = o.resample, box = { left, top, left + cw, top + ch } })
end

--- ImageOps.pad: the whole picture in the middle of a canvas of that size.
---@param img accel.Tensor
---@param size integer[] {width, height}
---@param opts? {resample: string?, color: (number|number[])?}
---@return accel.Tensor
function M.pad(img, size, opts, ...)
  local o = options("pad", opts, { resample = "bicubic", color = options.none }, ...)
  local w, h = size_of("pad", size)
  local iw, ih = img:size(3), img:size(2)
  local nw, nh = w, h
  if iw / ih > w / h then nh = pictures.round(ih / iw * w)
  elseif iw / ih < w / h then nw = pictures.round(iw / ih * h) end
  local out = M.resize(img, { nw, nh }, { resample = o.resample })
  local left, top = pictures.round((w - nw) * 0.5), pictures.round((h - nh) * 0.5)
  return F.pad(out, { left, top, w - nw - left, h - nh - top }, { fill = o.color or 0 })
end

--- Image.thumbnail: the picture at most as large as `size`, with its aspect.
---@param img accel.Tensor
---@param size integer[] {width, height}
---@param opts? {resample: string?}
---@return accel.Tensor
function M.thumbnail(img, size, opts, ...)
  local o = options("thumbnail", opts, { resample = "bicubic" }, ...)
  local x, y = size_of("thumbnail", size)
  local w, h = img:size(3), img:size(2)
  if x >= w and y >= h then return img:clone() end
  local aspect = w / h
  local function nearest(v, distance)
    local low, high = math.floor(v), math.ceil(v)
    return math.max(distance(low) <= distance(high) and low or high, 1)
  end
  if x / y >= aspect then
    x = nearest(y * aspect, function(n) return math.abs(aspect - n / y) end)
  else
    y = nearest(x / aspect, function(n) return n == 0 and 0 or math.abs(aspect - x / n) end)
  end
  return M.resize(img, { x, y }, { resample = o.resample })
end

--- ImageFilter.GaussianBlur: three box blurs of this radius (the deviation).
---@param img accel.Tensor
---@param radius number
---@return accel.Tensor
function M.gaussian_blur(img, radius) return pictures.kernel(picture("gaussian_blur", img), core.blur, radius) end

--- Image.convert of an RGB picture: "L" (gray), "YCbCr" or "HSV".
---@param img accel.Tensor
---@param mode string
---@return accel.Tensor
function M.convert(img, mode)
  check.word("convert", "mode", mode, { "L", "YCbCr", "HSV" })
  return pictures.kernel(picture("convert", img), core.convert, mode)
end

--- Adds to all values below a threshold, as AutoAugment's SolarizeAdd.
---@param img accel.Tensor
---@param add integer
---@param opts? {thresh: integer?}
---@return accel.Tensor
function M.solarize_add(img, add, opts, ...)
  local o = options("solarize_add", opts, { thresh = 128 }, ...)
  local values = {}
  for i = 0, 255 do values[i + 1] = i < o.thresh and math.min(255, i + add) or i end
  return pictures.kernel(picture("solarize_add", img), core.table, values)
end

return M
