--- Colours for accel.vision.transforms.functional. u8 pictures follow Pillow to the last bit, floats PyTorch's formulas.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.vision.core"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

local SMOOTH <const> = { 1, 1, 1, 1, 5, 1, 1, 1, 1 }

local function picture(who, img)
  pictures.picture(who, img)
  if not pictures.is_u8(img) and not pictures.is_float(img) then
    raise("%s: expected u8 or floats, got %s; use to_dtype with scale first", who, img.dtype)
  end
  local c = img:size(-3)
  if c ~= 1 and c ~= 3 then raise("%s: expected 1 or 3 channels, got %d", who, c) end
  return img, c
end

local function factor(who, name, v)
  check.number(who, name, v)
  if v < 0 then raise("%s: %s must not be negative, got %s", who, name, v) end
  return v
end

local function lut(f)
  local values = {}
  for i = 0, 255 do values[i + 1] = f(i) end
  return values
end

local function blend(a, b, alpha) return (b * alpha + a * (1 - alpha)):clamp(0, 1) end

--- What a mix of a and the picture gives for u8, by a table, if a is one value.
local function blend_table(value, alpha)
  local function f32(x) return (string.unpack("f", string.pack("f", x))) end
  alpha = f32(alpha)
  return lut(function(i) return math.max(0, math.min(255, f32(value + f32(alpha * (i - value))))) // 1 | 0 end)
end

--- Luma of the red, green and blue channels (ITU-R 601).
--- example: local F = accel.vision.transforms.functional
---   return F.rgb_to_grayscale(accel.tensor({ { { 255 } }, { { 0 } }, { { 0 } } }, { dtype = "u8" })) --> { { { 76 } } }
---@param img accel.Tensor [..., 3 or 1, height, width]
---@param opts? {num_output_channels: integer?} 1 or 3 equal channels
---@return accel.Tensor
function M.rgb_to_grayscale(img, opts, ...)
  local o = options("rgb_to_grayscale", opts, { num_output_channels = 1 }, ...)
  local n = o.num_output_channels
  if n ~= 1 and n ~= 3 then raise("rgb_to_grayscale: num_output_channels must be 1 or 3, got %s", check.shown(n)) end
  local _, c = picture("rgb_to_grayscale", img)
  local gray = img
  if c == 3 and pictures.is_u8(img) then
    gray = pictures.kernel(img, core.convert, "L")
  elseif c == 3 then
    gray = img:narrow(-3, 1, 1) * 0.2989 + img:narrow(-3, 2, 1) * 0.587 + img:narrow(-3, 3, 1) * 0.114
  end
  return n == 3 and accel.cat({ gray, gray, gray }, #gray.shape - 2) or gray
end

--- Brightness times a factor: 0 is black, 1 the picture itself.
---@param img accel.Tensor
---@param brightness_factor number
---@return accel.Tensor
function M.adjust_brightness(img, brightness_factor)
  picture("adjust_brightness", img)
  local f = factor("adjust_brightness", "brightness_factor", brightness_factor)
  if pictures.is_u8(img) then return pictures.kernel(img, core.table, blend_table(0, f)) end
  return (img * f):clamp(0, 1)
end

--- Distances from the mean of the luma times a factor.
---@param img accel.Tensor
---@param contrast_factor number
---@return accel.Tensor
function M.adjust_contrast(img, contrast_factor)
  picture("adjust_contrast", img)
  local f = factor("adjust_contrast", "contrast_factor", contrast_factor)
  local gray = M.rgb_to_grayscale(img)
  if not pictures.is_u8(img) then return blend(gray:mean({ -3, -2, -1 }, { keepdim = true }), img, f) end
  return pictures.each(img, function(x)
    local mean = M.rgb_to_grayscale(x):to("i64"):sum():item() / (x:size(2) * x:size(3))
    return pictures.planes(core.table(pictures.rows(x), blend_table((mean + 0.5) // 1 | 0, f)))
  end)
end

--- Distances from gray times a factor: 0 is a gray picture.
---@param img accel.Tensor
---@param saturation_factor number
---@return accel.Tensor
function M.adjust_saturation(img, saturation_factor)
  local _, c = picture("adjust_saturation", img)
  local f = factor("adjust_saturation", "saturation_factor", saturation_factor)
  if c == 1 then return img:clone() end
  local gray = M.rgb_to_grayscale(img, { num_output_channels = 3 })
  if not pictures.is_u8(img) then return blend(gray, img, f) end
  return pictures.each(img, function(x)
    local g = M.rgb_to_grayscale(x, { num_output_channels = 3 })
    return pictures.planes(core.blend(pictures.rows(g), pictures.rows(x), f))
  end)
end

--- Distances from a smoothed picture times a factor: 0 smooths, 2 sharpens.
---@param img accel.Tensor
---@param sharpness_factor number
---@return accel.Tensor
function M.adjust_sharpness(img, sharpness_factor)
  picture("adjust_sharpness", img)
  local f = factor("adjust_sharpness", "sharpness_factor", sharpness_factor)
  local h, w = pictures.size(img)
  if pictures.is_u8(img) then
    return pictures.each(img, function(x)
      local rows = pictures.rows(x)
      return pictures.planes(core.blend(core.kernel3(rows, SMOOTH, 13), rows, f))
    end)
  end
  if h <= 2 or w <= 2 then return img:clone() end
  local smooth = img:clone()
  local sum = img:narrow(-2, 2, h - 2):narrow(-1, 2, w - 2) * 4
  for i = 0, 2 do
    for j = 0, 2 do sum = sum + img:narrow(-2, i + 1, h - 2):narrow(-1, j + 1, w - 2) end
  end
  smooth:narrow(-2, 2, h - 2):narrow(-1, 2, w - 2):copy_(sum / 13)
  return blend(smooth, img, f)
end

--- Hue, saturation and value of floats, and back.
local function to_hsv(img)
  local r, g, b = img:select(-3, 1), img:select(-3, 2), img:select(-3, 3)
  local most, least = img:amax(-3), img:amin(-3)
  local same = most:eq(least)
  local one = accel.ones_like(most)
  local range = most - least
  local s = range / accel.where(same, one, most)
  local divisor = accel.where(same, one, range)
  local rc, gc, bc = (most - r) / divisor, (most - g) / divisor, (most - b) / divisor
  local is_r, is_g = most:eq(r), most:eq(g):logical_and(most:ne(r))
  local h = accel.where(is_r, bc - gc, accel.where(is_g, rc + 2 - bc, gc + 4 - rc))
  return (h / 6 + 1):fmod(1), s, most
end

local function from_hsv(h, s, v)
  local scaled = h * 6
  local i = scaled:floor()
  local f = scaled - i
  local p, q, t = (v * (1 - s)):clamp(0, 1), (v * (1 - s * f)):clamp(0, 1), (v * (1 - s * (1 - f))):clamp(0, 1)
  i = i:remainder(6)
  local function choose(list)
    local out = list[6]
    for k = 5, 1, -1 do out = accel.where(i:eq(k - 1), list[k], out) end
    return out
  end
  return accel.stack({ choose { v, q, p, p, t, v }, choose { t, v, v, q, p, p }, choose { p, p, t, v, v, q } }, -3)
end

--- Turns the hue by a part of the circle, from -0.5 to 0.5.
---@param img accel.Tensor
---@param hue_factor number
---@return accel.Tensor
function M.adjust_hue(img, hue_factor)
  local _, c = picture("adjust_hue", img)
  check.number("adjust_hue", "hue_factor", hue_factor, -0.5, 0.5)
  if c == 1 then return img:clone() end
  if not pictures.is_u8(img) then
    local h, s, v = to_hsv(img)
    return from_hsv((h + hue_factor):remainder(1), s, v)
  end
  local step = hue_factor * 255
  step = (step < 0 and math.ceil(step) or math.floor(step)) | 0
  local values = {}
  for i = 0, 255 do values[i + 1], values[257 + i], values[513 + i] = (i + step) % 256, i, i end
  return pictures.each(img, function(x)
    return pictures.planes(core.convert(core.table(core.convert(pictures.rows(x), "HSV"), values), "RGB"))
  end)
end

--- gain times the picture to the power of gamma.
---@param img accel.Tensor
---@param gamma number
---@param opts? {gain: number?}
---@return accel.Tensor
function M.adjust_gamma(img, gamma, opts, ...)
  local o = options("adjust_gamma", opts, { gain = 1.0 }, ...)
  pictures.picture("adjust_gamma", img)
  factor("adjust_gamma", "gamma", gamma)
  if not pictures.is_u8(img) then return (img:pow(gamma) * o.gain):clamp(0, 1) end
  return pictures.kernel(img, core.table, lut(function(i) return math.min(255, (256 - 1e-3) * o.gain * (i / 255) ^ gamma // 1) | 0 end))
end

--- The negative of a picture.
--- example: accel.vision.transforms.functional.invert(accel.tensor { { { 0.25 } } }) --> { { { 0.75 } } }
---@param img accel.Tensor
---@return accel.Tensor
function M.invert(img) return pictures.bound(pictures.picture("invert", img)) - img end

--- The negative of all values from a threshold on.
---@param img accel.Tensor
---@param threshold number
---@return accel.Tensor
function M.solarize(img, threshold)
  pictures.picture("solarize", img)
  check.number("solarize", "threshold", threshold)
  if pictures.is_u8(img) then return pictures.kernel(img, core.table, lut(function(i) return i < threshold and i or 255 - i end)) end
  return accel.where(img:ge(threshold), pictures.bound(img) - img, img)
end

--- The upper bits of each value of a u8 picture.
---@param img accel.Tensor
---@param bits integer 0 to 8
---@return accel.Tensor
function M.posterize(img, bits)
  pictures.picture("posterize", img)
  if not pictures.is_u8(img) then raise("posterize: expected u8, got %s", img.dtype) end
  check.integer("posterize", "bits", bits, 0, 8)
  local mask = 256 - (1 << (8 - bits))
  return pictures.kernel(img, core.table, lut(function(i) return i & mask end))
end

--- Tables for each channel, made of its histogram.
local function by_histogram(img, f)
  return pictures.each(img, function(x)
    local rows, values = pictures.rows(x), {}
    for _, counts in ipairs(core.histogram(rows):tolist()) do table.move(f(counts), 1, 256, #values + 1, values) end
    return pictures.planes(core.table(rows, values))
  end)
end

--- Spreads each channel over the whole range, so that its smallest value becomes 0 and its largest the bound.
--- - cutoff: percent of the pixels that are left out at each end, or {low, high}. u8 alone
---@param img accel.Tensor
---@param opts? {cutoff: (number|number[])?}
---@return accel.Tensor
function M.autocontrast(img, opts, ...)
  local o = options("autocontrast", opts, { cutoff = options.none }, ...)
  pictures.picture("autocontrast", img)
  if not pictures.is_u8(img) then
    if o.cutoff ~= nil then raise("autocontrast: cutoff needs a u8 picture, got %s", img.dtype) end
    local low, high = img:amin({ -2, -1 }, { keepdim = true }), img:amax({ -2, -1 }, { keepdim = true })
    local flat = low:eq(high)
    local bound = pictures.bound(img)
    local scale = accel.where(flat, accel.ones_like(low), bound / (high - low))
    return ((img - accel.where(flat, accel.zeros_like(low), low)) * scale):clamp(0, bound)
  end
  local cut = type(o.cutoff) == "number" and { o.cutoff, o.cutoff } or o.cutoff or { 0, 0 }
  return by_histogram(img, function(h)
    local n = 0
    for i = 1, 256 do n = n + h[i] end
    for side = 1, 2 do
      local left = n * cut[side] // 100 | 0
      for i = side == 1 and 1 or 256, side == 1 and 256 or 1, side == 1 and 1 or -1 do
        local k = math.min(left, h[i])
        h[i], left = h[i] - k, left - k
        if left <= 0 then break end
      end
    end
    local low, high = 255, 0
    for i = 0, 255 do
      if h[i + 1] > 0 then low, high = math.min(low, i), math.max(high, i) end
    end
    if high <= low then return lut(function(i) return i end) end
    local scale = 255.0 / (high - low)
    local offset = -low * scale
    return lut(function(i)
      local v = i * scale + offset
      return math.max(0, math.min(255, (v < 0 and math.ceil(v) or math.floor(v)) | 0))
    end)
  end)
end

--- Makes the histogram of each channel of a u8 picture flat.
---@param img accel.Tensor
---@return accel.Tensor
function M.equalize(img)
  pictures.picture("equalize", img)
  if not pictures.is_u8(img) then raise("equalize: expected u8, got %s", img.dtype) end
  return by_histogram(img, function(h)
    local sum, last, kinds = 0, 0, 0
    for i = 1, 256 do
      if h[i] > 0 then sum, last, kinds = sum + h[i], h[i], kinds + 1 end
    end
    local step = (sum - last) // 255
    if kinds <= 1 or step == 0 then return lut(function(i) return i end) end
    local n = step // 2
    return lut(function(i)
      local v = n // step
      n = n + h[i + 1]
      return math.min(255, v)
    end)
  end)
end

local function gaussian(size, sigma)
  local values, sum = {}, 0
  for i = 1, size do
    values[i] = math.exp(-0.5 * ((i - (size + 1) / 2) / sigma) ^ 2)
    sum = sum + values[i]
  end
  for i = 1, size do values[i] = values[i] / sum end
  return values
end

--- Convolves with a Gaussian. The borders are mirrored.
--- - sigma: one number, or {x, y}. The default is 0.15 * size + 0.35
---@param img accel.Tensor
---@param kernel_size integer|integer[] odd, {x, y}
---@param opts? {sigma: (number|number[])?}
---@return accel.Tensor
function M.gaussian_blur(img, kernel_size, opts, ...)
  local o = options("gaussian_blur", opts, { sigma = options.none }, ...)
  pictures.picture("gaussian_blur", img)
  local size = type(kernel_size) == "number" and { kernel_size, kernel_size } or kernel_size
  local sigma = { table.unpack(type(o.sigma) == "number" and { o.sigma, o.sigma } or o.sigma or {}) }
  for i = 1, 2 do
    check.positive("gaussian_blur", "kernel_size", size[i])
    if size[i] % 2 == 0 then raise("gaussian_blur: kernel_size must be odd, got %d", size[i]) end
    sigma[i] = sigma[i] or sigma[1] or size[i] * 0.15 + 0.35
    if not (sigma[i] > 0) then raise("gaussian_blur: sigma must be positive, got %s", check.shown(sigma[i])) end
  end
  local h, w = pictures.size(img)
  local rx, ry = size[1] // 2, size[2] // 2
  local pad = require("accel.vision.transforms.geometry").pad
  local x = pad(pictures.is_float(img) and img or img:to "f32", { rx, ry }, { padding_mode = "reflect" })
  local function along(dim, n, weights)
    local sum
    for i, weight in ipairs(weights) do
      local part = x:narrow(dim, i, n) * weight
      sum = sum and sum + part or part
    end
    x = sum
  end
  along(-1, w, gaussian(size[1], sigma[1]))
  along(-2, h, gaussian(size[2], sigma[2]))
  if pictures.is_float(img) then return x end
  return x:round():clamp(0, pictures.bound(img)):to(img.dtype)
end

return M
