-- Transforms for data_files.lua: torchvision's functions on pictures and tensors, Pillow's and timm's, mixes of batches.
local accel = require "accel"
local values = require "data_values"
local F, pil = accel.vision.transforms.functional, accel.vision.pillow
local apply = require "accel.vision.transforms.auto_ops"

local M = {}


--- A function that takes the picture alone.
local function alone(f) return function(x) return f(x) end end

--- Calls a function of torchvision with the row's arguments. backend: of geometric functions.
local tv
local TV = {
  resize = function(x, a) return F.resize(x, a.size, { interpolation = a.interpolation, antialias = a.antialias, max_size = a.max_size }) end,
  resized_crop = function(x, a)
    return F.resized_crop(x, a.top, a.left, a.height, a.width, a.size, { interpolation = a.interpolation, antialias = a.antialias })
  end,
  center_crop = function(x, a) return F.center_crop(x, a.output_size) end,
  crop = function(x, a) return F.crop(x, a.top, a.left, a.height, a.width) end,
  hflip = alone(F.hflip), vflip = alone(F.vflip), invert = alone(F.invert), autocontrast = alone(F.autocontrast), to_tensor = alone(F.to_tensor),
  pad = function(x, a) return F.pad(x, a.padding, { padding_mode = a.padding_mode, fill = a.fill }) end,
  rotate = function(x, a, b) return F.rotate(x, a.angle, { interpolation = a.interpolation, expand = a.expand, fill = a.fill, backend = b }) end,
  affine = function(x, a, b)
    return F.affine(x, a.angle, a.translate, a.scale, a.shear, { interpolation = a.interpolation, fill = a.fill, backend = b })
  end,
  perspective = function(x, a, b) return F.perspective(x, a.startpoints, a.endpoints, { interpolation = a.interpolation, backend = b }) end,
  adjust_brightness = function(x, a) return F.adjust_brightness(x, a.brightness_factor) end,
  adjust_contrast = function(x, a) return F.adjust_contrast(x, a.contrast_factor) end,
  adjust_saturation = function(x, a) return F.adjust_saturation(x, a.saturation_factor) end,
  adjust_hue = function(x, a) return F.adjust_hue(x, a.hue_factor) end,
  adjust_gamma = function(x, a) return F.adjust_gamma(x, a.gamma, { gain = a.gain }) end,
  adjust_sharpness = function(x, a) return F.adjust_sharpness(x, a.sharpness_factor) end,
  rgb_to_grayscale = function(x, a) return F.rgb_to_grayscale(x, { num_output_channels = a.num_output_channels }) end,
  gaussian_blur = function(x, a) return F.gaussian_blur(x, a.kernel_size, { sigma = a.sigma }) end,
  solarize = function(x, a) return F.solarize(x, a.threshold) end,
  to_dtype = function(x, a) return F.convert_image_dtype(x, a.dtype) end,
  normalize = function(x, a) return F.normalize(x, a.mean, a.std) end,
  erase = function(x, a) return F.erase(x, a.i, a.j, a.h, a.w, accel.tensor(a.v, { dtype = x.dtype }):view { -1, 1, 1 }) end,
  five_crop = function(x, a) return accel.stack(F.five_crop(x, a.size), 1) end,
  ten_crop = function(x, a) return accel.stack(F.ten_crop(x, a.size), 1) end,
  randaugment = function(x, a, b) return apply(x, a.name, a.magnitude, { interpolation = a.interpolation, fill = a.fill, backend = b }) end,
  color_jitter = function(x, a)
    for _, what in ipairs(a.order) do x = F["adjust_" .. what](x, a[what]) end
    return x
  end,
  chain = function(x, a, b)
    for _, step in ipairs(a.steps) do x = tv(step[1], x, step[2], b) end
    return x
  end,
}
function tv(op, x, a, backend) return (TV[op] or error("no function for " .. op))(x, a, backend) end

local function lut(name) return function(x, a) return F[name](x, a.bits or a.threshold) end end

local PIL <const> = {
  resize = function(x, a) return pil.resize(x, a.size_wh, { resample = a.mode, box = a.box }) end,
  thumbnail = function(x, a) return pil.thumbnail(x, a.size_wh, { resample = a.mode }) end,
  rotate = function(x, a) return pil.rotate(x, a.angle, { resample = a.mode, expand = a.expand, fillcolor = a.fill }) end,
  affine = function(x, a) return pil.transform(x, a.size_wh, a.matrix, { resample = a.mode, fillcolor = a.fill }) end,
  crop = function(x, a) return F.crop(x, a.box[2], a.box[1], a.box[4] - a.box[2], a.box[3] - a.box[1]) end,
  convert = function(x, a) return pil.convert(x, a.mode) end,
  enhance = function(x, a)
    local name = { Color = "saturation", Contrast = "contrast", Brightness = "brightness", Sharpness = "sharpness" }
    return F["adjust_" .. name[a.what]](x, a.factor)
  end,
  blur = function(x, a) return pil.gaussian_blur(x, a.radius) end,
  transpose = function(x, a)
    local t = x:transpose(2, 3)
    return a.how == "ROTATE_90" and t:flip(2) or a.how == "TRANSPOSE" and t or error(a.how)
  end,
  fit = function(x, a) return pil.fit(x, a.size) end,
  pad = function(x, a) return pil.pad(x, a.size, { color = a.color }) end,
  mirror = alone(F.hflip), flip = alone(F.vflip), invert = alone(F.invert), equalize = alone(F.equalize), posterize = lut "posterize", solarize = lut "solarize",
  autocontrast = function(x, a) return F.autocontrast(x, { cutoff = a.cutoff }) end,
}

local function timm_affine(matrix)
  return function(x, p, o)
    return pil.transform(x, { x:size(3), x:size(2) }, matrix(p[1], x), { resample = o.resample, fillcolor = o.fillcolor })
  end
end

local TIMM <const> = {
  shear_x = timm_affine(function(v) return { 1, v, 0, 0, 1, 0 } end), shear_y = timm_affine(function(v) return { 1, 0, 0, v, 1, 0 } end),
  translate_x_rel = timm_affine(function(v, x) return { 1, 0, v * x:size(3), 0, 1, 0 } end),
  translate_y_rel = timm_affine(function(v, x) return { 1, 0, 0, 0, 1, v * x:size(2) } end),
  translate_x_abs = timm_affine(function(v) return { 1, 0, v, 0, 1, 0 } end),
  rotate = function(x, p, o) return pil.rotate(x, p[1], { resample = o.resample, fillcolor = o.fillcolor }) end,
  auto_contrast = alone(F.autocontrast), invert = alone(F.invert), equalize = alone(F.equalize),
  solarize = function(x, p) return F.solarize(x, p[1]) end, posterize = function(x, p) return F.posterize(x, p[1]) end,
  solarize_add = function(x, p) return pil.solarize_add(x, p[1], { thresh = p[2] }) end,
  contrast = function(x, p) return F.adjust_contrast(x, p[1]) end, color = function(x, p) return F.adjust_saturation(x, p[1]) end,
  brightness = function(x, p) return F.adjust_brightness(x, p[1]) end, sharpness = function(x, p) return F.adjust_sharpness(x, p[1]) end,
}

--- timm.data.create_transform in evaluation.
local function timm_eval(x, a)
  local h, w = a.input_size[2], a.input_size[3]
  local sh, sw = h / a.crop_pct // 1 | 0, w / a.crop_pct // 1 | 0
  local o = { interpolation = a.interpolation }
  if a.crop_mode == "squash" then
    x = F.resize(x, { sh, sw }, o)
  elseif a.crop_mode == "border" then
    local ratio = math.max(x:size(2) / sh, x:size(3) / sw)
    x = F.resize(x, { (x:size(2) / ratio + 0.5) // 1 | 0, (x:size(3) / ratio + 0.5) // 1 | 0 }, o)
    local h0, w0 = x:size(2), x:size(3)
    local across, down = math.max(0, w - w0), math.max(0, h - h0)
    x = F.pad(x, { across // 2, down // 2, (across + 1) // 2, (down + 1) // 2 }, { fill = { 124, 116, 104 } })
  else
    x = F.resize(x, sh, o)
  end
  return F.normalize(F.to_tensor(F.center_crop(x, { h, w })), { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 })
end

local function mix(x, row)
  local a, batch = row.args, {}
  for i, at in ipairs(a.crops) do batch[i] = F.crop(F.to_tensor(x), at[1], at[2], a.size, a.size) end
  local T = accel.vision.transforms
  local labels = accel.tensor(a.labels, { dtype = "i64" })
  local images, targets
  if row.op == "mixup" then
    images, targets = T.functional.mixup(accel.stack(batch, 1), labels, { lam = a.lam, num_classes = a.classes })
  else
    images, targets = T.functional.cutmix(accel.stack(batch, 1), labels, { box = a.box, num_classes = a.classes })
  end
  return { out = images, targets = targets }
end

local function hwc(t) return #t.shape == 3 and t:permute { 2, 3, 1 } or t end

function M.read(path, row)
  local x, message = accel.vision.io.read_image(path)
  if not x then return nil, message end
  local kind = row.reader
  if kind == "mix" then return mix(x, row) end
  if kind == "pil_op" then return { out = hwc(PIL[row.op](x, row.args)) } end
  if kind == "timm" then return { out = hwc(TIMM[row.op](x, row.args.positional, row.args)) } end
  if kind == "timm_eval" then return { out = timm_eval(x, row.args) } end
  if kind == "torchvision_u8" and row.op == "resize" and row.args.interpolation == "bicubic" then
    -- the reference's functions of version 1 go through f32, those of version 2 cut values below 0 and above 255 between rows and columns
    return { out = tv(row.op, x:to "f32", row.args):round():clamp(0, 255):to "u8" }
  end
  if kind == "torchvision_u8" then return { out = tv(row.op, x, row.args) } end
  if kind == "torchvision_f64" then return { out = tv(row.op, x:to "f64" / 255, row.args):to "f32" } end
  local out = tv(row.op, x, row.args, "pil")
  return { out = out.dtype == "u8" and hwc(out) or out }
end

function M.compare(got, row, report, want)
  for name, expected in next, want do values.tensor(report, name, got[name], expected, row.tolerance) end
end

return M
