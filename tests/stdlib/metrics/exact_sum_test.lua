-- accel.metrics.ExactSum: no order, cut or way of adding changes a bit; rounding at its borders.
--   accel-run tests/stdlib/metrics/exact_sum_test.lua
local accel = require "accel"
local ExactSum = accel.metrics.ExactSum

local function bits(x) return x ~= x and "nan" or string.format("%a", x) end
local function state(s) return accel.encode(s:state_dict()) end
local function sum(list)
  local s = ExactSum()
  for _, v in ipairs(list) do s:add(v) end
  return s
end
local function expect(list, want)
  local got = sum(list):value()
  assert(bits(got) == bits(want), ("%s, not %s"):format(bits(got), bits(want)))
end

-- rounding to nearest, ties to even, in the whole range
expect({}, 0.0)
expect({ -0.0 }, 0.0)
expect({ 0.1, 0.2, -0.3 }, 2.0 ^ -55 + 0.0)
expect({ 1.0, 2.0 ^ -53 }, 1.0)
expect({ 1.0, 2.0 ^ -53, 2.0 ^ -1074 }, 1 + 2.0 ^ -52)
expect({ 1.0, 2.0 ^ -52, 2.0 ^ -53 }, 1 + 2.0 ^ -51)
expect({ -1.0, -2.0 ^ -53, -2.0 ^ -1074 }, -1 - 2.0 ^ -52)
expect({ 1e308, 1e308, -1e308 }, 1e308)
expect({ 1e308, 1e308 }, math.huge)
expect({ -1e308, -1e308 }, -math.huge)
expect({ 1.7976931348623157e308, 2.0 ^ 969 }, 1.7976931348623157e308)
expect({ 1.7976931348623157e308, 2.0 ^ 970 }, math.huge)
expect({ 2.0 ^ -1074, 2.0 ^ -1074 }, 2.0 ^ -1073)
expect({ 2.0 ^ -1022, -2.0 ^ -1074 }, 2.0 ^ -1022 - 2.0 ^ -1074)
expect({ math.huge, 1.0 }, math.huge)
expect({ math.huge, -math.huge }, 0 / 0)
expect({ 0 / 0, math.huge }, 0 / 0)
expect({ 1 << 53, 1 }, 2.0 ^ 53)
expect({ 1 << 53, 1, 1 }, 2.0 ^ 53 + 2)
expect({ math.mininteger, math.maxinteger, 1 }, 0.0)
expect({ math.maxinteger, math.maxinteger, 2 }, 2.0 ^ 64)
expect({ -5, 7, -2 }, 0.0)

-- products: x * y and what rounding it lost
for _, pair in ipairs {
  { 0.1, 0.3 }, { 1e200, 1e-200 }, { -1 / 3, 1 / 3 }, { 2.0 ^ 53 - 1, -(2.0 ^ 53 - 1) }, { 1e300, -1e7 },
} do
  local s, x, y = ExactSum(), pair[1], pair[2]
  s:add_product(x, y)
  assert(s:value() == x * y)
  s:add(-(x * y))
  local left = s:value()
  s:add(-left)
  assert(s:value() == 0 and math.abs(left) <= math.abs(x * y) * 2.0 ^ -53)
end
do
  local s = ExactSum()
  s:add_product(2.0 ^ -600, 2.0 ^ -600) -- below every f64, but not lost
  assert(s:value() == 0)
  for _ = 1, 3 do s:add_product(2.0 ^ -1074, 2.0 ^ -1074) end
  local x, e = s:parts()
  assert(x * 2.0 ^ (e + 1200) == 1)
  s:add_product(2.0 ^ 600, 2.0 ^ 600)
  s:add_product(-2.0 ^ 600, 2.0 ^ 600)
  x, e = s:parts()
  assert(x * 2.0 ^ (e + 1200) == 1)
  s:add_product(math.huge, 0.0)
  assert(bits(s:value()) == "nan")
end

--- Values of a kind, with what makes sums hard.
local kinds = {
  normal = function(n) return accel.randn(n, { dtype = "f64" }) end,
  wide = function(n)
    return accel.randn(n, { dtype = "f64" }) * (accel.randint(-700, 700, { n }):to "f64" * math.log(2)):exp()
  end,
  wider = function(n)
    return accel.randn(n, { dtype = "f64" }) * (accel.randint(-380, 380, { n }):to "f64" * math.log(2)):exp()
  end,
  small = function(n) return accel.randn(n, { dtype = "f64" }) * 2.0 ^ -505 end,
  tiny = function(n) return accel.randn(n, { dtype = "f64" }) * 2.0 ^ -1040 end,
  huge = function(n) return accel.randn(n, { dtype = "f64" }) * 2.0 ^ 1019 end,
  far = function(n) return accel.randn(n, { dtype = "f64" }) + 1e15 end,
  f32 = function(n) return accel.randn(n) * 1e-30 end,
  f16 = function(n) return accel.randn(n):to "f16" end,
  bf16 = function(n) return accel.randn(n):to "bf16" end,
  i64 = function(n) return accel.randint(-1000000, 1000000, { n }) end,
  i32 = function(n) return accel.randint(-2000000000, 2000000000, { n }):to "i32" end,
  i8 = function(n) return accel.randint(-128, 128, { n }):to "i8" end,
  bool = function(n) return accel.rand(n):gt(0.5) end,
  specials = function(n)
    local x = accel.randn(n, { dtype = "f64" })
    x:narrow(1, 1, 2):copy_(accel.tensor { math.huge, 0 / 0 })
    return x
  end,
}

-- Whole tensors, single numbers, pieces in any order, and merged pieces: the same state to the last bit.
for name, make in accel.pairs(kinds) do
  for _, n in ipairs { 2, 24, 25, 100, 3000 } do
    local x, y = make(n), make(n)
    local one = ExactSum()
    one:add_tensor(x)
    local two, list = ExactSum(), x:to("f64"):tolist()
    for i = n, 1, -1 do two:add(list[i]) end
    assert(state(one) == state(two), name .. ": one by one")
    local parts, at = ExactSum(), 1
    while at <= n do
      local size = math.min(n - at + 1, 1 + at)
      local part = ExactSum()
      part:add_tensor(x:narrow(1, at, size))
      parts:add_state(accel.decode(accel.encode(part:state_dict())))
      at = at + size
    end
    assert(state(parts) == state(one), name .. ": in pieces")
    two:load_state_dict(one:state_dict())
    assert(state(two) == state(one) and bits(two:value()) == bits(one:value()))

    local products, each = ExactSum(), ExactSum()
    products:add_products(x, y)
    local other = y:to("f64"):tolist()
    for i = 1, n do each:add_product(list[i], other[i]) end
    assert(state(products) == state(each), name .. ": products")
    if one:finite() then
      one:merge(two, -1)
      assert(one:value() == 0 and #one:state_dict().digits == 0, name .. ": minus itself")
    end
  end
end

-- sums times sums: (a + b) * (c + d) = ac + ad + bc + bd
for _ = 1, 200 do
  local v = kinds.wider(4):tolist()
  local product, written = sum({ v[1], v[2] }):times(sum { v[3], v[4] }), ExactSum()
  for i = 1, 2 do
    for k = 3, 4 do written:add_product(v[i], v[k]) end
  end
  local x, e = product:parts()
  local y, f = written:parts()
  assert(x == y and (e == f or x == 0))
end

-- carries are passed on in time
do
  local s = ExactSum()
  s.pending = (1 << 28) - 3
  for _ = 1, 20 do s:add(2.0 ^ 32 - 1) end
  assert(s:value() == 20 * (2.0 ^ 32 - 1) and s.pending < 100)
end

local ok, err = pcall(function() sum({ 1.0 }):merge(sum({ 1.0 }):times(sum { 1.0 })) end)
assert(not ok and err:find "no common unit")
