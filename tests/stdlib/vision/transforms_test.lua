-- Transforms: values by hand, the rules of sizes and draws, and the same augmentation for any number of workers. data_files_transforms.lua
-- compares with Pillow and torchvision.
local accel = require "accel"
local T = accel.vision.transforms
local F = T.functional
local seed = tonumber(os.getenv "ACCEL_TEST_SEED") or 11
print("seed", seed)
math.randomseed(seed)
accel.manual_seed(seed)

local function u8(values) return accel.tensor(values, { dtype = "u8" }) end
local function list(t) return t:contiguous():view({ -1 }):tolist() end

local function same(t, values)
  local got = list(t)
  assert(#got == #values, ("%d values, not %d"):format(#got, #values))
  for i, v in ipairs(values) do assert(math.abs(got[i] - v) < 1e-5, ("value %d is %s, not %s"):format(i, got[i], v)) end
end

local function refused(text, f, ...)
  local ok, e = pcall(f, ...)
  assert(not ok and tostring(e):find(text, 1, true), ("%s, not an error with '%s'"):format(tostring(e), text))
end

local function size(t, h, w) assert(t:size(-2) == h and t:size(-1) == w, tostring(t.shape)) end

-- functions, by hand
same(F.resize(u8 { { { 0, 100 }, { 100, 200 } } }, { 1, 1 }), { 100 }) -- the mean of all four
same(F.resize(accel.tensor { { { 0.0, 1.0 } } }, { 1, 1 }), { 0.5 })
same(F.resize(u8 { { { 1, 2, 3, 4 } } }, { 1, 2 }, { interpolation = "nearest" }), { 1, 3 })
same(F.resize(u8 { { { 1, 2, 3, 4 } } }, { 1, 2 }, { interpolation = "nearest-exact" }), { 2, 4 })
size(F.resize(accel.zeros(3, 20, 30), 10), 10, 15)
size(F.resize(accel.zeros(3, 30, 20), { 10 }, { max_size = 12 }), 12, 8)
size(F.resize(accel.zeros(2, 3, 8, 8, { dtype = "u8" }), { 4, 5 }), 4, 5)
same(F.crop(u8 { { { 1, 2 }, { 3, 4 } } }, -1, 1, 2, 2), { 0, 0, 2, 0 })
same(F.center_crop(u8 { { { 1, 2, 3 } } }, { 3, 1 }), { 0, 2, 0 })
same(F.pad(u8 { { { 1, 2, 3 } } }, { 2, 0 }, { padding_mode = "reflect" }), { 3, 2, 1, 2, 3, 2, 1 })
same(F.pad(u8 { { { 1, 2 } } }, { 2, 0 }, { padding_mode = "symmetric" }), { 2, 1, 1, 2, 2, 1 })
same(F.pad(u8 { { { 1 } } }, { 1, 0, 0, 0 }, { fill = 7 }), { 7, 1 })
for _, backend in ipairs { "torchvision", "pil" } do -- counter-clockwise
  same(F.rotate(u8 { { { 1, 2 }, { 3, 4 } } }, 90, { backend = backend }), { 2, 4, 1, 3 })
  local wide = F.rotate(u8 { { { 1, 2, 3 } } }, 90, { backend = backend, expand = true })
  size(wide, 3, 1)
  same(wide, { 3, 2, 1 })
  same(F.affine(u8 { { { 1, 2, 3 } } }, 0, { 1, 0 }, 1, 0, { backend = backend, fill = 9 }), { 9, 1, 2 })
end
same(F.adjust_brightness(u8 { { { 100, 200 } } }, 1.5), { 150, 255 })
same(F.adjust_brightness(accel.tensor { { { 0.25, 0.75 } } }, 2), { 0.5, 1 })
same(F.adjust_contrast(u8 { { { 0, 200 } } }, 0), { 100, 100 })
same(F.adjust_saturation(u8 { { { 255 } }, { { 0 } }, { { 0 } } }, 0), { 76, 76, 76 })
same(F.adjust_hue(u8 { { { 255 } }, { { 0 } }, { { 0 } } }, 1 / 3), { 0, 255, 0 })
same(F.adjust_hue(accel.tensor { { { 1.0 } }, { { 0.0 } }, { { 0.0 } } }, -1 / 3), { 0, 0, 1 })
same(F.solarize(u8 { { { 99, 100 } } }, 100), { 99, 155 })
same(F.posterize(u8 { { { 255, 37 } } }, 3), { 224, 32 })
same(F.autocontrast(u8 { { { 50, 100, 150 } } }), { 0, 127, 255 })
same(F.equalize(u8 { { { 5, 5 } } }), { 5, 5 })
same(F.gaussian_blur(accel.ones(1, 4, 4), 3, { sigma = 1 }):narrow(2, 1, 1):narrow(3, 1, 1), { 1 })
same(F.normalize(accel.tensor { { { 1.0 } }, { { 3.0 } } }, { 0, 1 }, { 1, 2 }), { 1, 1 })
same(F.to_dtype(u8 { { { 255, 51 } } }, "f32", { scale = true }), { 1, 0.2 })
same(F.to_dtype(accel.tensor { { { 1.0, 0.5 } } }, "u8", { scale = true }), { 255, 127 })
same(F.erase(u8 { { { 1, 2 }, { 3, 4 } } }, 0, 1, 2, 1, 0), { 1, 0, 3, 0 })

-- draws stay in their ranges, and every transform keeps what it does not touch
local photo = (accel.rand(3, 24, 36) * 255):to "u8"
for _ = 1, 20 do
  size(T.RandomResizedCrop(8)(photo), 8, 8)
  size(T.RandomCrop({ 10, 12 }, { padding = 2 })(photo), 10, 12)
  local top, left, h, w = T.RandomResizedCrop(8, { scale = { 0.2, 0.4 } }):box(24, 36)
  assert(top >= 0 and left >= 0 and top + h <= 24 and left + w <= 36 and h * w > 0.15 * 864 and h * w < 0.45 * 864)
  local erased = T.RandomErasing({ p = 1, scale = { 0.1, 0.2 }, value = 0 })(accel.ones(1, 30, 30))
  local share = 1 - erased:mean():item()
  assert(share > 0.05 and share < 0.25, share)
end
do -- pictures from files are on the CPU, whatever the default device is
  local picture = accel.full({ 3, 16, 16 }, 9, { dtype = "u8", device = "cpu" })
  local _ <close> = accel.device "meta"
  for _, t in ipairs { T.Resize(8), T.RandomResizedCrop(8), T.RandomRotation(30), T.RandomPerspective { p = 1 }, T.GaussianBlur(3), T.RandAugment(),
    T.ColorJitter { brightness = 0.2, hue = 0.2 }, T.Compose { T.ToTensor(), T.Normalize({ 0.5 }, { 0.5 }), T.RandomErasing { p = 1 } },
    T.Compose { T.ToTensor(), T.RandomErasing { p = 1, value = "random" } } } do
    assert(t(picture).device == "cpu", tostring(t))
  end
end
assert(T.RandomHorizontalFlip(0)(photo) == photo and T.RandomHorizontalFlip(1)(photo):eq(photo:flip(3)):all():item())
local chain = T.Compose { T.RandAugment { fill = { 1, 2, 3 } }, T.TrivialAugmentWide(),
  T.RandomApply({ T.ColorJitter { brightness = 0.4, hue = 0.1 } }, 0.5),
  T.RandomChoice({ T.RandomInvert(1), T.Grayscale(3) }, { 1, 3 }), T.RandomOrder { T.GaussianBlur(3), T.RandomRotation(10) },
  T.RandomAffine(10, { translate = { 0.1, 0.1 }, scale = { 0.9, 1.1 }, shear = 5 }), T.RandomPerspective(), T.ToTensor() }
local sample = chain { image = photo, label = 3 }
assert(sample.label == 3 and sample.image.dtype == "f32" and sample.image:max():item() <= 1)
local mixed = T.MixUp { num_classes = 3 }(accel.rand(4, 3, 8, 8), accel.tensor({ 0, 1, 2, 0 }, { dtype = "i64" }))
same(mixed[2]:sum(2), { 1, 1, 1, 1 })
local cut = T.CutMix { num_classes = 3 }(accel.rand(4, 3, 8, 8), accel.tensor({ 0, 1, 2, 0 }, { dtype = "i64" }))
same(cut[2]:sum(2), { 1, 1, 1, 1 })

-- misuse
refused("unknown option 'antialiased'; did you mean 'antialias'?", T.Resize, 4, { antialiased = true })
refused("interpolation must be one of", F.resize, photo, 4, { interpolation = "cubic" })
refused("Resize: size must be a positive integer, got '224'", T.Resize, "224")
refused("mean must be one number, or a list of 3 for 3 channels", F.normalize, accel.zeros(3, 1, 1), { 1, 2 }, 1)
refused("backend = 'pil' needs a u8 picture", F.rotate, accel.zeros(1, 2, 2), 3, { backend = "pil" })
refused("RandomCrop: size 30 x 30 is larger than the picture, 24 x 36", T.RandomCrop(30), photo)
size(T.RandomCrop(30, { pad_if_needed = true })(photo), 30, 30)
refused("expected a tensor of shape", F.hflip, 3)
refused("std must not be 0", F.normalize, accel.zeros(1, 1, 1), { 0 }, { 0 })
refused("the sample holds no picture", T.ToTensor(), { 1, 2 })

-- a folder of classes, read by loaders with 0, 1 and 3 workers: the same pictures in the same order, other ones in the next epoch
local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/transforms-"))
for _, class in ipairs { "cat", "dog" } do
  assert(require("lfs").mkdir(dir .. "/" .. class))
  for i = 1, 6 do
    local f = assert(io.open(("%s/%s/%d.ppm"):format(dir, class, i), "wb"))
    local bytes = {}
    for k = 1, 12 * 10 * 3 do bytes[k] = string.char((k * i * #class * 7 + k // 5) % 256) end
    f:write("P6 12 10 255\n", table.concat(bytes))
    f:close()
  end
end
local set = accel.data.ImageFolder(dir, { transform = T.Compose { T.RandomResizedCrop(6), T.RandomHorizontalFlip(),
  T.ColorJitter { brightness = 0.5 }, T.ToDtype("f32", { scale = true }) } })
assert(#set == 12 and set.classes[2] == "dog" and set:get(12)[2] == 1)
local function epoch(workers, batch_size, number)
  local loader = accel.data.DataLoader { dataset = set, batch_size = batch_size, shuffle = true, seed = 5, num_workers = workers }
  if loader.set_epoch then loader:set_epoch(number) end
  local all, labels = {}, {}
  for batch in loader() do
    all[#all + 1] = batch[1]
    for _, label in ipairs(batch[2]:tolist()) do labels[#labels + 1] = label end
  end
  return accel.cat(all, 1), table.concat(labels)
end
local first, labels = epoch(0, 4, 0)
size(first, 6, 6)
for _, workers in ipairs { 0, 1, 3 } do
  for _, batch_size in ipairs { 4, 3 } do
    local again, others = epoch(workers, batch_size, 0)
    assert(others == labels and again:eq(first):all():item(), ("%d workers, batches of %d differ"):format(workers, batch_size))
  end
end
assert(not epoch(0, 4, 1):eq(first):all():item())
assert(require("lfs").mkdir(dir .. "/none"))
refused("none has no file with an extension", accel.data.ImageFolder, dir)
assert(#accel.data.ImageFolder(dir, { allow_empty = true }) == 12)
refused("has no folder; expected one for each class", accel.data.ImageFolder, dir .. "/cat")
print "ok"
