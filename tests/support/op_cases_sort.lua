-- Cases of ops that order, search and select by what elements are. See op_cases.lua.
local c = require "op_cases"
local real, index, mask, constant = c.real, c.index, c.mask, c.constant
local case, args, big = c.case, c.args, c.big

local L = {}

local function line(more, ...) -- one that all threads share
  local t = big(more, ...)
  t.label = "big line"
  return t
end

L.sort = {
  case("last", { real(3, 5) }),
  case("first, descending", { real(4, 3) }, args(1, true)),
  case("middle", { real(2, 7, 3) }, args(2, { stable = true })),
  case("merged", { real(2, 40) }, args(2)),
  case("rank 0", { real() }),
  case("empty", { real(0, 3) }),
  case("empty lines", { real(3, 0) }, args(2)),
  big(args(1), real(600, 130)),
  line(args { descending = true }, real(2, 70001)),
}
L.argsort = {
  case("last", { real(3, 5) }),
  case("first, descending", { real(4, 3) }, args(1, true)),
  case("rank 0", { real() }),
  case("empty", { real(0, 3) }),
  big({}, real(130, 600)),
  line(args(1), real(70001, 2)),
}
L.topk = {
  case("largest", { real(3, 6) }, args(2)),
  case("smallest of columns", { real(5, 3) }, args(3, { dim = 1, largest = false })),
  case("all", { real(2, 4) }, args(4, -1, true, false)),
  case("none", { real(2, 4) }, args(0)),
  case("rank 0", { real() }, args(1)),
  case("empty", { real(0, 3) }, args(2)),
  big(args(5), real(200, 3000)),
  line(args(100), real(2, 140001)),
}
L.median = {
  case("all", { real(3, 5) }),
  case("rows", { real(3, 4) }, args(2)),
  case("columns, kept", { real(5, 2) }, args(1, true)),
  case("rank 0", { real() }),
  case("rank 0, dim", { real() }, args(1)),
  case("empty", { real(0, 3) }, args(2)),
  big(args(2), real(200, 330)),
  line({}, real(300, 257)),
}
L.masked_select = {
  case("plain", { real(3, 4), mask(3, 4) }),
  case("mask is broadcast", { real(3, 4), mask(4) }),
  case("x is broadcast", { real(3, 1), mask(3, 4) }),
  case("both are", { real(2, 1, 3), mask(4, 1) }),
  case("rank 0", { real(), mask() }),
  case("rank 0 and many", { real(), mask(5) }),
  case("empty", { real(0, 3), mask(0, 3) }),
  big({}, real(300, 257), mask(300, 257)),
}
L.nonzero = {
  case("real", { real(3, 4) }),
  case("integers", { index(2, 3, 4, 2) }),
  case("bool", { mask(7) }),
  case("rank 0", { real() }),
  case("rank 0, zero", { index(1) }),
  case("empty", { real(0, 3) }),
  case("empty lines", { real(3, 0) }),
  big({}, index(3, 300, 257)),
}
L.one_hot = {
  case("matrix", { index(4, 2, 3) }, args(4)),
  case("as many as there are", { index(4, 5) }, { args = {}, meta = false }),
  case("rank 0", { index(3) }, args(3)),
  case("empty", { index(3, 0, 2) }, args(3)),
  big(args(20), index(20, 300, 40)),
}
L.bincount = {
  case("plain", { index(5, 12) }, { args = {}, meta = false }),
  case("at least", { index(5, 12) }, args { minlength = 9 }),
  case("weights", { index(5, 12), constant(-2, 2, 12) }, args(8)),
  case("empty", { index(5, 0) }, args { minlength = 3 }),
  big(args { minlength = 100 }, index(100, 70001)),
}
L.bincount[3].wide_result = true

local function sorted(right)
  return { call = function(f, s, v) return f((s:sort()), v, right) end }
end
L.isin = {
  case("as it is", { real(3, 4), real(5) }),
  case("inverted", { real(3, 4), real(2, 3) }, args { invert = true }),
  case("a number", { real(6) }, args(0.5)),
  case("rank 0", { real(), real(3) }),
  case("nothing to find", { real(3), real(0) }),
  case("empty", { real(0, 2), real(3) }),
}
L.searchsorted = {
  case("as it is", { real(7), real(5) }),
  case("left", { real(9), real(3, 4) }, sorted(false)),
  case("right", { real(9), real(3, 4) }, sorted(true)),
  case("rows", { real(2, 3, 6), real(2, 3, 4) }, sorted(false)),
  case("number", { real(6) }, { call = function(f, s) return f((s:sort()), 0.7) end, ints = false }),
  case("empty sequence", { real(0), real(3) }),
  case("no values", { real(4), real(0, 2) }),
  case("rank 0", { real(4), real() }),
  big(sorted(false), real(5000), real(300, 257)),
}
local function between(right)
  return { call = function(f, x, b) return f(x, (b:sort()), right) end }
end
L.bucketize = {
  case("as it is", { real(5), real(7) }),
  case("left", { real(3, 4), real(9) }, between(false)),
  case("right", { real(3, 4), real(9) }, between(true)),
  case("number", { real(6) }, { call = function(f, b) return f(0.7, (b:sort())) end, ints = false }),
  case("empty", { real(0, 3), real(4) }),
  case("rank 0", { real(), real(4) }),
  big(between(true), real(300, 257), real(100)),
}
L.unique = {
  case("real", { real(3, 4) }),
  case("integers", { index(5, 4, 6) }),
  case("bool", { mask(7) }),
  case("rank 0", { real() }),
  case("empty", { real(0, 3) }),
  case("rows", { index(2, 9, 3) }, args(1)),
  case("columns", { real(2, 5, 2) }, args(2)),
  case("wide rows", { real(3, 4) }, args(-2)),
  case("rank 0, dim", { real() }, args(1)),
  case("no rows", { real(0, 3) }, args(1)),
  big({}, index(1000, 70001)),
  big(args(1), index(3, 3000, 5)),
}

return L
