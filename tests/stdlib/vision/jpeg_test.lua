-- Pictures that accel writes and reads again: PNG exactly, JPEG nearly; a JPEG at a reduced scale. Skipped without the libraries.
local accel = require "accel"
local io_ = accel.vision.io
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local has = {}
for _, library in ipairs(accel.libraries()) do has[library.name] = library.version ~= nil end
if not has.jpeg or not has.png then
  print "skipped: libjpeg or libpng is missing"
  os.exit(77)
end

accel.manual_seed(2)
for channels = 1, 4 do
  local x = (accel.rand(channels, 13, 7) * 255):to "u8"
  assert(io_.decode_image(io_.encode_png(x)):eq(x):all():item())
  assert(io_.write_png(x, tmp .. "/x.png", 1) and io_.read_image(tmp .. "/x.png"):eq(x):all():item())
end
-- a smooth picture, 64 x 48
local ramp = accel.arange(0, 48):view { 1, 48, 1 } * 3 + accel.arange(0, 64):view { 1, 1, 64 }
local smooth = accel.cat({ ramp, 255 - ramp, ramp // 2 }, 1):to "u8"
for _, quality in ipairs { 60, 95 } do
  local y = io_.decode_image(io_.encode_jpeg(smooth, quality))
  local gap = (y:to "f32" - smooth:to "f32"):abs():mean():item()
  assert(y.shape == smooth.shape and gap < 2, gap)
end
assert(io_.decode_image(io_.encode_jpeg(smooth:narrow(1, 1, 1))).shape[1] == 1)
-- the smallest scale of n/8 that has the size
local bytes = io_.encode_jpeg(smooth, 95)
for draft, want in pairs { [6] = { 6, 8 }, [7] = { 12, 16 }, [13] = { 18, 24 }, [47] = { 48, 64 }, [900] = { 48, 64 } } do
  local y = io_.decode_image(bytes, "RGB", { draft = draft })
  assert(y.shape[2] == want[1] and y.shape[3] == want[2], ("draft %d gives %s"):format(draft, tostring(y.shape)))
  local small = accel.vision.transforms.functional.resize(smooth, { want[1], want[2] })
  local gap = (y:to "f32" - small:to "f32"):abs():mean():item()
  assert(gap < 4, ("draft %d: off by %g"):format(draft, gap))
end
local ok, e = pcall(io_.encode_jpeg, smooth, 101)
assert(not ok and tostring(e):find("quality must lie in 1 .. 100", 1, true), e)
local cut = bytes:narrow(1, 1, bytes:size(1) - 30)
ok, e = pcall(io_.decode_image, cut)
assert(not ok and tostring(e):find("decode_image: not a valid jpeg picture", 1, true), e)
print "ok"
