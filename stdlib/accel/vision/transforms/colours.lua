--- Transforms of values: colours, blur, types, normalisation, erasing.
local Transform = require "accel.vision.transforms.transform"
local draws = require "accel.vision.transforms.draws"
local accel = require "accel"
local F = require "accel.vision.transforms.functional"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"

local M = {}

local uniform, chance = draws.uniform, draws.chance

--- Changes brightness, contrast, saturation and hue at random, in random order.
--- - brightness, contrast, saturation: a number v is {1 - v, 1 + v}
--- - hue: a number v is {-v, v}, at most 0.5
--- example: accel.vision.transforms.ColorJitter({ brightness = { 2, 2 } })(accel.full({ 1, 1, 1 }, 0.25)) --> { { { 0.5 } } }
---@class accel.vision.transforms.ColorJitter : accel.vision.transforms.Transform
M.ColorJitter = Transform:extend "accel.vision.transforms.ColorJitter"

local JITTER <const> = { "brightness", "contrast", "saturation", "hue" }

---@param opts? {brightness: (number|number[])?, contrast: (number|number[])?, saturation: (number|number[])?, hue: (number|number[])?}
function M.ColorJitter:init(opts)
  local o = options("ColorJitter", opts, { brightness = options.none, contrast = options.none, saturation = options.none, hue = options.none })
  self.ranges, self.args = {}, { opts }
  for _, name in ipairs(JITTER) do
    local hue = name == "hue"
    if o[name] then self.ranges[name] = draws.range("ColorJitter", name, o[name], hue and 0 or 1, not hue and 0 or nil) end
  end
  local hue = self.ranges.hue
  if hue and (hue[1] < -0.5 or hue[2] > 0.5) then raise "ColorJitter: hue must lie within -0.5 and 0.5" end
end

--- A random order of n numbers.
local function order_of(n)
  local list = {}
  for i = 1, n do list[i] = i end
  for i = n, 2, -1 do
    local k = math.random(i)
    list[i], list[k] = list[k], list[i]
  end
  return list
end
M.order_of = order_of

function M.ColorJitter:transform(img)
  local factors = {}
  local order = order_of(4)
  for _, name in ipairs(JITTER) do
    local range = self.ranges[name]
    factors[name] = range and uniform(range[1], range[2]) or nil
  end
  for _, i in ipairs(order) do
    local name = JITTER[i]
    if factors[name] then img = F["adjust_" .. name](img, factors[name]) end
  end
  return img
end

--- Gray pictures of 1 or 3 channels.
--- example: accel.vision.transforms.Grayscale()(accel.ones(3, 2, 2)).shape --> {1, 2, 2}
---@class accel.vision.transforms.Grayscale : accel.vision.transforms.Transform
M.Grayscale = Transform:extend "accel.vision.transforms.Grayscale"

---@param num_output_channels? integer Default: 1
function M.Grayscale:init(num_output_channels) self.n, self.args = num_output_channels or 1, { num_output_channels } end

function M.Grayscale:transform(img) return F.rgb_to_grayscale(img, { num_output_channels = self.n }) end

--- Gray pictures of as many channels, with probability p.
--- example: accel.vision.transforms.RandomGrayscale(1)(accel.ones(3, 2, 2)).shape --> {3, 2, 2}
---@class accel.vision.transforms.RandomGrayscale : accel.vision.transforms.Transform
M.RandomGrayscale = Transform:extend "accel.vision.transforms.RandomGrayscale"

---@param p? number Default: 0.1
function M.RandomGrayscale:init(p) self.p, self.args = draws.probability("RandomGrayscale", p or 0.1), { p } end

function M.RandomGrayscale:transform(img)
  if not chance(self.p) then return img end
  return F.rgb_to_grayscale(img, { num_output_channels = img:size(-3) })
end

--- Blurs pictures by a Gaussian of random deviation.
--- example: accel.vision.transforms.GaussianBlur(3)(accel.ones(1, 4, 4)).shape --> {1, 4, 4}
---@class accel.vision.transforms.GaussianBlur : accel.vision.transforms.Transform
M.GaussianBlur = Transform:extend "accel.vision.transforms.GaussianBlur"

---@param kernel_size integer|integer[] odd
---@param sigma? number|number[] a number, or {low, high}. Default: {0.1, 2}
function M.GaussianBlur:init(kernel_size, sigma)
  self.kernel_size, self.args = kernel_size, { kernel_size, sigma }
  self.sigma = type(sigma) == "number" and { sigma, sigma } or draws.range("GaussianBlur", "sigma", sigma or { 0.1, 2.0 })
end

function M.GaussianBlur:transform(img)
  local s = uniform(self.sigma[1], self.sigma[2])
  return F.gaussian_blur(img, self.kernel_size, { sigma = { s, s } })
end

--- Subtracts means and divides by deviations, for each channel.
--- example: accel.vision.transforms.Normalize({ 0.5 }, { 0.5 })(accel.ones(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.Normalize : accel.vision.transforms.Transform
M.Normalize = Transform:extend "accel.vision.transforms.Normalize"

---@param mean number[]
---@param std number[]
---@param opts? {inplace: boolean?}
function M.Normalize:init(mean, std, opts)
  self.o = options("Normalize", opts, { inplace = false })
  self.mean, self.std, self.args = mean, std, { mean, std, opts }
end

function M.Normalize:transform(img) return F.normalize(img, self.mean, self.std, self.o) end

--- Another dtype. With scale, values keep their meaning (0 to 255 as 0 to 1).
--- example: accel.vision.transforms.ToDtype("f32", { scale = true })(accel.full({ 1, 1, 1 }, 255, { dtype = "u8" })) --> { { { 1 } } }
---@class accel.vision.transforms.ToDtype : accel.vision.transforms.Transform
M.ToDtype = Transform:extend "accel.vision.transforms.ToDtype"

---@param dtype string
---@param opts? {scale: boolean?}
function M.ToDtype:init(dtype, opts)
  self.o = options("ToDtype", opts, { scale = false })
  self.dtype, self.args = dtype, { dtype, opts }
end

function M.ToDtype:transform(img) return F.to_dtype(img, self.dtype, self.o) end

--- ToDtype with scale = true.
--- example: accel.vision.transforms.ConvertImageDtype()(accel.full({ 1, 1, 1 }, 255, { dtype = "u8" })) --> { { { 1 } } }
---@class accel.vision.transforms.ConvertImageDtype : accel.vision.transforms.Transform
M.ConvertImageDtype = Transform:extend "accel.vision.transforms.ConvertImageDtype"

---@param dtype? string Default: "f32"
function M.ConvertImageDtype:init(dtype) self.dtype, self.args = dtype or "f32", { dtype } end

function M.ConvertImageDtype:transform(img) return F.convert_image_dtype(img, self.dtype) end

--- u8 pictures as f32 from 0 to 1.
--- example: accel.vision.transforms.ToTensor()(accel.full({ 1, 1, 1 }, 51, { dtype = "u8" })).dtype --> "f32"
---@class accel.vision.transforms.ToTensor : accel.vision.transforms.Transform
M.ToTensor = Transform:extend "accel.vision.transforms.ToTensor"

function M.ToTensor:init() self.args = {} end

function M.ToTensor:transform(img) return F.to_tensor(img) end -- luacheck: ignore self

--- Pictures as tensors, which they are here already: for scripts of torchvision.
--- example: accel.vision.transforms.ToImage()(accel.ones(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.ToImage : accel.vision.transforms.Transform
M.ToImage = Transform:extend "accel.vision.transforms.ToImage"

function M.ToImage:init() self.args = {} end

function M.ToImage:transform(img) return pictures.picture("ToImage", img) end -- luacheck: ignore self

--- Replaces a random rectangle, with probability p.
--- - scale: least and largest share of the area
--- - ratio: least and largest height / width
--- - value: a number, one a channel, or "random" for normal noise
--- example: accel.vision.transforms.RandomErasing({ p = 0 })(accel.ones(1, 1, 1)) --> { { { 1 } } }
---@class accel.vision.transforms.RandomErasing : accel.vision.transforms.Transform
M.RandomErasing = Transform:extend "accel.vision.transforms.RandomErasing"

---@param opts? {p: number?, scale: number[]?, ratio: number[]?, value: (number|number[]|string)?, inplace: boolean?}
function M.RandomErasing:init(opts)
  local o = options("RandomErasing", opts, { p = 0.5, scale = { 0.02, 0.33 }, ratio = { 0.3, 3.3 }, value = options.none, inplace = false })
  self.p, self.args = draws.probability("RandomErasing", o.p), { opts }
  self.scale, self.ratio = draws.range("RandomErasing", "scale", o.scale), draws.range("RandomErasing", "ratio", o.ratio)
  self.value, self.o = o.value or 0, { inplace = o.inplace }
  if type(self.value) == "string" and self.value ~= "random" then raise("RandomErasing: value must be numbers or 'random', got '%s'", self.value) end
end

function M.RandomErasing:transform(img)
  if not chance(self.p) then return img end
  local h, w = pictures.size(img)
  local low, high = math.log(self.ratio[1]), math.log(self.ratio[2])
  for _ = 1, 10 do
    local area, ratio = h * w * uniform(self.scale[1], self.scale[2]), math.exp(uniform(low, high))
    local eh, ew = pictures.round((area * ratio) ^ 0.5), pictures.round((area / ratio) ^ 0.5)
    if eh > 0 and ew > 0 and eh < h and ew < w then
      local value
      if self.value == "random" then
        value = accel.randn({ img:size(-3), eh, ew }, { device = img.device }):to(img.dtype)
      else
        value = accel.tensor(pictures.fill("RandomErasing", self.value, img:size(-3)), { dtype = img.dtype, device = img.device }):view { -1, 1, 1 }
      end
      return F.erase(img, math.random(0, h - eh), math.random(0, w - ew), eh, ew, value, self.o)
    end
  end
  return img
end

return M
