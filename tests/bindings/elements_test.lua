-- Elements of files that accel has no dtype for: their values by closed forms, integers of a few bits in words of 32, and safetensors files
-- with such tensors.
local accel = require "accel"
local core = require "accel.file.core"
local tmp = os.getenv "ACCEL_TEST_TMP"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

local function codes(n)
  local bytes = {}
  for i = 0, n - 1 do bytes[i + 1] = string.char(i) end
  return accel.from_bytes(table.concat(bytes), "u8")
end

--- A float of a sign, e exponent bits with this bias and m of fraction.
local function value(code, e, m, bias)
  local exponent, fraction = code >> m & ((1 << e) - 1), code & ((1 << m) - 1)
  local v = exponent == 0 and fraction * 2.0 ^ (1 - bias - m) or (fraction + (1 << m)) * 2.0 ^ (exponent - bias - m)
  return code >> (e + m) & 1 == 1 and -v or v
end

for name, of in accel.pairs {
  F8_E8M0 = function(c) return c == 255 and 0 / 0 or 2.0 ^ (c - 127) end,
  F8_E4M3FNUZ = function(c) return c == 128 and 0 / 0 or value(c, 4, 3, 8) end,
  F8_E5M2FNUZ = function(c) return c == 128 and 0 / 0 or value(c, 5, 2, 16) end,
} do
  local got = core.widen(codes(256), name)
  assert(got.dtype == "f32" and #got == 256)
  for c, v in ipairs(got:tolist()) do
    local want = of(c - 1)
    assert(v == want or v ~= v and want ~= want, ("%s %d: %g, not %g"):format(name, c - 1, v, want))
  end
end
do
  local got = core.widen(codes(256):reshape(16, 16), "F4"):reshape(-1):tolist()
  for byte = 0, 255 do
    assert(got[2 * byte + 1] == value(byte & 15, 2, 1, 1) and got[2 * byte + 2] == value(byte >> 4, 2, 1, 1), byte)
  end
  assert(tostring(core.widen(codes(6):reshape(2, 3), "F4").shape) == "(2, 6)")
  assert(core.widen(codes(0), "F4"):numel() == 0)
end
fails("unknown type 'U64'", core.widen, codes(8), "U64")
fails("unknown type 'F9'", core.widen, codes(8), "F9")
fails("expected u8 of one dim or more, got f32", core.widen, accel.ones(3), "F4")
fails("expected a contiguous tensor", core.widen, codes(6):reshape(2, 3):t(), "F4")

-- ---- integers of a few bits ----

--- Words of 32 bits that hold a list, low bits first.
local function words(list, bits)
  local out, at, have = {}, 0, 0
  for _, v in ipairs(list) do
    at, have = at | v << have, have + bits
    if have >= 32 then out[#out + 1], at, have = at & 0xFFFFFFFF, at >> 32, have - 32 end
  end
  if have > 0 then out[#out + 1] = at end
  for i, w in ipairs(out) do out[i] = w >= 1 << 31 and w - (1 << 32) or w end
  return out
end

for bits = 1, 8 do
  for _, n in ipairs { 1, 10, 11, 32, 33, 100 } do
    local rows, packed = {}, {}
    for r = 1, 3 do
      rows[r] = {}
      for i = 1, n do rows[r][i] = (i * 37 + r * 11 + i * i) % (1 << bits) end
      packed[r] = words(rows[r], bits)
    end
    local t = accel.tensor(packed, { dtype = "i32" })
    local along, want = core.unpack_bits(t, bits, 2, n), accel.tensor(rows, { dtype = "u8" })
    assert(along.dtype == "u8" and accel.equal(along, want), ("%d bits, %d in a row"):format(bits, n))
    local down = core.unpack_bits(t:t():contiguous(), bits, 1, n)
    assert(accel.equal(down, want:t():contiguous()), ("%d bits, %d in a column"):format(bits, n))
  end
end
do
  local three = core.unpack_bits(accel.arange(2 * 4 * 5):reshape(2, 4, 5):to "i32", 4, 2, 32)
  assert(tostring(three.shape) == "(2, 32, 5)")
  local direct = accel.arange(2 * 4 * 5):reshape(2, 4, 5)
  for w = 1, 4 do
    for k = 0, 7 do
      assert(three[2][8 * (w - 1) + k + 1][3]:item() == direct[2][w][3]:item() >> (4 * k) & 15)
    end
  end
end
local word = accel.zeros(2, { dtype = "i32" })
fails("17 integers of 4 bits do not fit into 2 words", core.unpack_bits, word, 4, 1, 17)
fails("%-1 integers", core.unpack_bits, word, 4, 1, -1)
fails("bits must lie in 1 .. 8, got 9", core.unpack_bits, word, 9, 1, 1)
fails("dim 2 of 1", core.unpack_bits, word, 4, 2, 1)
fails("expected i32 words, got f32", core.unpack_bits, accel.ones(2), 4, 1, 1)

-- ---- safetensors ----

local function write(path, header, data)
  local text = accel.json.encode(header)
  text = text .. (" "):rep(-#text % 8)
  local f <close> = assert(io.open(path, "wb"))
  f:write(("<s8"):pack(text), data)
end

local path = tmp .. "/types.safetensors"
local function entry(dtype, shape, from, to)
  return { dtype = dtype, shape = accel.json.array(shape), data_offsets = { from, to } }
end
write(path, {
  big = entry("U64", { 2 }, 0, 16), complex = entry("C64", { 1 }, 16, 24), e8m0 = entry("F8_E8M0", { 3 }, 24, 27),
  f4 = entry("F4", { 2, 2 }, 27, 29), f8 = entry("F8_E4M3", { 2 }, 29, 31), plain = entry("F32", { 1 }, 31, 35),
  six = entry("F6_E3M2", { 4 }, 35, 38),
}, ("<I8I8"):pack(7, (1 << 63) - 1) .. ("<ff"):pack(1, 2) .. "\127\128\0" .. "\x21\xF4" .. "\x38\xB8" .. ("<f"):pack(2.5) .. "abc")

local all = assert(accel.load(path))
local function list(t) return accel.json.encode(t:to("f64"):tolist()) end
assert(all.big.dtype == "i64" and all.big:tolist()[1] == 7 and all.big:tolist()[2] == math.maxinteger)
assert(list(all.e8m0) == list(accel.tensor { 1.0, 2.0, 2.0 ^ -127 }) and all.e8m0.dtype == "f32")
assert(list(all.f4) == "[[0.5,1.0],[2.0,-6.0]]", list(all.f4))
assert(all.f8.dtype == "f8_e4m3" and list(all.f8:to "f32") == "[1.0,-1.0]" and all.plain:item() == 2.5)
assert(all.complex.dtype == "c64" and all.six == nil)
do -- one line names those that are left out
  local script = tmp .. "/load.lua"
  assert(accel.write_file(script, ("assert(require 'accel'.load %q)"):format(path)))
  local pipe <close> = assert(io.popen(("'%s' '%s' 2>&1"):format(accel.process.program(), script)))
  local said = pipe:read "a"
  assert(said:find("types.safetensors: left out tensors of types that accel does not have: 'six' (F6_E3M2)\n", 1, true), said)
  assert(select(2, said:gsub("left out", "")) == 1, said)
end
do
  local file <close> = assert(accel.open_safetensors(path))
  assert(file:info "big".dtype == "i64" and file:info "e8m0".dtype == "f32" and file:info "complex".dtype == "c64")
  assert(file:get "f4".shape[2] == 2)
  fails("'six' is F6_E3M2, which has no dtype here", file.get, file, "six")
  local into = accel.zeros(3)
  assert(file:read("e8m0", into) and into:tolist()[2] == 2.0)
  fails("does not fit its destination", file.read, file, "e8m0", accel.zeros(4))
end
write(path, { big = entry("U64", { 2 }, 0, 16) }, ("<I8"):pack(7) .. "\255\255\255\255\255\255\255\255")
local none, message, code = accel.load(path)
assert(none == nil and code == "dtype", tostring(code))
assert(message:find("'big' (U64): element 1 is 18446744073709551615, which i64 cannot hold", 1, true), message)
