-- GGUF files as llama.cpp's Python package writes them: metadata and every type of tensor read as it does, blocks as it makes them.
--   accel-run tests/reference/gguf.lua DIR
local accel = require "accel"
local core = require "accel.file.core"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
local dir = arg[1] or here .. "/gguf"

local passed, failed = 0, 0
local function report(name, ok, fmt, ...)
  if ok then
    passed = passed + 1
  else
    failed = failed + 1
    print(("FAIL %s: " .. fmt):format(name, ...))
  end
end

local function same(a, b)
  if type(a) ~= "table" then return a == b and math.type(a) == math.type(b) end
  if type(b) ~= "table" or #a ~= #b then return false end
  for i = 1, #a do
    if not same(a[i], b[i]) then return false end
  end
  return true
end

local file = assert(core.open_gguf(dir .. "/types.gguf"))
local expected = assert(accel.load(dir .. "/types.safetensors"))
local f <close> = assert(io.open(dir .. "/types.json", "rb"))
local meta = file:metadata()
for key, want in accel.pairs(accel.json.decode(f:read "a")) do
  report(key, same(meta[key], want), "%s, wanted %s", accel.json.encode { meta[key] }, accel.json.encode { want })
end
report("general.architecture", meta["general.architecture"] == "some-arch", "%s", tostring(meta["general.architecture"]))
local function compare(reader, wanted)
  for i, t in ipairs(reader:tensors()) do
    local got, want = assert(reader:get(i)), wanted[t.name]
    report(t.name, same(got.shape, want.shape) and (got:to("f64") - want:to("f64")):abs():max():item() == 0, "values differ")
  end
end
compare(file, expected)
local points = assert(core.open_gguf(dir .. "/iq.gguf"))
report("iq.gguf", #points:tensors() == 7, "%d tensors", #points:tensors())
compare(points, assert(accel.load(dir .. "/iq.safetensors")))
for name, number in accel.pairs { q4_0 = 2, q8_0 = 8 } do
  local got, want = core.gguf_quantize(expected.x, number), expected["x." .. name]
  local off = got:ne(want):to("i64"):sum():item()
  report("x." .. name, off == 0, "%d of %d bytes differ", off, want:numel())
end
print(("%d passed, %d failed, 0 skipped"):format(passed, failed))
os.exit(failed == 0 and passed > 30, true)
