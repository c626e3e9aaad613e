-- Pictures that need no library (PNM, BMP), byte for byte by hand: channels, layout, scale of values, limits, refusals that name the file.
local accel = require "accel"
local io_ = accel.vision.io
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function same(t, shape, values)
  assert(tostring(t.shape) == "(" .. table.concat(shape, ", ") .. ")", tostring(t.shape))
  local flat = t:contiguous():view { -1 }:tolist()
  for i, v in ipairs(values) do assert(flat[i] == v, ("%d: %s, not %s"):format(i, flat[i], v)) end
end

local function refused(text, f, ...)
  local ok, e = pcall(f, ...)
  assert(not ok and tostring(e):find(text, 1, true), ("%s, not an error with '%s'"):format(tostring(e), text))
end

local function put(name, bytes)
  local f = assert(io.open(tmp .. "/" .. name, "wb"))
  f:write(bytes)
  f:close()
  return tmp .. "/" .. name
end

-- PNM: red, green over blue, white
local ppm = "P6 2 2 255\n\255\0\0\0\255\0\0\0\255\255\255\255"
same(io_.decode_image(ppm), { 3, 2, 2 }, { 255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255 })
same(io_.decode_image(ppm, { layout = "HWC" }), { 2, 2, 3 }, { 255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255 })
same(io_.decode_image(ppm, "GRAY"), { 1, 2, 2 }, { 76, 150, 29, 255 }) -- ITU-R 601
same(io_.decode_image(ppm, io_.ImageReadMode.RGB_ALPHA):select(1, 4), { 2, 2 }, { 255, 255, 255, 255 })
same(io_.decode_image(accel.tensor({ ppm:byte(1, -1) }, { dtype = "u8" }), "GRAY_ALPHA"), { 2, 2, 2 }, { 76, 150, 29, 255, 255, 255, 255, 255 })
same(io_.decode_image("P4 9 1\n\x80\x80", "RGB"):select(1, 1), { 1, 9 }, { 0, 255, 255, 255, 255, 255, 255, 255, 0 })
local wide = io_.decode_image("P5 2 1 65535\n\x12\x34\xff\xff")
assert(wide.dtype == "u16")
same(wide:to "i32", { 1, 1, 2 }, { 0x1234, 0xffff })
same(io_.decode_image("P5 2 1 65535\n\x12\x34\xff\xff", "RGB", { bits = 8 }), { 3, 1, 2 }, { 0x12, 0xff, 0x12, 0xff, 0x12, 0xff })

-- BMP of 8 bits, from bottom to top, rows of 4 bytes
local bmp = "BM" .. string.pack("<I4I4I4", 0, 0, 14 + 40 + 8) .. string.pack("<I4i4i4I2I2I4I4I4I4I4I4", 40, 2, 2, 1, 8, 0, 0, 0, 0, 2, 0)
  .. "\1\2\3\0\4\5\6\0" .. "\0\1\0\0" .. "\1\1\0\0"
same(io_.decode_image(bmp), { 3, 2, 2 }, { 6, 6, 3, 6, 5, 5, 2, 5, 4, 4, 1, 4 })
local grays = {}
for i = 0, 255 do grays[i + 1] = string.char(i, i, i, 0) end
local head = "BM" .. string.pack("<I4I4I4", 0, 0, 14 + 40 + 1024) .. string.pack("<I4i4i4I2I2I4I4I4I4I4I4", 40, 2, 2, 1, 8, 0, 0, 0, 0, 256, 0)
  .. table.concat(grays)
same(io_.decode_image(head .. "\3\200\0\0" .. "\9\7\0\0"), { 1, 2, 2 }, { 9, 7, 3, 200 }) -- all gray levels in order: a gray picture
same(io_.decode_image(head .. "\3\200\0\0" .. "\9\7\0\0", "RGB"):select(1, 3), { 2, 2 }, { 9, 7, 3, 200 })
refused("colour 7 of a palette of 2", io_.decode_image, bmp:sub(1, -5) .. "\7\1\0\0")

-- files: a missing one is nil, message, code; everything else raises and names the file
local t, message, code = io_.read_image(tmp .. "/missing.png")
assert(t == nil and message:find "missing.png" and code == "not_found", tostring(code))
local path = put("cut.ppm", ppm:sub(1, -2))
refused("cut.ppm: not a valid pnm picture: it has 11 bytes of samples", io_.read_image, path)
refused("page.jpg: not a picture: it is an HTML page", io_.read_image, put("page.jpg", "<!DOCTYPE html><html>"))
refused("empty.png: not a picture: it is empty", io_.read_image, put("empty.png", ""))
local info = io_.image_info(put("a.bin", ppm))
assert(info.format == "pnm" and info.height == 2 and info.width == 2 and info.channels == 3 and info.dtype == "u8" and info.orientation == 1)

-- limits and options
refused("4 pixels", function() error((tostring(select(2, pcall(io_.decode_image, ppm, { max_pixels = 3 })):gsub("2 x 2 pixels", "4 pixels")))) end)
refused("max_pixels = 178956970", io_.decode_image, "P6 99999 99999 255\n")
refused("mode must be UNCHANGED", io_.decode_image, ppm, "CMYK")
refused("layout must be CHW or HWC", io_.decode_image, ppm, { layout = "NCHW" })
refused("bits must be 8 or 16", io_.decode_image, ppm, { bits = 12 })
refused("unknown option 'orientation'", io_.decode_image, ppm, "RGB", { orientation = true })
print "ok"

-- a GIF whose colours are the gray levels in order is a gray picture, other ones have three channels
for _, l in ipairs(accel.libraries()) do
  if l.name == "gif" and l.version then
    local function gif(colours)
      return "GIF89a" .. string.pack("<I2I2", 2, 2) .. "\x81\0\0" .. colours .. "," .. string.pack("<I2I2I2I2", 0, 0, 2, 2) .. "\0"
        .. "\2\3\x44\x34\5\0;" -- clear, 0, 1, 2, 3 (of 4 bits after it), end
    end
    same(io_.decode_image(gif "\0\0\0\1\1\1\2\2\2\3\3\3"), { 1, 2, 2 }, {})
    same(io_.decode_image(gif "\0\0\0\1\1\1\2\2\2\3\3\4"), { 3, 2, 2 }, {})
  end
end
