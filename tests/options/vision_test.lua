-- Options of accel.vision: each one changes the picture, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/vision_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "vision"
local vision = accel.vision
local T = vision.transforms
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options_vision")

accel.manual_seed(1)
local photo = (accel.rand(3, 20, 24) * 255):to "u8"
local floats = photo:to "f32" / 255
assert(require("lfs").mkdir(folder .. "/a"))
accel.write_file(folder .. "/a/1.ppm", "P6 2 1 255\n123456")
accel.write_file(folder .. "/a/w.pgm", "P5 2 1 65535\n\x12\x34\xff\xff")

--- The values of a result: a picture, a list of pictures, or what failed.
local function seen(x)
  if type(x) == "table" and x.shape == nil then
    local list = {}
    for i, v in ipairs(x) do list[i] = seen(v) end
    return list
  end
  local dtype = x.dtype
  if dtype == "u16" then x = x:to "i32" end
  return { x:contiguous():view({ -1 }):tolist(), tostring(x.shape), dtype }
end

--- A class of transforms, made with leading arguments and called with the same draws.
local function drawn(...)
  local leading = table.pack(...)
  return function(call)
    local t = call(table.unpack(leading, 1, leading.n))
    local list = {}
    for k = 1, 4 do
      math.randomseed(k)
      accel.manual_seed(k)
      list[k] = seen(t(photo))
    end
    return list
  end
end

--- A function with the picture and leading arguments.
local function applied(x, ...)
  local leading = table.pack(...)
  return function(call)
    local out = table.pack(call(x:clone(), table.unpack(leading, 1, leading.n)))
    for i = 1, out.n do out[i] = seen(out[i]) end
    return table.unpack(out, 1, out.n)
  end
end

local WARP <const> = { interpolation = { "bilinear" }, fill = { 9, { 1, 2, 3 } }, center = { { 1, 2 } }, backend = { "pil" }, expand = { true } }
local SMOOTH <const> = { backend = { interpolation = "bilinear" } } -- of nearest pixels the backends differ seldom
local F = "accel.vision.transforms.functional."
local C = "accel.vision.transforms."

s:recipe(F .. "resize", { run = applied(photo, 10), values = { interpolation = { "bicubic", "nearest" }, max_size = { 11 },
  antialias = { false } } })
s:recipe(F .. "resized_crop", { run = applied(photo, 1, 2, 12, 13, 7), values = { interpolation = { "bicubic" },
  antialias = { false } } })
s:recipe(C .. "Resize", { run = drawn(10), values = { interpolation = { "bicubic" }, max_size = { 11 }, antialias = { false } } })
s:recipe(F .. "rotate", { run = applied(photo, 30), values = WARP, with = SMOOTH })
s:recipe(F .. "affine", { run = applied(photo, 20, { 2, 1 }, 1.2, 5), values = WARP, with = SMOOTH })
s:recipe(F .. "perspective", { run = applied(photo, { { 0, 0 }, { 23, 0 }, { 23, 19 }, { 0, 19 } },
  { { 2, 3 }, { 20, 1 }, { 21, 17 }, { 1, 18 } }), values = { interpolation = { "nearest" }, fill = { 9 }, backend = { "pil" } } })
s:recipe(F .. "pad", { run = applied(photo, { 2, 3 }), values = { fill = { 9, { 1, 2, 3 } }, padding_mode = { "edge", "reflect" } } })
s:recipe(F .. "ten_crop", { run = applied(photo, 5), values = { vertical_flip = { true } } })
s:recipe(F .. "erase", { run = function(call)
  local x = photo:clone()
  local y = call(x, 1, 1, 3, 3, 0)
  return seen(y), y == x
end, values = { inplace = { true } } })
s:recipe(F .. "rgb_to_grayscale", { run = applied(photo), values = { num_output_channels = { 3 } } })
s:recipe(F .. "adjust_gamma", { run = applied(photo, 0.8), values = { gain = { 0.5 } } })
s:recipe(F .. "autocontrast", { run = applied(photo), values = { cutoff = { 5, { 2, 9 } } } })
s:recipe(F .. "gaussian_blur", { run = applied(photo, 5), values = { sigma = { 2.5, { 0.3, 2 } } } })
s:recipe(F .. "to_dtype", { run = applied(photo, "f32"), values = { scale = { true } } })
s:recipe(F .. "normalize", { run = function(call)
  local x = floats:clone()
  return seen(call(x, { 0.1, 0.2, 0.3 }, { 1, 2, 3 })), seen(x)
end, values = { inplace = { true } } })
local labels = accel.tensor({ 0, 2 }, { dtype = "i64" })
s:recipe(F .. "mixup", { base = function() return { lam = 0.3, num_classes = 3 } end,
  run = applied(accel.stack({ floats, floats * 0.5 }, 1), labels), values = { lam = { 0.6 }, num_classes = { 4 } } })
s:recipe(F .. "cutmix", { base = function() return { box = { 1, 2, 5, 6 }, num_classes = 3 } end,
  run = applied(accel.stack({ floats, floats * 0.5 }, 1), labels), values = { box = { { 1, 1, 9, 9 } }, num_classes = { 4 } } })

s:recipe({ C .. "RandomHorizontalFlip", C .. "RandomVerticalFlip", C .. "RandomInvert", C .. "RandomEqualize", C .. "RandomAutocontrast",
  C .. "RandomGrayscale" }, { run = drawn(), values = { p = { 1.0 } } })
s:recipe(C .. "RandomPosterize", { run = drawn(2), values = { p = { 1.0 } } })
s:recipe(C .. "RandomSolarize", { run = drawn(99), values = { p = { 1.0 } } })
s:recipe(C .. "RandomAdjustSharpness", { run = drawn(3), values = { p = { 1.0 } } })
s:recipe(C .. "Grayscale", { run = drawn(), values = { num_output_channels = { 3 } } })
s:recipe(C .. "ConvertImageDtype", { run = drawn(), values = { dtype = { "i16" } } })
s:recipe(C .. "GaussianBlur", { run = drawn(5), values = { sigma = { 2.5, { 0.2, 0.3 } } } })
s:recipe(C .. "RandomApply", { run = drawn { T.Pad(1) }, values = { p = { 1.0 } } })
s:recipe(C .. "RandomChoice", { run = drawn { T.Pad(1), T.Pad(2) }, values = { p = { { 1, 0 } } } })
s:recipe(F .. "convert_image_dtype", { run = applied(photo), values = { dtype = { "i16" } } })
s:recipe(C .. "Pad", { run = drawn { 2, 3 }, values = { fill = { 9 }, padding_mode = { "edge" } } })
s:recipe(C .. "RandomCrop", { run = drawn(12), values = { padding = { 6 }, pad_if_needed = { true }, fill = { 9 }, padding_mode = { "edge" } },
  with = { fill = { padding = 9 }, padding_mode = { padding = 9 } }, elsewhere = { pad_if_needed = "tests/stdlib/vision/transforms_test.lua" } })
s:recipe(C .. "RandomResizedCrop", { run = drawn(7), values = { scale = { { 0.1, 0.2 } }, ratio = { { 2, 3 } }, interpolation = { "nearest" },
  antialias = { false } } })
s:recipe(C .. "RandomRotation", { run = drawn(40), values = WARP, with = SMOOTH })
s:recipe(C .. "RandomAffine", { run = drawn(40), values = { translate = { { 0.3, 0.3 } }, scale = { { 0.5, 0.6 } }, shear = { 20, { 1, 9, 5, 9 } },
  interpolation = { "bilinear" }, fill = { 9 }, center = { { 1, 2 } }, backend = { "pil" } }, with = SMOOTH })
s:recipe(C .. "RandomPerspective", { base = function() return { p = 1.0 } end, run = drawn(), values = { distortion_scale = { 0.9 }, p = { 0.0 },
  interpolation = { "nearest" }, fill = { 9 }, backend = { "pil" } } })
s:recipe(C .. "TenCrop", { run = drawn(5), values = { vertical_flip = { true } } })
s:recipe(C .. "ColorJitter", { run = drawn(),
  values = { brightness = { 0.5 }, contrast = { 0.5, { 0.1, 0.2 } }, saturation = { 0.5 }, hue = { 0.3 } } })
s:recipe(C .. "Normalize", { run = function(call)
  local x = floats:clone()
  return seen(call({ 0.1, 0.2, 0.3 }, { 1, 2, 3 })(x)), seen(x)
end, values = { inplace = { true } } })
s:recipe(C .. "ToDtype", { run = drawn "f32", values = { scale = { true } } })
s:recipe(C .. "RandomErasing", { base = function() return { p = 1.0 } end, run = function(call)
  local t, x = call(), floats:clone()
  math.randomseed(3)
  accel.manual_seed(3)
  return seen(t(x)), seen(x)
end, values = { p = { 0.0 }, scale = { { 0.4, 0.5 } }, ratio = { { 2, 3 } }, value = { 0.5, "random" }, inplace = { true } } })
s:recipe({ C .. "AutoAugment", C .. "RandAugment", C .. "TrivialAugmentWide" }, { run = function(call)
  local t, list = call(), {}
  for k = 1, 40 do
    math.randomseed(k)
    list[k] = seen(t(photo))
  end
  return list
end, values = { policy = { "svhn" }, num_ops = { 1 }, magnitude = { 3 }, num_magnitude_bins = { 15 },
  interpolation = { "bilinear" }, fill = { 9 }, backend = { "pil" } }, with = SMOOTH })
s:recipe({ C .. "MixUp", C .. "CutMix" }, { base = function() return { num_classes = 3 } end, run = function(call)
  math.randomseed(5)
  return seen(call()(accel.stack({ floats, floats * 0.5 }, 1), labels))
end, values = { alpha = { 0.2 }, num_classes = { 4 } } })

local pgm = "P5 2 1 65535\n\x12\x34\xff\xff"
s:recipe("accel.vision.io.decode_image", { run = function(call, given)
  if given.max_pixels then return (call(pgm)) end
  return seen(call(pgm))
end, values = { mode = { "RGB" }, bits = { 8 }, layout = { "HWC" }, max_pixels = { 1 } }, raises = { max_pixels = "max_pixels = 1" },
  elsewhere = { apply_exif_orientation = "tests/reference/data_files_pictures.lua", draft = "tests/stdlib/vision/jpeg_test.lua" } })
s:recipe("accel.vision.io.read_image", { run = function(call, given)
  local path = folder .. "/a/w.pgm"
  if given.max_pixels then return (call(path)) end
  return seen(call(path))
end, values = { mode = { "RGB" }, bits = { 8 }, layout = { "HWC" }, max_pixels = { 1 } }, raises = { max_pixels = "max_pixels = 1" },
  elsewhere = { apply_exif_orientation = "tests/reference/data_files_pictures.lua", draft = "tests/stdlib/vision/jpeg_test.lua" } })
local has = {}
for _, library in ipairs(accel.libraries()) do has[library.name] = library.version ~= nil end
for format, option in pairs { jpeg = "quality", png = "compression_level" } do
  local encode, write = "accel.vision.io.encode_" .. format, "accel.vision.io.write_" .. format
  if has[format] then
    s:recipe(encode, { run = applied(photo), values = { [option] = { 3 } } })
    s:recipe(write, { run = function(call)
      call(photo, folder .. "/out")
      return io.open(folder .. "/out", "rb"):read "a"
    end, values = { [option] = { 3 } } })
  else
    s:leave(encode, "the library is missing here")
    s:leave(write, "the library is missing here")
  end
end
s:recipe("accel.vision.ImageProcessor", { run = function(call)
  local config = { image_processor_type = "CLIPImageProcessor", size = 4, crop_size = 7 }
  return seen(call(config, "config")(photo:narrow(3, 1, 20)).pixel_values)
end, values = { backend = { "pil" } } })
s:recipe("accel.vision.AutoImageProcessor.from_pretrained", { run = function(call)
  accel.write_file(folder .. "/preprocessor_config.json", [[{"image_processor_type": "CLIPImageProcessor", "size": 4, "crop_size": 7}]])
  return seen(call(folder)(photo:narrow(2, 1, 20):narrow(3, 1, 20)).pixel_values)
end, values = { backend = { "pil" } } })
s:recipe("accel.vision.pillow.resize", { run = applied(photo, { 7, 8 }), values = { resample = { "box", "lanczos" }, box = { { 1, 1, 9, 9 } } } })
s:recipe("accel.vision.pillow.transform", { run = applied(photo, { 9, 9 }, { 1, 0.2, 0.5, 0.1, 1, -3 }), values = { resample = { "bicubic" },
  fillcolor = { 9 } } })
s:recipe("accel.vision.pillow.rotate", { run = applied(photo, 30), values = { resample = { "bicubic" }, expand = { true }, fillcolor = { 9 } } })
s:recipe("accel.vision.pillow.fit", { run = applied(photo, { 7, 8 }), values = { resample = { "box" } } })
s:recipe("accel.vision.pillow.pad", { run = applied(photo, { 7, 18 }), values = { resample = { "box" }, color = { 9 } } })
s:recipe("accel.vision.pillow.thumbnail", { run = applied(photo, { 7, 8 }), values = { resample = { "box" } } })
s:recipe("accel.vision.pillow.solarize_add", { run = applied(photo, 30), values = { thresh = { 60 } } })
s:recipe("accel.vision.ImageFolder", { run = function(call)
  local set = call(folder)
  local list = { #set.samples }
  for i = 1, #set do list[i + 1] = { seen(set:get(i)[1]), set:get(i)[2] } end
  return list
end, values = { transform = { T.Pad(1) }, target_transform = { function(c) return c + 5 end }, mode = { "GRAY" } },
  elsewhere = { apply_exif_orientation = "tests/reference/data_files_pictures.lua", draft = "tests/stdlib/vision/jpeg_test.lua",
    allow_empty = "tests/stdlib/vision/transforms_test.lua" } })

s:finish()
