-- Cases of ops beside the main ones: bits, other names, stacking, running extremes, quantiles, distances, draws by
-- weight. See op_cases.lua.
local accel = require "accel"
local c = require "op_cases"
local real, range, index, mask, constant = c.real, c.range, c.index, c.mask, c.constant
local case, args, big = c.case, c.args, c.big

local L = {}

-- ---- map ----
L.floor_divide = {
  case("same", { real(3, 4), range(0.4, 3, 3, 4) }, { fd = false }),
  case("broadcast", { real(2, 1, 2), range(0.4, 3, 3, 1) }, { fd = false }),
  case("number behind", { real(3, 2) }, { args = { 0.7 }, fd = false, number = true }),
  case("number before", { range(0.4, 3, 3, 2) }, { call = function(f, x) return f(1.3, x) end, fd = false,
    number = true }),
  case("rank 0", { real(), range(1, 2) }, { fd = false }),
  case("empty", { real(0, 3), range(1, 2, 3) }, { fd = false }),
  big({ fd = false }, real(300, 257), range(0.4, 3, 257)),
}
for _, name in ipairs { "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift" } do
  L[name] = {
    case("integers", { index(100, 3, 4), index(100, 3, 4) }),
    case("bool", { mask(3, 4), mask(4) }),
    case("bool and integers", { mask(3, 1), index(9, 4) }),
    case("number behind", { index(50, 3, 2) }, args(-6)),
    case("number before", { index(50, 3, 2) }, { call = function(f, x) return f(5, x) end }),
    case("rank 0", { index(9), index(9) }),
    case("empty", { index(9, 0, 3), index(9, 3) }),
    big({}, index(1000, 300, 257), index(1000, 257)),
  }
end
L.bitwise_not = {
  case("integers", { index(100, 3, 4) }),
  case("bool", { mask(3, 4) }),
  case("rank 0", { index(9) }),
  case("empty", { index(9, 0, 3) }),
  big({}, index(1000, 300, 257)),
}
L.logit = {
  case("plain", { range(0.1, 0.9, 3, 4) }),
  case("cut", { range(-0.5, 1.5, 3, 4) }, args(0.25)),
  case("rank 0", { range(0.3, 0.6) }),
  case("empty", { real(0, 3) }),
  big({}, range(0.1, 0.9, 300, 257)),
}
L.clip = {
  case("both", { real(3, 4) }, args { min = -1.3, max = 0.7 }),
  case("min", { real(3, 4) }, args { min = -0.3 }),
  case("max", { real(3, 4) }, args { max = 0.3 }),
  case("rank 0", { real() }, args(-1, 1)),
  case("empty", { real(0, 2) }, args(-1, 1)),
  big(args(-1, 1), real(200, 330)),
}

-- ---- index ----
L.take_along_dim = {
  case("last", { real(3, 4), index(4, 3, 2) }, args(2)),
  case("first, wide", { real(3, 2), index(3, 5, 2) }, args(-2)),
  case("indices are broadcast", { real(3, 4), index(4, 1, 2) }, args(2)),
  case("x is broadcast", { real(1, 4), index(4, 3, 2) }, args(2)),
  case("as one row", { real(3, 4), index(12, 2, 3) }),
  case("rank 0", { real(), index(1) }),
  case("empty", { real(3, 4), index(4, 3, 0) }, args(2)),
  big(args(2), real(200, 330), index(330, 200, 300)),
}
local function as(...)
  local shape = { ... }
  return { call = function(f, x) return f(x, accel.zeros(shape, { dtype = x.dtype, device = x.device })) end }
end
for _, name in ipairs { "view_as", "reshape_as" } do
  L[name] = {
    case("wider", { real(6, 2) }, as(3, 4)),
    case("to one", { real(1, 1) }, as()),
    case("rank 0", { real() }, as(1, 1)),
    case("empty", { real(0, 3) }, as(2, 0)),
    big(as(200, 33, 10), real(200, 330)),
  }
end
for _, k in ipairs(L.view_as) do k.needs_contiguous = true end
L.expand_as = {
  case("columns", { real(3, 1) }, as(3, 4)),
  case("new dims", { real(3) }, as(2, 2, 3)),
  case("rank 0", { real() }, as(2)),
  case("empty", { real(1, 3) }, as(0, 3)),
  big(as(200, 330), real(330)),
}
local function list(f, ...) return f { ... } end
L.vstack = {
  case("matrices", { real(2, 3), real(1, 3) }, { call = list }),
  case("rows", { real(3), real(2, 3), real(3) }, { call = list }),
  case("numbers", { real(), real() }, { call = list }),
  case("one", { real(2, 2, 2) }, { call = list }),
  case("empty", { real(0, 3), real(2, 3) }, { call = list }),
  big({ call = list }, real(200, 330), real(100, 330)),
}
L.hstack = {
  case("matrices", { real(2, 3), real(2, 1) }, { call = list }),
  case("rows", { real(3), real(2) }, { call = list }),
  case("numbers", { real(), real(2) }, { call = list }),
  case("three dims", { real(2, 1, 2), real(2, 3, 2) }, { call = list }),
  case("empty", { real(2, 0), real(2, 3) }, { call = list }),
  big({ call = list }, real(200, 330), real(200, 100)),
}
L.unflatten = {
  case("first", { real(6, 2) }, args(1, { 2, 3 })),
  case("last, one open", { real(2, 6) }, args(-1, { -1, 2 })),
  case("one", { real(3) }, args(1, { 3 })),
  case("empty", { real(0, 2) }, args(1, { 0, 4 })),
  big(args(2, { 33, 10 }), real(200, 330)),
}
L.diff = {
  case("last", { real(3, 5) }, { floor = 2 }),
  case("first", { real(4, 3) }, { args = { 1, 1 }, floor = 2 }),
  case("twice", { real(2, 5) }, { args = { 2 }, floor = 4, roundings = 2, loss = 4, ints = false }),
  case("not at all", { real(2, 3) }, args(0)),
  case("more than there are", { real(2, 3) }, args(5)),
  case("empty", { real(0, 3) }),
  case("bool", { mask(3, 5) }),
  big({ floor = 2 }, real(200, 330)),
}
L.trace = {
  case("square", { real(4, 4) }, { floor = 2 }),
  case("wide", { real(2, 5) }, { floor = 2 }),
  case("empty", { real(0, 3) }),
  big({ floor = 2 }, real(330, 300)),
}

-- ---- reduce ----
for _, name in ipairs { "cummax", "cummin" } do
  L[name] = {
    case("last", { real(3, 5) }, args(-1)),
    case("first", { real(5, 3) }, args(1)),
    case("middle", { real(2, 4, 3) }, args(2)),
    case("rank 0", { real() }, args(1)),
    case("empty", { real(0, 3) }, args(2)),
    case("empty lines", { real(3, 0) }, args(2)),
    big({ args = { 1 }, floor = 4, loss = 4 }, real(300, 257)),
    big({ args = { 2 }, floor = 4, loss = 4 }, real(20, 5000)),
  }
end
L.quantile = {
  case("all", { real(3, 4) }, args(0.4)),
  case("rows", { real(3, 5) }, args(0.3, 2)),
  case("columns, kept", { real(4, 3) }, args(0.9, { dim = 1, keepdim = true })),
  case("all, kept", { real(3, 2) }, args(0.5, { keepdim = true })),
  case("end", { real(2, 3) }, args(1, -1)),
  case("several", { real(3, 5), constant(0.05, 0.95, 3) }, args(2)),
  case("several, kept", { real(4, 3), constant(0.05, 0.95, 2) }, { call = function(f, x, q) return f(x, q, { dim = 1, keepdim = true }) end }),
  case("several of all", { real(3, 4), constant(0.05, 0.95, 2) }),
  case("q of rank 0", { real(3, 4), constant(0.05, 0.95) }, args(1, true)),
  case("lower", { real(2, 4) }, args(0.4, { dim = 2, interpolation = "lower" })),
  case("higher", { real(2, 4) }, args(0.4, { dim = 2, interpolation = "higher" })),
  case("midpoint", { real(2, 4) }, args(0.4, { dim = 2, interpolation = "midpoint" })),
  case("nearest", { real(2, 4) }, args(0.4, { dim = 2, interpolation = "nearest" })),
  case("rank 0", { real() }, args(0.7, 1)),
  case("empty", { real(0, 3) }, args(0.5, 2)),
  big(args(0.4, 2), real(200, 330)),
}

-- ---- matmul ----
L.cdist = {
  case("plane", { real(3, 2), real(4, 2) }),
  case("p = 1", { real(3, 2), real(2, 2) }, args(1)),
  case("p = 3", { real(2, 3), real(2, 3) }, args(3)),
  case("furthest", { real(3, 4), real(2, 4) }, args(math.huge)),
  case("batched", { real(2, 2, 3), real(3, 3) }),
  case("empty", { real(0, 3), real(2, 3) }),
  big({}, real(60, 30), real(70, 30)),
}

-- ---- random ----
L.multinomial = {
  case("one", { constant(0.1, 2, 3, 5) }, { args = { 1 }, grad = false, random = true }),
  case("replacement", { constant(0.1, 2, 5) }, { args = { 9, true }, grad = false, random = true }),
  case("without", { constant(0.1, 2, 3, 5) }, { args = { 4 }, grad = false, random = true }),
  case("all", { constant(0.1, 2, 5) }, { args = { 5 }, grad = false, random = true }),
  case("empty", { constant(0.1, 2, 0, 5) }, { args = { 2 }, grad = false, random = true }),
  big({ args = { 50 }, grad = false, random = true }, constant(0.1, 2, 100, 3000)),
  big({ args = { 500, true }, grad = false, random = true }, constant(0.1, 2, 100, 3000)),
}

return L
