-- Cases of statistics, of ops that build tensors of pieces, and of reductions by an index: see op_cases.lua.
local c = require "op_cases"
local real, range, constant, index = c.real, c.range, c.constant, c.index
local case, args, big = c.case, c.args, c.big

local L = {}

local function reduced(more)
  local function with(...)
    local t = { args = { ... } }
    for k, v in pairs(more or {}) do t[k] = v end
    return t
  end
  return {
    case("all", { real(3, 4) }, with()),
    case("last", { real(2, 3, 4) }, with(-1)),
    case("first, kept", { real(3, 4) }, with(1, true)),
    case("rank 0", { real() }, with()),
  }
end
L.nansum, L.nanmean = reduced { floor = 2 }, reduced { floor = 2, ints = false }
L.std_mean, L.var_mean = reduced { ints = false, floor = 1 }, reduced { ints = false, floor = 1 }
for _, name in ipairs { "std_mean", "var_mean" } do
  table.remove(L[name]) -- of one element neither is finite
  L[name][#L[name] + 1] = case("correction", { real(2, 5) }, { args = { 2, { correction = 0 } }, ints = false, floor = 1 })
end
L.aminmax, L.nanmedian = reduced(), reduced()
L.nanquantile = {
  case("all", { real(3, 4) }, args(0.4)),
  case("rows", { real(3, 5) }, args(0.3, 2)),
  case("columns, kept", { real(4, 3) }, args(0.9, { dim = 1, keepdim = true, interpolation = "midpoint" })),
  case("several", { real(3, 5), constant(0.05, 0.95, 3) }, args(2)),
}
for _, k in ipairs(L.nanquantile) do k.ints = false end
L.kthvalue = {
  case("rows", { real(3, 4) }, args(2)),
  case("columns, kept", { real(5, 3) }, args(4, 1, true)),
  case("rank 0", { real() }, args(1)),
}
L.mode = { case("rows", { real(3, 4) }), case("columns, kept", { real(5, 3) }, args(1, true)), case("rank 0", { real() }) }
L.logcumsumexp = {
  case("rows", { real(3, 4) }, args(2)),
  case("columns", { real(4, 3) }, args(1)),
  case("rank 0", { real() }, args(1)),
  case("empty", { real(0, 3) }, args(1)),
  big(args(2), real(200, 330)),
}
for _, k in ipairs(L.logcumsumexp) do k.ints, k.loss = false, 2 end
L.cov = {
  case("rows", { real(3, 5) }),
  case("one", { real(6) }, args(0)),
  case("weights", { real(2, 4), constant(0.5, 1.5, 4) }, { call = function(f, x, w) return f(x, { aweights = w }) end }),
  case("counts", { real(2, 4), index(3, 4) }, { call = function(f, x, w) return f(x, { fweights = w + 1 }) end }),
}
L.corrcoef = { case("rows", { real(3, 5) }, { full_rank = true }), case("one", { real(6) }) }
for _, name in ipairs { "cov", "corrcoef" } do
  for _, k in ipairs(L[name]) do k.ints, k.loss, k.floor = false, 4, 2 end
end
L.histc = { case("plain", { real(3, 4) }, { args = { 5, -1.9, 1.7 }, grad = false, ints = false }),
  case("from the elements", { real(9) }, { args = { 4 }, grad = false, ints = false }) }
local function f64(n) return { kind = "real", shape = { n }, lo = -2, hi = 2, dtype = "f64" } end -- it takes no short floats
L.histogram = {
  case("range", { f64(12) }, { args = { 5, { range = { -1.9, 1.7 } } }, grad = false, ints = false, wide_result = true }),
  case("weights", { f64(9), f64(9) }, { call = function(f, x, w) return f(x, 4, { weight = w, range = { -1.7, 1.6 } }) end,
    grad = false, ints = false, wide_result = true }),
}
for _, name in ipairs { "trapezoid", "trapz", "cumulative_trapezoid" } do
  L[name] = {
    case("steps", { real(3, 4) }, args { dx = 0.5 }),
    case("points", { real(3, 4), real(4) }, { floor = 2 }),
    case("columns", { real(4, 3), real(4) }, { args = { { dim = 1 } }, floor = 2 }),
    case("one point", { real(2, 1) }),
  }
  for _, k in ipairs(L[name]) do k.ints = false end
end

-- ---- pieces ----
local function list(f, ...) return f { ... } end
L.cartesian_prod = { case("two", { real(2), real(3) }, { call = list }), case("one", { real(3) }, { call = list }) }
L.block_diag = {
  case("matrices", { real(2, 3), real(1, 2) }, { call = list }),
  case("rows and numbers", { real(2), real(), real(2, 2) }, { call = list }),
  case("empty", { real(0, 2), real(2, 1) }, { call = list }),
}
L.diag_embed = {
  case("main", { real(2, 3) }),
  case("above", { real(3) }, args(1)),
  case("below, other dims", { real(2, 2, 3) }, args(-2, 1, 3)),
  case("empty", { real(0) }, args(1)),
}
L.rot90 = { case("quarter", { real(2, 3) }), case("three", { real(2, 3, 2) }, args(3, { 2, 3 })), case("half", { real(2, 3) }, args(2)) }
L.cross = { case("rows", { real(2, 3), real(2, 3) }, args(2)), case("columns", { real(3, 4), real(3, 1) }, args(1)) }
L.vander = { case("square", { real(4) }), case("increasing", { real(3) }, args(4, true)), case("none", { real(3) }, args(0)) }
L.vdot = { case("plain", { real(5), real(5) }), case("empty", { real(0), real(0) }) }
L.chain_matmul = { case("three", { real(2, 3), real(3, 4), real(4, 2) }, { call = list }) }
for _, name in ipairs { "cross", "vander", "vdot", "chain_matmul" } do
  for _, k in ipairs(L[name]) do k.loss, k.floor = 4, 1 end
end
L.renorm = {
  case("rows", { real(3, 4) }, { args = { 2, 1, 1.5 }, ints = false }),
  case("columns", { real(2, 3, 2) }, { args = { 1, -1, 2 }, ints = false }),
}
L.unique_consecutive = {
  case("elements", { index(2, 9) }),
  case("options", { index(2, 3, 4) }, args { return_counts = true }),
  case("rows", { index(2, 5, 1) }, args { dim = 1 }),
  case("empty", { index(2, 0) }),
}
for _, k in ipairs(L.unique_consecutive) do k.grad = false end

-- ---- by an index ----
local function joined(reduce, self)
  return { args = { reduce, { include_self = self } }, loss = 2, call = function(f, x, i, src, how, o) return f(x, 1, i, src, how, o) end }
end
local function by(reduce, self)
  local j = joined(reduce, self)
  return { loss = 4, floor = 1, call = function(f, x, i, src) return j.call(f, x, i, src, reduce, j.args[2]) end }
end
L.scatter_reduce = {
  case("sum", { real(3, 4), index(3, 5, 4), real(5, 4) }, by("sum", true)),
  case("prod", { real(3, 4), index(3, 5, 4), real(5, 4) }, by("prod", true)),
  case("prod alone", { real(3, 4), index(3, 5, 4), real(5, 4) }, by("prod", false)),
  case("mean", { real(3, 4), index(3, 5, 4), real(6, 4) }, by("mean", true)),
  case("amax", { real(3, 4), index(3, 5, 4), real(5, 4) }, by("amax", true)),
  case("amin alone", { real(3, 4), index(3, 5, 4), real(5, 5) }, by("amin", false)),
  case("empty", { real(3, 4), index(3, 0, 4), real(0, 4) }, by("amax", true)),
  big(by("amax", true), real(200, 330), index(200, 300, 330), real(300, 330)),
}
L.index_reduce = {
  case("prod", { real(3, 4), index(3, 5), real(5, 4) }, by("prod", true)),
  case("mean", { real(3, 4), index(3, 5), real(5, 4) }, by("mean", false)),
  case("amax", { real(3), index(3, 5), real(5) }, by("amax", true)),
}
return L
