--- accel.vision.io: pictures from files and bytes, by torchvision.io's names.
---
---   local x = accel.vision.io.read_image("photo.jpg", "RGB")                        -- u8 [3, height, width]
---   local y = accel.vision.io.decode_image(bytes, "RGB", { apply_exif_orientation = true })
---
--- The content decides the format: JPEG, PNG, WebP, GIF, TIFF, BMP or PNM. All but the last two need the library of their format, which
--- `accel-run env` lists. Samples are u8. Pictures of 16 bits are u16, and TIFF files may hold f32. CMYK has four channels, and 0 is no ink.
--- The result is a view of pixels in the order of rows, columns and channels, as decoders write them.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.vision.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local writer = require "accel.util.writer"

local M = {}

--- The channels of a result. UNCHANGED: as stored, palettes as RGB, or as RGB_ALPHA if they have transparency.
--- example: accel.vision.io.ImageReadMode.RGB --> 3
M.ImageReadMode = { UNCHANGED = 0, GRAY = 1, GRAY_ALPHA = 2, RGB = 3, RGB_ALPHA = 4, RGBA = 4 }

local DECLARED <const> = { apply_exif_orientation = false, bits = 16, max_pixels = 178956970, draft = options.none, layout = "CHW" }

local function mode_number(who, mode)
  if mode == nil then return 0 end
  if math.type(mode) == "integer" and mode >= 0 and mode <= 4 then return mode end
  local number = type(mode) == "string" and M.ImageReadMode[mode:upper()]
  return number or raise("%s: mode must be UNCHANGED, GRAY, GRAY_ALPHA, RGB or RGB_ALPHA, got %s", who, check.shown(mode))
end

--- Options of the binding, and the layout.
local function settings(who, mode, opts, ...)
  if type(mode) == "table" and opts == nil then mode, opts = nil, mode end
  local o = options(who, opts, DECLARED, ...)
  if o.layout ~= "CHW" and o.layout ~= "HWC" then raise("%s: layout must be CHW or HWC, got %s", who, check.shown(o.layout)) end
  if o.bits ~= 8 and o.bits ~= 16 then raise("%s: bits must be 8 or 16, got %s", who, check.shown(o.bits)) end
  local height, width = 0, 0
  if o.draft ~= nil then
    height, width = table.unpack(type(o.draft) == "table" and o.draft or { o.draft, o.draft })
    height, width = check.positive(who, "draft", height), check.positive(who, "draft", width)
  end
  return { mode = mode_number(who, mode), apply_exif_orientation = o.apply_exif_orientation, bits = o.bits,
    max_pixels = check.positive(who, "max_pixels", o.max_pixels), draft_height = height, draft_width = width }, o.layout
end

local function arranged(t, layout) return layout == "CHW" and t:permute { 3, 1, 2 } or t end

--- The picture in a file. Returns nil, message, code if it cannot be opened. Raises for a file that is not a whole picture, and for one
--- that has more than max_pixels pixels.
--- - apply_exif_orientation: turn the picture as its EXIF tag asks
--- - bits: 8 for the upper half of samples of 16 bits
--- - max_pixels: refuse pictures that are larger, before memory is taken
--- - draft: decode a JPEG at the smallest scale of n/8 that has at least this size, as {height, width} or one number
--- - layout: "CHW" or "HWC"
---@param path string
---@param mode? string|integer|table ImageReadMode, by name or number; opts may stand here instead
---@param opts? {apply_exif_orientation: boolean?, bits: integer?, max_pixels: integer?, draft: (integer|integer[])?, layout: string?}
---@return accel.Tensor? picture
---@return string? message
---@return string? code
function M.read_image(path, mode, opts, ...)
  local given, layout = settings("read_image", mode, opts, ...)
  local t, message, code = core.read(path, given)
  if not t then return nil, message, code end
  return arranged(t, layout)
end

--- The picture in a string or a u8 tensor of rank 1. The options are those of read_image.
--- example: accel.vision.io.decode_image("P2 2 1 255\n0 255\n", "RGB").shape --> {3, 1, 2}
---@param bytes string|accel.Tensor
---@param mode? string|integer|table ImageReadMode, by name or number; opts may stand here instead
---@param opts? {apply_exif_orientation: boolean?, bits: integer?, max_pixels: integer?, draft: (integer|integer[])?, layout: string?}
---@return accel.Tensor
function M.decode_image(bytes, mode, opts, ...)
  local given, layout = settings("decode_image", mode, opts, ...)
  return arranged(core.decode(bytes, given), layout)
end

--- The header of a picture file, without its pixels: format, height, width, channels, dtype, and orientation (1 to 8, EXIF's tag). Returns
--- nil, message, code if the file cannot be opened.
---@param path string
---@return {format: string, height: integer, width: integer, channels: integer, dtype: string, orientation: integer}? info
---@return string? message
---@return string? code
function M.image_info(path) return core.read(path, { info = true }) end

local function encoded(who, picture, format, level)
  if not tensors.is_tensor(picture) or #picture.shape ~= 3 or picture.dtype ~= "u8" then
    raise("%s: expected a u8 tensor of shape [channels, height, width], got %s", who, check.shown(picture))
  end
  return core.encode(picture:permute({ 2, 3, 1 }):to("cpu"):contiguous(), format, level)
end

--- The bytes of a JPEG file with this picture, as a u8 tensor of rank 1.
---@param input accel.Tensor u8 [1 or 3 channels, height, width]
---@param quality? integer 1 to 100, 75 by default
---@return accel.Tensor
function M.encode_jpeg(input, quality) return accel.from_bytes(encoded("encode_jpeg", input, "jpeg", quality or 75), "u8") end

--- The bytes of a PNG file with this picture, as a u8 tensor of rank 1.
---@param input accel.Tensor u8 [1 to 4 channels, height, width]
---@param compression_level? integer 0 to 9, 6 by default
---@return accel.Tensor
function M.encode_png(input, compression_level) return accel.from_bytes(encoded("encode_png", input, "png", compression_level or 6), "u8") end

--- Writes a JPEG file, which is replaced whole. Returns true, or nil, message, code.
---@param input accel.Tensor u8 [1 or 3 channels, height, width]
---@param filename string
---@param quality? integer 1 to 100, 75 by default
---@return boolean? ok
---@return string? message
---@return string? code
function M.write_jpeg(input, filename, quality) return writer.file(filename, encoded("write_jpeg", input, "jpeg", quality or 75)) end

--- Writes a PNG file, which is replaced whole. Returns true, or nil, message, code.
---@param input accel.Tensor u8 [1 to 4 channels, height, width]
---@param filename string
---@param compression_level? integer 0 to 9, 6 by default
---@return boolean? ok
---@return string? message
---@return string? code
function M.write_png(input, filename, compression_level)
  return writer.file(filename, encoded("write_png", input, "png", compression_level or 6))
end

return require "accel.util.lazy"("accel.vision.io", {}, M)
