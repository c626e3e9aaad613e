--- Crops, flips, padding, rotation and perspective for accel.vision.transforms.functional. Positions are 0-based pixels, as in torchvision.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.vision.core"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

--- The part of a picture at (top, left). Outside of the picture it is 0.
--- example: accel.vision.transforms.functional.crop(accel.ones(1, 2, 2), 1, 1, 2, 2) --> { { { 1, 0 }, { 0, 0 } } }
---@param img accel.Tensor [..., channels, height, width]
---@param top integer
---@param left integer
---@param height integer
---@param width integer
---@return accel.Tensor
function M.crop(img, top, left, height, width)
  pictures.picture("crop", img)
  local h, w = pictures.size(img)
  check.positive("crop", "height", height)
  check.positive("crop", "width", width)
  local t, l, b, r = math.max(top, 0), math.max(left, 0), math.min(top + height, h), math.min(left + width, w)
  local inside = t < b and l < r and img:narrow(-2, t + 1, b - t):narrow(-1, l + 1, r - l) or nil
  if inside and b - t == height and r - l == width then return inside end
  local shape = {}
  for i = 1, #img.shape do shape[i] = img:size(i) end
  shape[#shape - 1], shape[#shape] = height, width
  local out = accel.zeros(shape, { dtype = img.dtype, device = img.device })
  if inside then out:narrow(-2, t - top + 1, b - t):narrow(-1, l - left + 1, r - l):copy_(inside) end
  return out
end

--- The middle of a picture. A larger size is padded with 0.
---@param img accel.Tensor [..., channels, height, width]
---@param output_size integer|integer[]
---@return accel.Tensor
function M.center_crop(img, output_size)
  pictures.picture("center_crop", img)
  local ch, cw = pictures.pair("center_crop", "output_size", output_size)
  local h, w = pictures.size(img)
  local top, left = 0, 0
  if cw > w or ch > h then
    top, left = ch > h and -((ch - h) // 2) or 0, cw > w and -((cw - w) // 2) or 0
    h, w = math.max(h, ch), math.max(w, cw)
  end
  return M.crop(img, top + pictures.round((h - ch) / 2), left + pictures.round((w - cw) / 2), ch, cw)
end

--- A picture mirrored left to right.
--- example: accel.vision.transforms.functional.hflip(accel.tensor { { { 1, 2 } } }) --> { { { 2, 1 } } }
---@param img accel.Tensor
---@return accel.Tensor
function M.hflip(img) return pictures.picture("hflip", img):flip(-1) end

--- A picture upside down.
---@param img accel.Tensor
---@return accel.Tensor
function M.vflip(img) return pictures.picture("vflip", img):flip(-2) end

M.horizontal_flip, M.vertical_flip = M.hflip, M.vflip

--- The four corners and the middle, as a list.
---@param img accel.Tensor
---@param size integer|integer[]
---@return accel.Tensor[]
function M.five_crop(img, size)
  local ch, cw = pictures.pair("five_crop", "size", size)
  local h, w = pictures.size(pictures.picture("five_crop", img))
  if ch > h or cw > w then raise("five_crop: size %d x %d is larger than the picture, %d x %d", ch, cw, h, w) end
  return { M.crop(img, 0, 0, ch, cw), M.crop(img, 0, w - cw, ch, cw), M.crop(img, h - ch, 0, ch, cw), M.crop(img, h - ch, w - cw, ch, cw),
    M.center_crop(img, { ch, cw }) }
end

--- five_crop of a picture and of its mirror image.
---@param img accel.Tensor
---@param size integer|integer[]
---@param opts? {vertical_flip: boolean?}
---@return accel.Tensor[]
function M.ten_crop(img, size, opts, ...)
  local o = options("ten_crop", opts, { vertical_flip = false }, ...)
  local first, second = M.five_crop(img, size), M.five_crop(o.vertical_flip and M.vflip(img) or M.hflip(img), size)
  return table.move(second, 1, 5, 6, first)
end

--- Left, top, right, bottom from one, two or four numbers.
local function sides(padding)
  if type(padding) == "number" then padding = { padding } end
  if type(padding) ~= "table" or (#padding ~= 1 and #padding ~= 2 and #padding ~= 4) then
    raise("pad: padding must be one number, {left and right, top and bottom} or {left, top, right, bottom}, got %s", check.shown(padding))
  end
  for _, n in ipairs(padding) do check.count("pad", "padding", n) end
  local a, b = padding[1], padding[2] or padding[1]
  return a, b, padding[3] or a, padding[4] or b
end

--- The places that positions -before .. n + after - 1 take their values from.
local function places(n, before, after, mode)
  local list = {}
  for i = -before, n + after - 1 do
    local k = i
    if mode == "edge" then
      k = math.max(0, math.min(n - 1, i))
    elseif mode == "reflect" then
      local period = math.max(1, 2 * n - 2)
      k = i % period
      if k >= n then k = period - k end
    else
      k = i % (2 * n)
      if k >= n then k = 2 * n - 1 - k end
    end
    list[#list + 1] = k
  end
  return list
end

--- Adds borders: one width, {left and right, top and bottom}, or {left, top, right, bottom}.
--- - fill: the value of constant borders, one or one a channel
--- - padding_mode: "constant", "edge" (the outer pixels repeated), "reflect" or "symmetric" (mirrored without or with the outer pixels)
--- example: accel.vision.transforms.functional.pad(accel.tensor { { { 1, 2 } } }, { 1, 0 }, { padding_mode = "edge" }) --> { { { 1, 1, 2, 2 } } }
---@param img accel.Tensor [..., channels, height, width]
---@param padding integer|integer[]
---@param opts? {fill: (number|number[])?, padding_mode: string?}
---@return accel.Tensor
function M.pad(img, padding, opts, ...)
  local o = options("pad", opts, { fill = options.none, padding_mode = "constant" }, ...)
  pictures.picture("pad", img)
  local l, t, r, b = sides(padding)
  local h, w = pictures.size(img)
  check.word("pad", "padding_mode", o.padding_mode, { "constant", "edge", "reflect", "symmetric" })
  if o.padding_mode ~= "constant" then
    if o.fill ~= nil then raise "pad: fill needs padding_mode = 'constant'" end
    if o.padding_mode == "reflect" and (math.max(l, r) >= w or math.max(t, b) >= h) then
      raise("pad: reflect needs borders smaller than the picture, %d x %d", h, w)
    end
    local function at(list) return accel.tensor(list, { dtype = "i64", device = img.device }) end
    return img:index_select(-2, at(places(h, t, b, o.padding_mode))):index_select(-1, at(places(w, l, r, o.padding_mode)))
  end
  local out = M.crop(img, -t, -l, h + t + b, w + l + r)
  local fill = pictures.fill("pad", o.fill, img:size(-3))
  if not fill then return out end
  local inside = accel.ones({ 1, h, w }, { dtype = "bool", device = img.device })
  inside = M.crop(inside, -t, -l, h + t + b, w + l + r)
  return accel.where(inside, out, accel.tensor(fill, { dtype = img.dtype, device = img.device }):view { -1, 1, 1 })
end

--- ---- affine and perspective transforms ----

--- The coefficients of the inverse of: shear, scale and rotate about the center, then translate.
local function inverse(cx, cy, angle, tx, ty, scale, shear)
  local rot, sx, sy = math.rad(angle), math.rad(shear[1]), math.rad(shear[2])
  local a = math.cos(rot - sy) / math.cos(sy)
  local b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
  local c = math.sin(rot - sy) / math.cos(sy)
  local d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
  local m = { d / scale, -b / scale, 0, -c / scale, a / scale, 0 }
  m[3] = m[1] * (-cx - tx) + m[2] * (-cy - ty) + cx
  m[6] = m[4] * (-cx - tx) + m[5] * (-cy - ty) + cy
  return m
end

local WARP <const> = { interpolation = "nearest", fill = options.none, center = options.none, backend = "torchvision" }

local function warp_options(who, opts, more, ...)
  local declared = { table.unpack(more or {}) }
  for k, v in next, WARP do declared[k] = v end
  for k, v in next, more or {} do declared[k] = v end
  local o = options(who, opts, declared, ...)
  check.word(who, "backend", o.backend, { "torchvision", "pil" })
  check.word(who, "interpolation", o.interpolation, o.backend == "pil" and { "nearest", "bilinear", "bicubic" } or { "nearest", "bilinear" })
  return o
end

--- Samples pictures by coefficients for points in pixels, from the edge.
local function warped(who, img, coefficients, h, w, o)
  local a = { table.unpack(coefficients) }
  for i = #a + 1, 8 do a[i] = 0 end
  local fill = pictures.fill(who, o.fill, img:size(-3))
  local filter = pictures.FILTERS[o.interpolation]
  if img:size(-3) > 4 then raise("%s: pictures may have 4 channels at most, got %d", who, img:size(-3)) end
  if o.backend == "pil" then
    if not pictures.is_u8(img) then raise("%s: backend = 'pil' needs a u8 picture, got %s", who, img.dtype) end
    return pictures.kernel(img, core.warp, h, w, a, filter, fill)
  end
  local function one(x) return pictures.planes(core.warp(pictures.rows(x:to "f32"), h, w, a, filter, fill)) end
  local out = pictures.each(img, one)
  if pictures.is_float(img) then return out:to(img.dtype) end
  return out:round():clamp(0, pictures.bound(img)):to(img.dtype)
end

--- The size that holds a whole turned picture, and where its corner lies, by torchvision's rules for tensors.
local function expanded(m, h, w)
  local low, high = { math.huge, math.huge }, { -math.huge, -math.huge }
  for _, p in ipairs { { -w / 2, -h / 2 }, { -w / 2, h / 2 }, { w / 2, h / 2 }, { w / 2, -h / 2 } } do
    local q = { m[1] * p[1] + m[2] * p[2] + w / 2, m[4] * p[1] + m[5] * p[2] + h / 2 }
    for i = 1, 2 do low[i], high[i] = math.min(low[i], q[i]), math.max(high[i], q[i]) end
  end
  local function trunc(x) -- to 4 digits
    x = x / 1e-4
    return (x < 0 and math.ceil(x) or math.floor(x)) * 1e-4
  end
  return math.ceil(trunc(high[2])) - math.floor(trunc(low[2])), math.ceil(trunc(high[1])) - math.floor(trunc(low[1]))
end

--- Quarter turns about the middle, which move whole pixels. nil: the turn is another one.
local function quarters(img, angle, o)
  if o.center then return nil end
  local h, w = pictures.size(img)
  if angle == 0 then return img:clone() end
  if angle == 180 then return img:flip(-1):flip(-2) end
  if (angle == 90 or angle == 270) and (o.expand or h == w) then
    local turned = img:transpose(-1, -2)
    return angle == 90 and turned:flip(-2) or turned:flip(-1)
  end
end

--- Pillow's rotation: the center of the picture, the size that holds all of it with expand.
local function rotate_pil(img, angle, o)
  local h, w = pictures.size(img)
  local cx, cy = w / 2, h / 2
  if o.center then cx, cy = o.center[1], o.center[2] end
  local rad = -math.rad(angle)
  local function digits(x) return tonumber(("%.15f"):format(x)) end
  local m = { digits(math.cos(rad)), digits(math.sin(rad)), 0.0, digits(-math.sin(rad)), digits(math.cos(rad)), 0.0 }
  local function at(x, y) return m[1] * x + m[2] * y + m[3], m[4] * x + m[5] * y + m[6] end
  local x, y = at(-cx, -cy)
  m[3], m[6] = x + cx, y + cy
  local nh, nw = h, w
  if o.expand then
    local low, high = { math.huge, math.huge }, { -math.huge, -math.huge }
    for _, p in ipairs { { 0, 0 }, { w, 0 }, { w, h }, { 0, h } } do
      local q = { at(p[1], p[2]) }
      for i = 1, 2 do low[i], high[i] = math.min(low[i], q[i]), math.max(high[i], q[i]) end
    end
    nw, nh = math.ceil(high[1]) - math.floor(low[1]), math.ceil(high[2]) - math.floor(low[2])
    m[3], m[6] = at(-(nw - w) / 2, -(nh - h) / 2)
  end
  return warped("rotate", img, m, nh, nw, { interpolation = o.interpolation, fill = o.fill, backend = "pil" })
end

--- Coefficients for tensors: the matrix is about the middle of the picture.
local function about_middle(m, h, w, oh, ow)
  return { m[1], m[2], m[3] + w / 2 - m[1] * ow / 2 - m[2] * oh / 2, m[4], m[5], m[6] + h / 2 - m[4] * ow / 2 - m[5] * oh / 2 }
end

local function center_of(who, o, h, w)
  if o.center == nil then return nil end
  if type(o.center) ~= "table" or #o.center ~= 2 then raise("%s: center must be {x, y}, got %s", who, check.shown(o.center)) end
  return { o.center[1] - w / 2, o.center[2] - h / 2 }
end

--- Turns a picture counter-clockwise by `angle` degrees.
--- - interpolation: "nearest" or "bilinear", and "bicubic" with backend = "pil"
--- - expand: enlarge the picture so that all of it stays
--- - center: {x, y} in pixels. The default is the middle
--- - fill: the value outside, one or one a channel. The default is 0
--- - backend: "torchvision" samples as PyTorch does, "pil" as Pillow (u8 alone). They differ at edges and in the last digit
---@param img accel.Tensor [..., channels, height, width]
---@param angle number
---@param opts? {interpolation: string?, expand: boolean?, center: number[]?, fill: (number|number[])?, backend: string?}
---@return accel.Tensor
function M.rotate(img, angle, opts, ...)
  local o = warp_options("rotate", opts, { expand = false }, ...)
  pictures.picture("rotate", img)
  angle = check.number("rotate", "angle", angle) % 360
  local turned = quarters(img, angle, o)
  if turned then return turned end
  local h, w = pictures.size(img)
  if o.backend == "pil" then return rotate_pil(img, angle, o) end
  local c = center_of("rotate", o, h, w) or { 0, 0 }
  local m = inverse(c[1], c[2], -angle, 0, 0, 1, { 0, 0 })
  local oh, ow = h, w
  if o.expand then oh, ow = expanded(m, h, w) end
  return warped("rotate", img, about_middle(m, h, w, oh, ow), oh, ow, o)
end

--- Rotates (clockwise), translates, scales and shears a picture about its middle.
--- - shear: degrees along x, or {x, y}
--- - center, fill, interpolation, backend: as rotate has them
---@param img accel.Tensor [..., channels, height, width]
---@param angle number degrees
---@param translate number[] {x, y} in pixels
---@param scale number
---@param shear number|number[]
---@param opts? {interpolation: string?, center: number[]?, fill: (number|number[])?, backend: string?}
---@return accel.Tensor
function M.affine(img, angle, translate, scale, shear, opts, ...)
  local o = warp_options("affine", opts, nil, ...)
  pictures.picture("affine", img)
  if type(shear) == "number" then shear = { shear, 0 } end
  if #shear == 1 then shear = { shear[1], 0 } end
  if not (scale > 0) then raise("affine: scale must be positive, got %s", scale) end
  local h, w = pictures.size(img)
  if o.backend == "pil" then
    local c = o.center or { w * 0.5, h * 0.5 }
    return warped("affine", img, inverse(c[1], c[2], angle, translate[1], translate[2], scale, shear), h, w, o)
  end
  local c = center_of("affine", o, h, w) or { 0, 0 }
  local m = inverse(c[1], c[2], angle, translate[1], translate[2], scale, shear)
  return warped("affine", img, about_middle(m, h, w, h, w), h, w, o)
end

--- Solves n linear equations, by rows of n + 1 numbers.
local function solve(rows)
  local n = #rows
  for i = 1, n do
    local best = i
    for k = i + 1, n do
      if math.abs(rows[k][i]) > math.abs(rows[best][i]) then best = k end
    end
    rows[i], rows[best] = rows[best], rows[i]
    if rows[i][i] == 0 then return nil end
    for k = 1, n do
      local f = k ~= i and rows[k][i] / rows[i][i] or 0
      for j = i, f ~= 0 and n + 1 or i - 1 do rows[k][j] = rows[k][j] - f * rows[i][j] end
    end
  end
  local x = {}
  for i = 1, n do x[i] = rows[i][n + 1] / rows[i][i] end
  return x
end

--- Moves four points of a picture to four others, with everything between them.
--- - fill, interpolation, backend: as rotate has them. The default interpolation is bilinear
---@param img accel.Tensor [..., channels, height, width]
---@param startpoints number[][] four {x, y}: top left, top right, bottom right, bottom left
---@param endpoints number[][]
---@param opts? {interpolation: string?, fill: (number|number[])?, backend: string?}
---@return accel.Tensor
function M.perspective(img, startpoints, endpoints, opts, ...)
  local o = options("perspective", opts, { interpolation = "bilinear", fill = options.none, backend = "torchvision" }, ...)
  o = warp_options("perspective", o)
  pictures.picture("perspective", img)
  if #startpoints ~= 4 or #endpoints ~= 4 then raise "perspective: startpoints and endpoints must have four points" end
  local rows = {}
  for i = 1, 4 do
    local p, q = endpoints[i], startpoints[i]
    rows[#rows + 1] = { p[1], p[2], 1, 0, 0, 0, -q[1] * p[1], -q[1] * p[2], q[1] }
    rows[#rows + 1] = { 0, 0, 0, p[1], p[2], 1, -q[2] * p[1], -q[2] * p[2], q[2] }
  end
  local x = solve(rows)
  if not x then raise "perspective: three of the endpoints lie on one line" end
  for i = 1, 8 do x[i] = string.unpack("f", string.pack("f", x[i])) end -- torchvision keeps them in f32
  local h, w = pictures.size(img)
  return warped("perspective", img, x, h, w, o)
end

--- A picture with the rectangle at (i, j) replaced by v, a number or a tensor that fits it.
---@param img accel.Tensor [..., channels, height, width]
---@param i integer first row, 0-based
---@param j integer first column, 0-based
---@param h integer
---@param w integer
---@param v number|accel.Tensor
---@param opts? {inplace: boolean?}
---@return accel.Tensor
function M.erase(img, i, j, h, w, v, opts, ...)
  local o = options("erase", opts, { inplace = false }, ...)
  pictures.picture("erase", img)
  local out = o.inplace and img or img:clone()
  local part = out:narrow(-2, i + 1, h):narrow(-1, j + 1, w)
  if type(v) == "number" then part:fill_(v) else part:copy_(v:to(img.dtype):expand_as(part)) end
  return out
end

return M
