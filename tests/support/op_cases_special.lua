-- Cases of special functions, roundings and random draws whose arguments are not plain: see op_cases.lua.
local c = require "op_cases"
local real, range, constant, mask, index = c.real, c.range, c.constant, c.mask, c.index
local case, args, big = c.case, c.args, c.big

local L = {}

L.polygamma = {
  case("digamma", { range(0.5, 3, 3, 4) }, { call = function(f, x) return f(0, x) end }),
  case("first", { range(0.5, 3, 7) }, { call = function(f, x) return f(1, x) end }),
  case("third", { range(0.5, 3) }, { call = function(f, x) return f(3, x) end }),
  case("empty", { range(0.5, 3, 0, 2) }, { call = function(f, x) return f(1, x) end }),
}
L.mvlgamma = { case("two", { range(1.2, 3, 3, 4) }, args(2)), case("empty", { range(1.2, 3, 0) }, args(3)) }
-- no gradient by the first argument
L.zeta = {
  case("same", { constant(1.5, 4, 3, 4), range(0.5, 3, 3, 4) }, { ints = false }),
  case("number before", { range(0.5, 3, 3, 2) }, { call = function(f, x) return f(2.5, x) end, ints = false }),
  case("row", { constant(1.5, 4, 3, 1), range(0.5, 3, 4) }, { ints = false }),
}
for _, name in ipairs { "igamma", "igammac" } do
  L[name] = {
    case("same", { constant(0.5, 4, 3, 4), constant(0.5, 3, 3, 4) }, { ints = false, grad = false }),
    case("row", { constant(0.5, 4, 3, 1), constant(0.5, 3, 4) }, { ints = false, grad = false }),
    case("by the second", { range(0.5, 3, 3, 4) }, { ints = false, call = function(f, x) return f(x:detach() * 0 + 1.7, x) end }),
  }
end
for _, name in ipairs { "gcd", "lcm" } do
  L[name] = {
    case("integers", { index(40, 3, 4), index(30, 4) }),
    case("number behind", { index(50, 3, 2) }, args(-6)),
    case("empty", { index(5, 0, 3), index(5, 1, 3) }),
    big({}, index(1000, 300, 257), index(900, 257)),
  }
end
L.heaviside = {
  case("same", { real(3, 4), real(3, 4) }, { grad = false }),
  case("row", { real(3, 4), real(4) }, { grad = false }),
}
-- the next number is too near for differences, and is another one in each dtype
local function f64(...) return { kind = "real", shape = { ... }, lo = -2, hi = 2, dtype = "f64" } end
L.nextafter = { case("f64", { f64(3, 4), f64(4) }, { fd = false, ints = false, grad = false, wide_result = true }) }
L.frexp = {
  case("plain", { range(0.6, 0.9, 3, 4) }, { ints = false, wide_result = true }),
  case("empty", { real(0) }, { ints = false, wide_result = true }),
}
L.copysign = {
  case("same", { range(0.3, 2, 3, 4), range(0.2, 2, 3, 4) }),
  case("sign changes", { range(0.3, 2, 3, 4), range(-2, -0.2, 4) }),
  case("number behind", { range(0.3, 2, 3, 4) }, args(-1)),
}
L.rsub = {
  case("plain", { real(3, 4), real(4) }),
  case("factor", { real(3, 4), real(3, 4) }, args { alpha = 2 }),
  case("number", { real(3, 4) }, args(1.5)),
}
L.i1e = { case("plain", { real(3, 4) }, { loss = 4, floor = 1 }), case("empty", { real(0) }) }
L.ldexp = { case("same", { real(3, 4), real(4) }) }

-- ---- random: the draw is repeated by reseeding ----
local function draws(...)
  local a = { ... }
  local function call(f, x) return f(x:clone(), table.unpack(a)) end
  return {
    case("plain", { real(3, 4) }, { call = call, ints = false, random = true }),
    case("rank 0", { real() }, { call = call, ints = false, random = true }),
    case("empty", { real(0, 2) }, { call = call, ints = false, random = true }),
    big({ call = call, ints = false, random = true }, real(200, 330)),
  }
end
L.exponential_, L.cauchy_, L.geometric_, L.log_normal_ = draws(2), draws(0.5, 2), draws(0.3), draws(0.5, 0.2)
L.random_ = draws(9)
L.bernoulli = {
  case("tensor", { constant(0, 1, 3, 4) }, { grad = false, ints = false, random = true }),
  case("number", { constant(0, 1, 3, 4) }, { args = { 0.3 }, grad = false, ints = false, random = true }),
}
L.poisson = {
  case("few", { constant(0.1, 3, 3, 4) }, { grad = false, ints = false, random = true }),
  case("many", { constant(20, 60, 3, 4) }, { grad = false, ints = false, random = true }),
  case("empty", { constant(1, 2, 0, 3) }, { grad = false, ints = false, random = true }),
  big({ grad = false, ints = false, random = true }, constant(1, 30, 200, 330)),
}
L.fill_diagonal_ = {
  case("matrix", { real(3, 4) }, { call = function(f, x) return f(x * 1, 2) end }),
  case("wrapped", { real(7, 2) }, { call = function(f, x) return f(x * 1, 2, true) end }),
  case("cube", { real(3, 3, 3) }, { call = function(f, x) return f(x * 1, 2) end }),
}
return L
