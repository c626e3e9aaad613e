--- The operations that RandAugment, TrivialAugmentWide and AutoAugment draw, by torchvision's names and magnitudes.
local F = require "accel.vision.transforms.functional"
local raise = require "accel.util.raise"

local function affine(translate, shear, o)
  return function(img)
    local options = { interpolation = o.interpolation, fill = o.fill, backend = o.backend }
    if not translate then options.center = { 0, 0 } end
    return F.affine(img, 0, translate or { 0, 0 }, 1, shear or { 0, 0 }, options)
  end
end

local OPS <const> = {
  Identity = function(x) return x end,
  ShearX = function(x, m, o) return affine(nil, { math.deg(math.atan(m)), 0 }, o)(x) end,
  ShearY = function(x, m, o) return affine(nil, { 0, math.deg(math.atan(m)) }, o)(x) end,
  TranslateX = function(x, m, o) return affine({ m < 0 and math.ceil(m) or math.floor(m), 0 }, nil, o)(x) end,
  TranslateY = function(x, m, o) return affine({ 0, m < 0 and math.ceil(m) or math.floor(m) }, nil, o)(x) end,
  Rotate = function(x, m, o) return F.rotate(x, m, { interpolation = o.interpolation, fill = o.fill, backend = o.backend }) end,
  Brightness = function(x, m) return F.adjust_brightness(x, 1 + m) end,
  Color = function(x, m) return F.adjust_saturation(x, 1 + m) end,
  Contrast = function(x, m) return F.adjust_contrast(x, 1 + m) end,
  Sharpness = function(x, m) return F.adjust_sharpness(x, 1 + m) end,
  Posterize = function(x, m) return F.posterize(x, m // 1 | 0) end,
  Solarize = function(x, m) return F.solarize(x, m) end,
  AutoContrast = function(x) return F.autocontrast(x) end,
  Equalize = function(x) return F.equalize(x) end,
  Invert = function(x) return F.invert(x) end,
}

--- Applies an operation: apply(img, name, magnitude, { interpolation =, fill =, backend = }).
return function(img, name, magnitude, o)
  local op = OPS[name] or raise("no operation '%s'", name)
  return op(img, magnitude, o)
end
