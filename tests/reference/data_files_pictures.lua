-- Pictures for data_files.lua: as stored, as RGB and RGBA, turned by their EXIF tag, and all 16 bits.
local accel = require "accel"
local values = require "data_values"
local io_ = accel.vision.io

local M = {}

local MODES <const> = { image = "UNCHANGED", rgb = "RGB", rgba = "RGB_ALPHA", oriented = "UNCHANGED" }

--- Pillow and tifffile read 16 bits where a picture is gray, torchvision and tifffile everywhere: else the upper bytes.
local function bits_of(row, got)
  return (row.reader ~= "pil" or got:size(1) == 1) and 16 or 8
end

local function read(path, mode, row, oriented)
  oriented = oriented or row.format == "tiff" and row.reader == "pil" -- Pillow turns TIFF when it loads it
  local got, message = io_.read_image(path, mode, { apply_exif_orientation = oriented })
  if not got then return nil, message end
  if bits_of(row, got) == 8 and got.dtype == "u16" then
    got = io_.read_image(path, mode, { apply_exif_orientation = oriented, bits = 8 })
  end
  return got:permute { 2, 3, 1 }
end

function M.read(path, row)
  local image, message = read(path, "UNCHANGED", row)
  if not image then return nil, message end
  return { image = image, path = path }
end

function M.compare(got, row, report, want)
  for name, expected in next, want do
    local mode = MODES[name]
    -- Pillow has no 8 bit gray and alpha of 16 bits
    if name == "image" and row.key == "eight" and expected:size(3) == 4 then mode = "RGB_ALPHA" end
    local t = name == "image" and mode == "UNCHANGED" and got.image or read(got.path, mode, row, name == "oriented")
    if row.every then
      local function every(n) return accel.arange(0, n, row.every, { dtype = "i64" }) end
      t = t:index_select(1, every(t:size(1))):index_select(2, every(t:size(2)))
    end
    if t.dtype == "u16" then t = t:to "i32" end
    values.tensor(report, name, t, expected, row.tolerance)
  end
end

return M
