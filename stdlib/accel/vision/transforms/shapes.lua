--- Transforms that change the size or the place of pixels: Resize, crops, flips, Pad, RandomRotation, RandomAffine, RandomPerspective.
local Transform = require "accel.vision.transforms.transform"
local draws = require "accel.vision.transforms.draws"
local check = require "accel.util.check"
local F = require "accel.vision.transforms.functional"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"
local resize = require "accel.vision.transforms.resize"

local M = {}

local uniform, chance = draws.uniform, draws.chance

--- Resizes pictures, as functional.resize.
--- example: accel.vision.transforms.Resize({ 4, 6 })(accel.zeros(3, 8, 8)).shape --> {3, 4, 6}
---@class accel.vision.transforms.Resize : accel.vision.transforms.Transform
M.Resize = Transform:extend "accel.vision.transforms.Resize"

---@param size integer|integer[] one number is the shorter edge
---@param opts? {interpolation: string?, max_size: integer?, antialias: boolean?}
function M.Resize:init(size, opts)
  self.o = options("Resize", opts, { interpolation = "bilinear", max_size = options.none, antialias = true })
  resize.check("Resize", size, self.o)
  self.size, self.args = size, { size, opts }
end

function M.Resize:transform(img) return F.resize(img, self.size, self.o) end

--- The middle of pictures.
--- example: accel.vision.transforms.CenterCrop(2)(accel.zeros(3, 8, 8)).shape --> {3, 2, 2}
---@class accel.vision.transforms.CenterCrop : accel.vision.transforms.Transform
M.CenterCrop = Transform:extend "accel.vision.transforms.CenterCrop"

---@param size integer|integer[]
function M.CenterCrop:init(size)
  pictures.pair("CenterCrop", "size", size)
  self.size, self.args = size, { size }
end

function M.CenterCrop:transform(img) return F.center_crop(img, self.size) end

--- Adds borders, as functional.pad.
--- example: accel.vision.transforms.Pad(1)(accel.ones(1, 1, 1)).shape --> {1, 3, 3}
---@class accel.vision.transforms.Pad : accel.vision.transforms.Transform
M.Pad = Transform:extend "accel.vision.transforms.Pad"

---@param padding integer|integer[]
---@param opts? {fill: (number|number[])?, padding_mode: string?}
function M.Pad:init(padding, opts)
  self.o = options("Pad", opts, { fill = options.none, padding_mode = "constant" })
  self.padding, self.args = padding, { padding, opts }
end

function M.Pad:transform(img) return F.pad(img, self.padding, self.o) end

--- A part of a size at a random place.
--- - padding: borders that are added first
--- - pad_if_needed: enlarge smaller pictures
--- example: accel.vision.transforms.RandomCrop(2)(accel.zeros(3, 8, 8)).shape --> {3, 2, 2}
---@class accel.vision.transforms.RandomCrop : accel.vision.transforms.Transform
M.RandomCrop = Transform:extend "accel.vision.transforms.RandomCrop"

---@param size integer|integer[]
---@param opts? {padding: (integer|integer[])?, pad_if_needed: boolean?, fill: (number|number[])?, padding_mode: string?}
function M.RandomCrop:init(size, opts)
  self.o = options("RandomCrop", opts, { padding = options.none, pad_if_needed = false, fill = options.none, padding_mode = "constant" })
  self.height, self.width = pictures.pair("RandomCrop", "size", size)
  self.args = { size, opts }
end

function M.RandomCrop:transform(img)
  local o = self.o
  local borders = { fill = o.fill, padding_mode = o.padding_mode }
  if o.padding then img = F.pad(img, o.padding, borders) end
  local h, w = pictures.size(img)
  local down, across = math.max(0, self.height - h), math.max(0, self.width - w)
  if down + across > 0 then
    if not o.pad_if_needed then
      raise("RandomCrop: size %d x %d is larger than the picture, %d x %d; set pad_if_needed", self.height, self.width, h, w)
    end
    img = F.pad(img, { across, down }, borders)
    h, w = pictures.size(img)
  end
  return F.crop(img, math.random(0, h - self.height), math.random(0, w - self.width), self.height, self.width)
end

--- A random part of random area and aspect, resized: the usual augmentation of photographs.
--- - scale: least and largest share of the area
--- - ratio: least and largest width / height
--- example: accel.vision.transforms.RandomResizedCrop(4)(accel.zeros(3, 8, 9)).shape --> {3, 4, 4}
---@class accel.vision.transforms.RandomResizedCrop : accel.vision.transforms.Transform
M.RandomResizedCrop = Transform:extend "accel.vision.transforms.RandomResizedCrop"

---@param size integer|integer[]
---@param opts? {scale: number[]?, ratio: number[]?, interpolation: string?, antialias: boolean?}
function M.RandomResizedCrop:init(size, opts)
  local o = options("RandomResizedCrop", opts, { scale = { 0.08, 1.0 }, ratio = { 3 / 4, 4 / 3 }, interpolation = "bilinear", antialias = true })
  self.height, self.width = pictures.pair("RandomResizedCrop", "size", size)
  self.scale = draws.range("RandomResizedCrop", "scale", o.scale)
  self.ratio = draws.range("RandomResizedCrop", "ratio", o.ratio)
  if self.scale[1] <= 0 or self.ratio[1] <= 0 then raise "RandomResizedCrop: scale and ratio must be positive" end
  self.o, self.args = { interpolation = o.interpolation, antialias = o.antialias }, { size, opts }
end

--- The box of a crop: top, left, height, width. 0-based.
---@param h integer of the picture
---@param w integer
---@return integer top, integer left, integer height, integer width
function M.RandomResizedCrop:box(h, w)
  local low, high = math.log(self.ratio[1]), math.log(self.ratio[2])
  for _ = 1, 10 do
    local area, ratio = h * w * uniform(self.scale[1], self.scale[2]), math.exp(uniform(low, high))
    local cw, ch = pictures.round((area * ratio) ^ 0.5), pictures.round((area / ratio) ^ 0.5)
    if cw > 0 and cw <= w and ch > 0 and ch <= h then return math.random(0, h - ch), math.random(0, w - cw), ch, cw end
  end
  local ch, cw = h, w -- the middle, of an allowed aspect
  if w / h < self.ratio[1] then ch = pictures.round(w / self.ratio[1])
  elseif w / h > self.ratio[2] then cw = pictures.round(h * self.ratio[2]) end
  return (h - ch) // 2, (w - cw) // 2, ch, cw
end

function M.RandomResizedCrop:transform(img)
  local top, left, h, w = self:box(pictures.size(img))
  return F.resized_crop(img, top, left, h, w, { self.height, self.width }, self.o)
end

--- Mirrors pictures left to right with probability p.
--- example: accel.vision.transforms.RandomHorizontalFlip(1)(accel.tensor { { { 1, 2 } } }) --> { { { 2, 1 } } }
---@class accel.vision.transforms.RandomHorizontalFlip : accel.vision.transforms.Transform
M.RandomHorizontalFlip = Transform:extend "accel.vision.transforms.RandomHorizontalFlip"

---@param p? number Default: 0.5
function M.RandomHorizontalFlip:init(p) self.p, self.args = draws.probability("RandomHorizontalFlip", p or 0.5), { p } end

function M.RandomHorizontalFlip:transform(img) return chance(self.p) and F.hflip(img) or img end

--- Turns pictures upside down with probability p.
--- example: accel.vision.transforms.RandomVerticalFlip(1)(accel.tensor { { { 1 }, { 2 } } }) --> { { { 2 }, { 1 } } }
---@class accel.vision.transforms.RandomVerticalFlip : accel.vision.transforms.Transform
M.RandomVerticalFlip = Transform:extend "accel.vision.transforms.RandomVerticalFlip"

---@param p? number Default: 0.5
function M.RandomVerticalFlip:init(p) self.p, self.args = draws.probability("RandomVerticalFlip", p or 0.5), { p } end

function M.RandomVerticalFlip:transform(img) return chance(self.p) and F.vflip(img) or img end

--- Turns pictures by a random angle. The options are those of functional.rotate.
--- example: accel.vision.transforms.RandomRotation({ 90, 90 })
---   (accel.tensor { { { 1.0, 2.0 }, { 3.0, 4.0 } } }) --> { { { 2, 4 }, { 1, 3 } } }
---@class accel.vision.transforms.RandomRotation : accel.vision.transforms.Transform
M.RandomRotation = Transform:extend "accel.vision.transforms.RandomRotation"

---@param degrees number|number[] a number v is {-v, v}
---@param opts? {interpolation: string?, expand: boolean?, center: number[]?, fill: (number|number[])?, backend: string?}
function M.RandomRotation:init(degrees, opts)
  self.o = options("RandomRotation", opts, { interpolation = "nearest", expand = false, center = options.none, fill = options.none,
    backend = "torchvision" })
  self.degrees, self.args = draws.range("RandomRotation", "degrees", degrees, 0), { degrees, opts }
end

function M.RandomRotation:transform(img) return F.rotate(img, uniform(self.degrees[1], self.degrees[2]), self.o) end

--- Rotates, translates, scales and shears pictures at random.
--- - translate: largest shares of width and height, {x, y}
--- - scale: {least, largest}
--- - shear: degrees along x as a number v ({-v, v}) or {low, high}, or along x and y as {low, high, low, high}
--- example: accel.vision.transforms.RandomAffine(0)(accel.ones(1, 2, 2)) --> { { { 1, 1 }, { 1, 1 } } }
---@class accel.vision.transforms.RandomAffine : accel.vision.transforms.Transform
M.RandomAffine = Transform:extend "accel.vision.transforms.RandomAffine"

---@param degrees number|number[]
---@param opts? {translate: number[]?, scale: number[]?, shear: (number|number[])?, interpolation: string?,
--- fill: (number|number[])?, center: number[]?, backend: string?}
function M.RandomAffine:init(degrees, opts)
  local o = options("RandomAffine", opts, { translate = options.none, scale = options.none, shear = options.none, interpolation = "nearest",
    fill = options.none, center = options.none, backend = "torchvision" })
  self.degrees, self.args = draws.range("RandomAffine", "degrees", degrees, 0), { degrees, opts }
  self.translate, self.scale = o.translate, o.scale and draws.range("RandomAffine", "scale", o.scale)
  local shear = o.shear
  if type(shear) == "table" and #shear == 4 then
    self.shear = { { shear[1], shear[2] }, { shear[3], shear[4] } }
  elseif shear then
    self.shear = { draws.range("RandomAffine", "shear", shear, 0), { 0, 0 } }
  end
  self.o = { interpolation = o.interpolation, fill = o.fill, center = o.center, backend = o.backend }
end

function M.RandomAffine:transform(img)
  local h, w = pictures.size(img)
  local angle, shift, scale, shear = uniform(self.degrees[1], self.degrees[2]), { 0, 0 }, 1, { 0, 0 }
  if self.translate then
    for i, n in ipairs { w, h } do shift[i] = pictures.round(uniform(-1, 1) * self.translate[i] * n) end
  end
  if self.scale then scale = uniform(self.scale[1], self.scale[2]) end
  if self.shear then
    for i = 1, 2 do shear[i] = uniform(self.shear[i][1], self.shear[i][2]) end
  end
  return F.affine(img, angle, shift, scale, shear, self.o)
end

--- Moves the corners of pictures at random, with probability p.
--- - distortion_scale: 0 to 1, how far the corners may move
--- example: accel.vision.transforms.RandomPerspective({ p = 0 })(accel.ones(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.RandomPerspective : accel.vision.transforms.Transform
M.RandomPerspective = Transform:extend "accel.vision.transforms.RandomPerspective"

---@param opts? {distortion_scale: number?, p: number?, interpolation: string?, fill: (number|number[])?, backend: string?}
function M.RandomPerspective:init(opts)
  local o = options("RandomPerspective", opts, { distortion_scale = 0.5, p = 0.5, interpolation = "bilinear", fill = options.none,
    backend = "torchvision" })
  self.distortion = check.number("RandomPerspective", "distortion_scale", o.distortion_scale, 0, 1)
  self.p, self.args = draws.probability("RandomPerspective", o.p), { opts }
  self.o = { interpolation = o.interpolation, fill = o.fill, backend = o.backend }
end

function M.RandomPerspective:transform(img)
  if not chance(self.p) then return img end
  local h, w = pictures.size(img)
  local function far(n) return math.random(0, math.max(0, self.distortion * n / 2 // 1 | 0)) end
  local ends = { { far(w), far(h) }, { w - 1 - far(w), far(h) }, { w - 1 - far(w), h - 1 - far(h) }, { far(w), h - 1 - far(h) } }
  return F.perspective(img, { { 0, 0 }, { w - 1, 0 }, { w - 1, h - 1 }, { 0, h - 1 } }, ends, self.o)
end

--- The four corners and the middle, as a list of pictures.
--- example: #accel.vision.transforms.FiveCrop(2)(accel.zeros(3, 8, 8)) --> 5
---@class accel.vision.transforms.FiveCrop : accel.vision.transforms.Transform
M.FiveCrop = Transform:extend "accel.vision.transforms.FiveCrop"

---@param size integer|integer[]
function M.FiveCrop:init(size) self.size, self.args = size, { size } end

function M.FiveCrop:transform(img) return F.five_crop(img, self.size) end

--- FiveCrop of pictures and of their mirror images.
--- example: #accel.vision.transforms.TenCrop(2)(accel.zeros(3, 8, 8)) --> 10
---@class accel.vision.transforms.TenCrop : accel.vision.transforms.Transform
M.TenCrop = Transform:extend "accel.vision.transforms.TenCrop"

---@param size integer|integer[]
---@param opts? {vertical_flip: boolean?}
function M.TenCrop:init(size, opts)
  self.o = options("TenCrop", opts, { vertical_flip = false })
  self.size, self.args = size, { size, opts }
end

function M.TenCrop:transform(img) return F.ten_crop(img, self.size, self.o) end

return M
