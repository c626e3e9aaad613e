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

return L
