--- Quantised tensors as tensors: copies, devices, views of their arrays, bytes on disk, what is refused, printing.
-- tier: memory
local accel = require "accel"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

accel.manual_seed(3)
local w = accel.randn(48, 128)

local function same(a, b) return accel.equal(a:dequantize(), b:dequantize()) end

for _, q in ipairs {
  accel.quantize_4bit(w, "nf4"), accel.quantize_4bit(w:to "bf16", "fp4", 128, true), accel.quantize_int8(w),
  accel.quantize_dynamic(w, 256, { nested = true }),
} do
  local s = q.quant_state
  assert(q.dtype == "u8" and q.ndim == 1 and s.shape == { 48, 128 }, tostring(q))

  -- one storage, whatever is done with it; a copy is quantised as well, and shares nothing
  local copy = q:clone()
  assert(copy.quant_state.quant_type == s.quant_type and same(copy, q) and copy:data_ptr() ~= q:data_ptr())
  assert(same(q:detach(), q) and q:detach():data_ptr() == q:data_ptr())
  copy:quant_part("absmax"):zero_()
  assert(not same(copy, q))
  copy:copy_(q)
  assert(same(copy, q))
  assert(same(accel.deepcopy { q = q }.q, q))

  -- on another device
  local meta = q:to "meta"
  assert(meta.quant_state.blocksize == s.blocksize and meta:quant_part("absmax").device == "meta")
  assert(meta:dequantize().shape == { 48, 128 })

  -- parts are views, a part of the bytes is plain
  local values = q:quant_part "values"
  assert(values:data_ptr() == q:data_ptr() and not values.quant_state and not q:narrow(1, 1, 10).quant_state)
  assert((q:quant_part "offset" ~= nil) == s.nested)

  -- numbers are read by dequantize alone
  fails("x is quantised.*dequantize", function() return q + 1 end)
  fails("quantised", function() return w:matmul(q) end)
  fails("takes the bytes of a tensor of the same layout", function() q:copy_(accel.zeros(q:numel())) end)
  fails("takes the bytes of a tensor of the same layout", function() q:copy_(accel.quantize_4bit(w, "fp4", 64)) end)
  assert(q:to("f64").dtype == "f64" and q:to("f64").shape == { 48, 128 })
  assert(tostring(q):find(s.quant_type, 1, true) and tostring(q):find("size=(48, 128)", 1, true), tostring(q))
end

-- errors of q that are within half of the widest gap of the code
for name, bar in pairs { nf4 = 0.16, fp4 = 0.17 } do
  local q = accel.quantize_4bit(w, name)
  local off = (q:dequantize() - w):abs():reshape(-1, 64):amax(2) / q:quant_part "absmax"
  assert(off:max():item() < bar, off:max():item())
end
local off = (accel.quantize_int8(w):dequantize() - w):abs():amax(2) / w:abs():amax(2)
assert(off:max():item() < 0.5 / 127 + 1e-6)

-- layouts that there are not
fails("blocksize must be a power of two", accel.quantize_4bit, w, "nf4", 48)
fails("can be quantised, not f64", accel.quantize_4bit, w:to "f64")
fails("needs a matrix", accel.quantize_int8, accel.ones(3))
fails("is not one of nf4", accel.empty_quantized, "nf5", { 3 })
fails("is not quantised", accel.dequantize, w)
fails("is not quantised", function() return w:quant_part "values" end)
fails("bad option 'block'", accel.empty_quantized, "nf4", { 3 }, { block = 3 })
fails("codes of int8 are numbers", accel.quant_map, "int8")
assert(w.quant_state == nil)

-- from its arrays
local q = accel.quantize_4bit(w, "nf4", 64, true)
local r = accel.empty_quantized("nf4", { 48, 128 }, { nested = true })
for _, part in ipairs { "values", "absmax", "nested_absmax", "offset" } do r:quant_part(part):copy_(q:quant_part(part)) end
assert(same(r, q))

-- rows: those of the values, of ids of any shape and of either type, and only of ids that there are
for _, make in ipairs { function(v) return accel.quantize_4bit(v, "nf4", 64, true) end, accel.quantize_int8 } do
  for _, width in ipairs { 128, 27 } do
    local table_of = make(accel.randn(48, width))
    local ids = accel.tensor({ { 47, 0, 3 }, { 3, 11, 46 } }, { dtype = "i32" })
    for _, dtype in ipairs { "f32", "bf16" } do
      local rows = accel.embedding_quantized(ids, table_of, dtype)
      assert(rows.dtype == dtype and accel.equal(rows, accel.embedding(ids:to "i64", table_of:dequantize(dtype))))
    end
    fails("48", accel.embedding_quantized, accel.tensor { 48 }, table_of)
    fails("%-1", accel.embedding_quantized, accel.tensor { -1 }, table_of)
  end
end
fails("is not quantised: embedding", accel.embedding_quantized, accel.tensor { 0 }, w)
fails("dtype must be a float", accel.embedding_quantized, accel.tensor { 0 }, q, "i64")
assert(accel.embedding_quantized(accel.tensor { 0 }, q).dtype == "f32")

-- values of 4 bits are the code's times the block's magnitude, rounded once for bf16, whole blocks or parts of one
for _, case in ipairs { { { 5, 128 }, 64 }, { { 3, 43 }, 64 }, { { 7, 24 }, 32 }, { { 2, 9, 64 }, 256 }, { { 4100, 64 }, 64 } } do
  for _, nested in ipairs { false, true } do
    local v = accel.quantize_4bit(accel.randn(table.unpack(case[1])), "nf4", case[2], nested)
    local map, bytes, got = accel.quant_map "nf4":tolist(), v:quant_part("values"):tolist(), v:dequantize "f32"
    local most = not nested and v:quant_part("absmax"):tolist()
    local flat = got:reshape(-1):narrow(1, 1, math.min(got:numel(), 300)):tolist()
    for i, y in ipairs(flat) do
      local byte = bytes[(i + 1) // 2]
      local value = map[1 + (i % 2 == 1 and byte >> 4 or byte & 15)]
      if most then assert(math.abs(y - value * most[1 + (i - 1) // case[2]]) <= 1e-7 * math.abs(y), i) else assert((y < 0) == (value < 0)) end
    end
    assert(accel.equal(v:dequantize "bf16", got:to "bf16") and accel.equal(v:dequantize "f16", got:to "f16"))
  end
end

-- magnitudes below f32's smallest normal number keep their bits in bf16, in whole blocks too
do
  local v = accel.quantize_4bit(accel.randn(8, 64) * 1e-38 * 0.1, "nf4")
  local got = v:dequantize "f32"
  assert(got:abs():amax():item() > 0 and accel.equal(v:dequantize "bf16", got:to "bf16"))
end

-- products: gradients reach x and the bias through the values
local x, bias = accel.randn(5, 128):requires_grad_(), accel.randn(48):requires_grad_()
local y = accel.linear_quantized(x, q, bias)
local plain = accel.linear(x:detach(), q:dequantize(), bias:detach())
assert(accel.allclose(y:detach(), plain, { rtol = 1e-5, atol = 1e-5 }))
y:sum():backward()
assert(accel.allclose(x.grad, q:dequantize():sum(1):expand(5, 128), { rtol = 1e-5, atol = 1e-4 }))
assert(accel.allclose(bias.grad, accel.full({ 48 }, 5)))

-- the same bits from few rows and many, and on any number of threads the rows do not mix
for _, kind in ipairs { "int8", "nf4" } do
  local quantised = kind == "int8" and accel.quantize_int8(w) or accel.quantize_4bit(w, "nf4")
  local many = accel.linear_quantized(x:detach(), quantised)
  for i = 1, 5 do assert(accel.equal(accel.linear_quantized(x:detach()[i], quantised), many[i]), kind .. " row " .. i) end
end

-- LLM.int8(): a column with an outlier is multiplied as it is
local spiky = accel.randn(3, 128)
spiky[2][7] = 60.0
local int8 = accel.quantize_int8(w)
local exact = accel.linear(spiky, int8:dequantize())
local function error_of(threshold) return (accel.linear_quantized(spiky, int8, nil, threshold) - exact):abs()[2]:max():item() end
assert(error_of(6) < error_of(0) / 5, "outliers do not help")

-- Few rows of every dtype times 4 bits: the products of values that are rounded to x's dtype, at every tail of k and number of rows.
for _, dtype in ipairs { "f32", "bf16", "f16" } do
  for _, case in ipairs { { 64, 64 }, { 192, 64 }, { 320, 64 }, { 256, 128 }, { 768, 256 } } do
    local w = accel.quantize_4bit(accel.randn(70, case[1]), "nf4", case[2])
    local values = w:dequantize(dtype):to "f64"
    for m = 1, 8, case[1] == 192 and 1 or 7 do
      local some = accel.randn(m, case[1]):to(dtype)
      local got, want = accel.linear_quantized(some, w):to "f64", some:to "f64":matmul(values:t())
      local bar = dtype == "bf16" and 2 ^ -8 or dtype == "f16" and 2 ^ -11 or 2 ^ -20
      assert((got - want):abs():max():item() <= bar * want:abs():max():item(), ("%s, %d of %d"):format(dtype, m, case[1]))
    end
  end
end
