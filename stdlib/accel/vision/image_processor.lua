--- Image processors of models, from the preprocessor_config.json next to their weights: the pictures that a ViT, DeiT, CLIP, SigLIP, BiT or
--- ConvNeXt expects.
---
---   local processor = accel.vision.AutoImageProcessor.from_pretrained "vit"        -- a folder
---   local x = processor(accel.vision.io.read_image "photo.jpg").pixel_values        -- f32 [1, 3, 224, 224]
---
--- Resizing is Pillow's to the last bit.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.vision.core"
local F = require "accel.vision.transforms.functional"
local options = require "accel.util.options"
local pictures = require "accel.vision.transforms.pictures"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local tensors = require "accel.util.tensors"

local FILTERS <const> = { [0] = "nearest", "lanczos", "bilinear", "bicubic", "box", "hamming" }

local STANDARD <const> = { mean = { 0.5, 0.5, 0.5 }, std = { 0.5, 0.5, 0.5 } }
local IMAGENET <const> = { mean = { 0.485, 0.456, 0.406 }, std = { 0.229, 0.224, 0.225 } }
local CLIP <const> = { mean = { 0.48145466, 0.4578275, 0.40821073 }, std = { 0.26862954, 0.26130258, 0.27577711 } }

--- What each class does if its file leaves it out.
local KINDS <const> = {
  ViT = { size = { height = 224, width = 224 }, resample = 2, values = STANDARD },
  DeiT = { size = { height = 256, width = 256 }, crop_size = { height = 224, width = 224 }, do_center_crop = true, resample = 3, values = IMAGENET },
  CLIP = { size = { shortest_edge = 224 }, crop_size = { height = 224, width = 224 }, do_center_crop = true, resample = 3, values = CLIP,
    do_convert_rgb = true },
  Bit = { size = { shortest_edge = 224 }, crop_size = { height = 224, width = 224 }, do_center_crop = true, resample = 3, values = CLIP,
    do_convert_rgb = true },
  Siglip = { size = { height = 224, width = 224 }, resample = 3, values = STANDARD },
  ConvNext = { size = { shortest_edge = 384 }, resample = 2, values = IMAGENET, crop_pct = 224 / 256 },
}

--- Keys that change no pixel.
local IDLE <const> = { image_processor_type = true, feature_extractor_type = true, processor_class = true, data_format = true, device = true,
  return_tensors = true, input_data_format = true, disable_grouping = true, default_to_square = true, do_reduce_labels = false, do_pad = false }

--- example: local p = accel.vision.ImageProcessor({ image_processor_type = "ViTImageProcessor", size = 4 }, "config")
---   return p(accel.zeros({ 3, 8, 8 }, { dtype = "u8" })).pixel_values.shape --> {1, 3, 4, 4}
---@class accel.vision.ImageProcessor
---@field config table
local ImageProcessor = class("accel.vision.ImageProcessor")

local function size_of(path, name, v)
  if math.type(v) == "integer" then return { shortest_edge = v } end
  local function whole(name_of) return math.type(v[name_of]) == "integer" end
  local ok = type(v) == "table" and (whole "height" and whole "width" or whole "shortest_edge")
  if not ok then raise("%s: %s must have height and width, or shortest_edge", path, name) end
  for _, n in next, v do
    if math.type(n) ~= "integer" or n < 1 or n > 1 << 16 then raise("%s: %s has %s; expected 1 to 65536", path, name, check.shown(n)) end
  end
  return v
end

local function numbers(path, name, v)
  if type(v) == "number" then v = { v, v, v } end
  local ok = type(v) == "table" and #v >= 1 and #v <= 4
  for _, n in ipairs(ok and v or {}) do ok = ok and type(n) == "number" end
  return ok and v or raise("%s: %s must be a list of numbers, got %s", path, name, check.shown(v))
end

---@param config table of a preprocessor_config.json
---@param path string for messages
---@param backend? string "torchvision" (default) or "pil"
function ImageProcessor:init(config, path, backend)
  local name = tostring(config.image_processor_type or config.feature_extractor_type or "")
  local kind = name:gsub("Fast$", ""):gsub("Pil$", ""):gsub("ImageProcessor$", ""):gsub("FeatureExtractor$", "")
  local given = KINDS[kind]
  if not given then
    raise("%s: image_processor_type is '%s'; supported are ViT, DeiT, CLIP, Bit, Siglip and ConvNext", path, name)
  end
  local c = { kind = kind, backend = backend or "torchvision", do_resize = true, do_rescale = true, do_normalize = true,
    do_center_crop = given.do_center_crop or false, do_convert_rgb = given.do_convert_rgb or false,
    size = given.size, crop_size = given.crop_size, resample = given.resample, rescale_factor = 1 / 255,
    image_mean = given.values.mean, image_std = given.values.std, crop_pct = given.crop_pct }
  for key, value in next, config do
    if c[key] ~= nil and key ~= "kind" and key ~= "backend" then
      if type(c[key]) == "boolean" and type(value) ~= "boolean" then raise("%s: %s must be true or false", path, key) end
      c[key] = value
    elseif not IDLE[key] and value ~= false and value ~= accel.json.null then
      raise("%s: the key '%s' is not supported; remove it if the model does not need it", path, key)
    end
  end
  c.size = size_of(path, "size", c.size)
  if c.crop_size then c.crop_size = size_of(path, "crop_size", c.crop_size) end
  if not FILTERS[c.resample] then raise("%s: resample is %s; expected 0 to 5", path, check.shown(c.resample)) end
  c.image_mean, c.image_std = numbers(path, "image_mean", c.image_mean), numbers(path, "image_std", c.image_std)
  self.config = c
end

local function resized(x, h, w, c)
  local rows = pictures.rows(x)
  if c.resample == 0 then return F.resize(x, { h, w }, { interpolation = "nearest-exact" }) end
  return pictures.planes(core.resample(rows, h, w, c.resample, { 0, 0, x:size(3), x:size(2) }))
end

local function shorter(x, n)
  local h, w = x:size(2), x:size(3)
  local long = math.tointeger(n * math.max(h, w) / math.min(h, w) // 1)
  return h <= w and n or long, h <= w and long or n
end

--- The middle, padded with 0. Odd borders have their smaller half first, but where the pil backend pads.
local function center_crop(x, h, w, c)
  local function first(n, want) -- 0-based, negative where the picture is smaller
    if n >= want then return (n - want) // 2 end
    return c.backend == "pil" and (n - want) // 2 or -((want - n) // 2)
  end
  return F.crop(x, first(x:size(2), h), first(x:size(3), w), h, w)
end

local function resize(x, c)
  local s = c.size
  if s.height then return resized(x, s.height, s.width, c) end
  if c.kind ~= "ConvNext" then
    local h, w = shorter(x, s.shortest_edge)
    return resized(x, h, w, c)
  end
  local n = s.shortest_edge
  if n >= 384 then return resized(x, n, n, c) end -- larger models were trained on the whole picture
  local h, w = shorter(x, math.tointeger(n / c.crop_pct // 1))
  return center_crop(resized(x, h, w, c), n, n, c)
end

--- Transparent pictures lie on white with the torchvision backend. The pil backend drops alpha.
local function as_rgb(x, c)
  local n = x:size(1)
  if (n == 2 or n == 4) and c.backend == "torchvision" then
    local alpha = x:narrow(1, n, 1):to "f32" / 255
    x = ((1 - alpha) * 255 + alpha * x:narrow(1, 1, n - 1):to "f32"):round():to "u8"
    n = n - 1
  end
  if n == 1 or n == 2 then return accel.cat({ x:narrow(1, 1, 1), x:narrow(1, 1, 1), x:narrow(1, 1, 1) }, 1) end
  return n == 4 and x:narrow(1, 1, 3) or x
end

local function one(self, x)
  local c = self.config
  if not tensors.is_tensor(x) or #x.shape ~= 3 or x.dtype ~= "u8" then
    raise("image processor: expected u8 pictures [channels, height, width], got %s", check.shown(x))
  end
  if c.do_convert_rgb then x = as_rgb(x, c) end
  if c.do_resize then x = resize(x, c) end
  local crop = c.do_center_crop and c.crop_size
  if crop then x = center_crop(x, crop.height or crop.shortest_edge, crop.width or crop.shortest_edge, c) end
  x = x:to "f32"
  if c.do_rescale then x = x * c.rescale_factor end
  if c.do_normalize then x = F.normalize(x, c.image_mean, c.image_std) end
  return x
end

--- Pixel values of one picture or a list of them: { pixel_values = f32 [pictures, channels, height, width] }.
---@param images accel.Tensor|accel.Tensor[] u8 [channels, height, width]
---@return table
function ImageProcessor:__call(images)
  local list = tensors.is_tensor(images) and (#images.shape == 4 and images:unbind(1) or { images }) or images
  if type(list) ~= "table" or #list == 0 then raise("image processor: expected pictures, got %s", check.shown(images)) end
  local out = {}
  for i, x in ipairs(list) do out[i] = one(self, x) end
  return { pixel_values = accel.stack(out, 1) }
end

local M = { ImageProcessor = ImageProcessor, AutoImageProcessor = {} }

--- The image processor of a model's folder, by its preprocessor_config.json. Returns nil, message, code if there is none.
--- - backend: "torchvision" or "pil". Transformers' processors of these names differ in odd borders of center crops and in transparency
---@param folder string
---@param opts? {backend: string?}
---@return accel.vision.ImageProcessor? processor
---@return string? message
---@return string? code
function M.AutoImageProcessor.from_pretrained(folder, opts, ...)
  local o = options("from_pretrained", opts, { backend = "torchvision" }, ...)
  check.word("from_pretrained", "backend", o.backend, { "torchvision", "pil" })
  local path = folder .. "/preprocessor_config.json"
  local config, message, code = read_json(path)
  if not config then return nil, message, code end
  return ImageProcessor(config, path, o.backend)
end

return M
