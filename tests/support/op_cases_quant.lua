-- Cases of ops that keep tensors in a few bits an element. See op_cases.lua.
local c = require "op_cases"
local real, case, args, big = c.real, c.case, c.args, c.big

local L = {}

L.quantize_blockwise = {
  case("one block", { real(3, 4) }),
  case("several, the last short", { real(5, 7) }, args(8, 8)),
  case("4 bits", { real(4, 4) }, args { bits = 4, block_size = 4 }),
  case("4 bits, odd", { real(3, 5) }, args(4, 6)),
  case("rank 0", { real() }),
  case("empty", { real(0, 3) }, args(4)),
  big(args(8, 1024), real(300, 257)),
  big(args(4, 64), real(300, 257)),
}

local function bytes(n, dtype) -- of all values
  local s = c.index(n, 256)
  s.dtype, s.shape = dtype, { n }
  return s
end

local function scales(n)
  local s = c.constant(0.01, 0.5, n)
  s.dtype = "f32"
  return s
end

L.dequantize_blockwise = {
  case("one block", { bytes(12, "i8"), scales(1) }, args { 3, 4 }),
  case("several, the last short", { bytes(35, "i8"), scales(5) }, args({ 5, 7 }, 8, 8)),
  case("4 bits", { bytes(8, "u8"), scales(4) }, args({ 4, 4 }, { bits = 4, block_size = 4 })),
  case("4 bits, odd", { bytes(8, "u8"), scales(3) }, args({ 15 }, 4, 6)),
  case("16 bits come back", { bytes(12, "i8"), scales(2) }, args({ 12 }, { block_size = 6, dtype = "bf16" })),
  case("rank 0", { bytes(1, "i8"), scales(1) }, args {}),
  case("empty", { bytes(0, "u8"), scales(0) }, args({ 0, 3 }, 4)),
  big(args({ 300, 257 }, 8, 1024), bytes(77100, "i8"), scales(76)),
  big(args({ 300, 257 }, 4, 64, "f64"), bytes(38550, "u8"), scales(1205)),
}

-- ---- quantised tensors: they are compared by their values and arrays ----
local accel = require "accel"
local constant = c.constant

local function narrow(x) return x.dtype == "f64" and x:to "f32" or x end -- f64 is refused

local function shown(q)
  return q:dequantize "f32", q:quant_part "values", q:quant_part "absmax"
end

-- The op's result on x and these arguments.
local function quantised(...)
  local with = { ... }
  return { grad = false, ints = false, wide_result = true, call = function(f, x) return shown(f(narrow(x), table.unpack(with))) end }
end

L.quantize_4bit = {
  case("one block", { real(3, 4) }, quantised()),
  case("several, the last short", { real(5, 27) }, quantised("nf4")),
  case("odd", { real(3, 5, 1) }, quantised("fp4", 128)),
  case("nested", { real(40, 27) }, quantised("nf4", 64, true)),
  case("rank 0", { real() }, quantised()),
  case("empty", { real(0, 3) }, quantised()),
  big(quantised("nf4", 64, true), real(300, 257)),
}
L.quantize_dynamic = {
  case("one block", { real(3, 4) }, quantised()),
  case("several, the last short", { real(5, 27) }, quantised(64)),
  case("unsigned", { c.range(0, 2, 5, 7) }, quantised { signed = false }),
  case("nested", { real(40, 27) }, quantised { blocksize = 32, nested = true }),
  case("empty", { real(0, 3) }, quantised()),
  big(quantised(256), real(300, 257)),
}
L.quantize_int8 = {
  case("rows", { real(3, 4) }, quantised()),
  case("one value", { real(1, 1) }, quantised()),
  case("empty", { real(0, 3) }, quantised()),
  case("no columns", { real(3, 0) }, quantised()),
  big(quantised(), real(300, 257)),
}

local function stored(make, dtype)
  return { grad = false, ints = false, wide_result = true, call = function(f, x) return f(make(narrow(x):to "f32"), dtype) end }
end
local function nf4(x) return accel.quantize_4bit(x, "nf4") end
local function double(x) return accel.quantize_4bit(x, "fp4", 128, true) end
L.dequantize = {
  case("nf4", { real(5, 27) }, stored(nf4)),
  case("fp4, nested", { real(5, 27) }, stored(double, "bf16")),
  case("int8", { real(5, 7) }, stored(accel.quantize_int8, "f64")),
  case("dynamic", { real(5, 7) }, stored(accel.quantize_dynamic, "f16")),
  case("empty", { real(0, 3) }, stored(nf4)),
  big(stored(nf4), real(300, 257)),
}

local vectorwise = { grad = false, ints = false, wide_result = true }
local function rows(threshold)
  local t = { call = function(f, x) return f(x:to "f32", threshold) end }
  for key, value in pairs(vectorwise) do t[key] = value end
  return t
end
L.int8_vectorwise_quant = {
  case("rows", { real(3, 4) }, rows(0)),
  case("outliers", { real(3, 40) }, rows(1.9)),
  case("one row", { real(7) }, rows(1)),
  case("three dims", { real(2, 3, 5) }, rows(1.5)),
  case("empty", { real(0, 3) }, rows(1)),
  case("no columns", { real(3, 0) }, rows(1)),
  big(rows(1.9), real(300, 257)),
}

-- x times constant weights, quantised by make; with or without a bias.
local function product(make, more)
  local t = { ints = false, loss = 64, roundings = 4, floor = 1, call = function(f, x, w, bias)
    return f(x, make(narrow(w):to "f32"), bias, make == accel.quantize_int8 and 1.5 or 0)
  end }
  for key, value in pairs(more or {}) do t[key] = value end
  return t
end
local function weights(n, k) return constant(-1, 1, n, k) end
L.linear_quantized = {
  case("nf4, one row", { real(64), weights(5, 64) }, product(nf4)),
  case("nf4, few rows", { real(3, 192), weights(70, 192), real(70) }, product(nf4)),
  case("fp4, nested", { real(6, 128), weights(9, 128), real(9) }, product(double)),
  case("many rows", { real(2, 9, 64), weights(7, 64), real(7) }, product(nf4)),
  case("rows of part of a block", { real(2, 27), weights(5, 27) }, product(nf4)),
  case("int8", { real(5, 70), weights(9, 70), real(9) }, product(accel.quantize_int8, { fd = false, grad = false, single = true })),
  case("no rows", { real(0, 64), weights(5, 64) }, product(nf4)),
  case("no columns", { real(2, 0), weights(5, 0), real(5) }, product(nf4)),
  big(product(nf4), real(30, 256), weights(300, 256)),
}

-- rows of constant weights, quantised by make
local function lookup(make, ...)
  local with = { ... }
  return { grad = false, ints = false, wide_result = true, call = function(f, w, ids)
    return f(ids, make(narrow(w):to "f32"), table.unpack(with))
  end }
end
L.embedding_quantized = {
  case("int8", { weights(9, 70), c.index(9, 2, 3) }, lookup(accel.quantize_int8)),
  case("nf4", { weights(7, 64), c.index(7, 4) }, lookup(nf4, "bf16")),
  case("rows of part of a block, nested", { weights(6, 27), c.index(6, 5) }, lookup(double, "f64")),
  case("no ids", { weights(6, 64), c.index(6, 0) }, lookup(nf4)),
  case("no columns", { weights(6, 0), c.index(6, 3) }, lookup(nf4)),
  big(lookup(nf4), weights(300, 256), c.index(300, 400)),
}

-- ---- 8 bits under one scale: codes are compared as bytes, beside the factors ----
local fp8 = { grad = false, ints = false, wide_result = true }
local function f8(call)
  local t = { call = call }
  for key, value in pairs(fp8) do t[key] = value end
  return t
end
local function codes(y, inverse, ...) return (y.device == "meta" and y or y:to "cpu"):to "f32", inverse, ... end
local function current(...)
  local with = { ... }
  return f8(function(f, x) return codes(f(narrow(x), nil, nil, table.unpack(with))) end)
end
local function delayed(format)
  return f8(function(f, x)
    local scale, amax = accel.full({ 1 }, 3.5, { device = x.device }), accel.full({ 1 }, 0.25, { device = x.device })
    local y, inverse = f(narrow(x), scale, amax, format)
    return codes(y, inverse, amax)
  end)
end
L.fp8_cast = {
  case("its own scale", { real(3, 4) }, current()),
  case("e5m2", { real(5, 7) }, current "e5m2"),
  case("a power of two", { real(5, 27) }, current("e4m3", true)),
  case("a scale that is given", { real(5, 27) }, delayed "e4m3"),
  case("gradients", { real(300, 3) }, delayed "e5m2"),
  case("rank 0", { real() }, current()),
  case("empty", { real(0, 3) }, delayed "e4m3"),
  big(delayed "e4m3", real(300, 257)),
  big(current(), real(300, 257)),
}

-- x and other as casts of real values; turned: other lies the other way round.
local function scaled(dtype, format, turned)
  local t = f8(function(f, x, w, bias)
    local x8, sx = accel.fp8_cast(narrow(x))
    local w8, sw = accel.fp8_cast(narrow(turned and w:t():contiguous() or w), nil, nil, format)
    return f(x8, turned and w8:t() or w8, sx, sw, bias and narrow(bias), dtype)
  end)
  t.loss, t.roundings = 4, 1
  return t
end
L.scaled_mm = {
  case("plain", { real(3, 4), constant(-1, 1, 4, 5) }, scaled "f32"),
  case("16 bits", { real(3, 4), constant(-1, 1, 4, 5) }, scaled "bf16"),
  case("bias", { real(5, 32), constant(-1, 1, 32, 16), real(16) }, scaled("f32", "e4m3", true)),
  case("gradients", { real(16, 32), constant(-1, 1, 32, 16) }, scaled("f32", "e5m2")),
  case("no rows", { real(0, 4), constant(-1, 1, 4, 5) }, scaled "f32"),
  case("nothing to add", { real(2, 0), constant(-1, 1, 0, 5), real(5) }, scaled "f32"),
  big(scaled("f32", "e4m3", true), real(64, 300), constant(-1, 1, 300, 257)),
}
local function moved(n, rows, ...)
  local with = { ... }
  return { grad = false, ints = false, wide_result = true, call = function(f, x)
    local scale, history = accel.ones({ n }, { device = x.device }), narrow(x):to("f32"):abs():reshape(rows, n) * 1
    f(scale, history, 448, table.unpack(with))
    return scale, history
  end }
end
L.fp8_update_scale_ = {
  case("most recent", { real(4, 3) }, moved(3, 4)),
  case("of all", { real(5, 7) }, moved(7, 5, 2, false)),
  case("one row", { real(1, 3) }, moved(3, 1)),
  case("the history alone", { real(4, 3) }, moved(3, 4, 0, true, false)),
}

return L
