-- Cases of elementwise ops that take more than the generated ones give: three inputs, parameters that matter
-- (see op_cases.lua).
local c = require "op_cases"
local real, range = c.real, c.range
local case, args, big = c.case, c.args, c.big

local L = {}

-- ---- three inputs ----
for name, last in pairs { lerp = { -0.4, 1.4 }, addcmul = { -2, 2 }, addcdiv = { 0.4, 3 } } do
  local function third(...) return range(last[1], last[2], ...) end
  L[name] = {
    case("same", { real(3, 4), real(3, 4), third(3, 4) }),
    case("rows", { real(3, 4), real(4), third(3, 1) }),
    case("wider", { real(4), real(2, 1, 4), third(3, 1) }),
    case("rank 0", { real(), real(3), third() }),
    case("empty", { real(0, 3), real(3), third(1, 3) }),
    big({}, real(200, 330), real(330), third(200, 330)),
  }
end
table.insert(L.lerp, case("number", { real(3, 4), real(4) }, { args = { 0.3 }, number = true }))
table.insert(L.lerp, case("far end", { real(5), real(5) }, { args = { 1 }, ints = false }))
for _, name in ipairs { "addcmul", "addcdiv" } do
  local t = name == "addcmul" and real(3, 4) or range(0.4, 3, 3, 4)
  table.insert(L[name], case("value", { real(3, 4), real(3, 4), t }, { args = { -0.7 }, ints = false }))
  table.insert(L[name], case("whole value", { real(3, 4), real(4), t }, args { value = 3 }))
end

-- ---- parameters ----
local function with(list)
  local r = {
    case("plain", { real(3, 4) }),
    case("rank 0", { real() }),
    case("empty", { real(2, 0) }),
    big({}, real(200, 330)),
  }
  for label, a in pairs(list) do r[#r + 1] = case(label, { real(3, 4) }, { args = a }) end
  return r
end
L.softplus = with { beta = { 2.5 }, threshold = { { beta = 3, threshold = 2.2 } } }
L.leaky_relu = with { slope = { 0.3 }, negative = { -0.2 } }
L.elu = with { alpha = { 1.7 } }
L.celu = with { alpha = { 0.6 }, negative = { -0.8 } }
L.hardtanh = with { bounds = { -0.7, 1.3 }, zero = { { min_val = 0, max_val = 6 } } }
L.softshrink = with { lambd = { 0.8 }, zero = { 0 } }
L.hardshrink = with { lambd = { 0.8 } }
L.nan_to_num = with { value = { 3, { posinf = 9 } } }
L.isclose = {
  case("same", { real(3, 4), real(3, 4) }, { grad = false }),
  case("loose", { real(3, 4), real(4) }, { args = { { rtol = 0.25, atol = 0.27 } }, grad = false }),
  case("NaN", { real(5), real(5) }, { args = { { equal_nan = true } }, grad = false }),
  case("rank 0", { real(), real(3) }, { grad = false }),
  case("empty", { real(0, 3), real(3) }, { grad = false }),
  big({ grad = false }, real(200, 330), real(330)),
}
L.prelu = {
  case("one", { real(3, 4), real(1) }),
  case("per channel", { real(2, 3, 2), real(3) }),
  case("matrix", { real(2, 3), real(3) }),
  case("vector", { real(5), real(1) }),
  case("rank 0", { real(), real(1) }),
  case("empty", { real(0, 3), real(3) }),
  big({}, real(200, 330), real(330)),
}
for _, k in ipairs(L.prelu) do k.floor = 2 end -- the weight's gradient is a sum that cancels
L.glu = {
  case("last", { real(3, 4) }),
  case("first", { real(4, 3) }, args(1)),
  case("middle", { real(2, 2, 3) }, args { dim = 2 }),
  case("vector", { real(6) }),
  case("empty", { real(0, 4) }),
  big(args(-1), real(200, 330)),
}

return L
