-- Ops beside the main ones where the generated tests do not look: tails of erfc, signs of floor_divide, ties and NaN
-- of running extremes and quantiles, and the distribution of multinomial.
local accel = require "accel"

local function near(got, want, tol, what)
  local g = got:flatten():tolist()
  assert(#g == #want, what .. ": length")
  for i, w in ipairs(want) do
    local v = g[i]
    assert((v ~= v and w ~= w) or v == w or math.abs(v - w) <= tol * math.abs(w),
      ("%s: element %d is %s, not %s"):format(what, i, v, w))
  end
end

local function refused(what, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok, what .. " is not refused")
  return tostring(why)
end

local NAN <const> = 0 / 0

-- erfc: relative accuracy far out, in both float widths
local xs = { 0.25, 0.5, 1, 2, 3.5, 5, 9, -3 }
local want = { 0.7236736098317631, 0.4795001221869535, 0.15729920705028516, 0.004677734981047266,
  7.430983723414129e-07, 1.5374597944280347e-12, 4.1370317465138105e-37, 1.9999779095030015 }
near(accel.tensor(xs, { dtype = "f64" }):erfc(), want, 1e-14, "erfc f64")
near(accel.tensor(xs, { dtype = "f32" }):erfc(), want, 8e-7, "erfc f32")

-- floor_divide: the quotient's floor, integers exactly, zero divisors as division has them
near(accel.tensor({ 7, -7, 7, -7 }) // accel.tensor({ 2, 2, -2, -2 }), { 3, -4, -4, 3 }, 0, "// of integers")
near(accel.tensor({ -128 }, { dtype = "i64" }) // -1, { 128 }, 0, "// by -1")
near(accel.tensor { 1.0, -1.0, 6.0, 0.0 } // accel.tensor { 0.0, 0.0, 0.1, 0.0 },
  { math.huge, -math.huge, 59, NAN }, 0, "// of floats")
assert(refused("// 0", function() return accel.tensor { 1, 2 } // 0 end):find("division by zero", 1, true))

-- bits are for integers
assert(refused("a float", accel.bitwise_and, accel.tensor { 1, 2 }, 1.5):find("float", 1, true))

-- running extremes: the last of equals, NaN from the first one on
local v, at = accel.tensor({ 1, 3, 3, 2, NAN, 9 }):cummax(1)
near(v, { 1, 3, 3, 3, NAN, NAN }, 0, "cummax")
near(at, { 0, 1, 2, 2, 4, 4 }, 0, "cummax places")
v, at = accel.tensor({ 2, 1, 1, 5 }):cummin(-1)
near(v, { 2, 1, 1, 1 }, 0, "cummin")
near(at, { 0, 1, 2, 2 }, 0, "cummin places")

near(accel.tensor({ { 1, 2, NAN }, { 1, 2, 4 } }):quantile(0.25, 2), { NAN, 1.5 }, 0, "quantile with NaN")
assert(refused("q", accel.quantile, accel.ones(3), 1.5):find("between 0 and 1", 1, true))

-- ---- multinomial ----
-- Frequencies within 5 standard deviations of the weights' shares.
local function frequencies(y, n)
  local count = {}
  for k = 1, n do count[k] = 0 end
  for _, i in ipairs(y:flatten():tolist()) do count[i + 1] = count[i + 1] + 1 end
  return count
end
local function matches(y, share, what)
  local m, count = y:numel(), frequencies(y, #share)
  for k, p in ipairs(share) do
    local off = math.abs(count[k] - m * p)
    assert(off <= 5 * math.sqrt(m * p * (1 - p)), ("%s: place %d came %d times of %d"):format(what, k, count[k], m))
  end
end

accel.manual_seed(5)
local w = accel.tensor { 2.0, 0, 1, 5 }
local share = { 0.25, 0, 0.125, 0.625 }
matches(w:multinomial(20000, true), share, "with replacement")
local rows = w:expand(20000, 4)
matches(rows:multinomial(1), share, "one of each row")

-- Without replacement: the first as the weights say, the second among those that are left.
local y = rows:multinomial(3)
matches(y:narrow(2, 1, 1), share, "first")
local second = {}
for k, p in ipairs(share) do
  second[k] = 0
  for i, q in ipairs(share) do
    if i ~= k then second[k] = second[k] + q * p / (1 - q) end
  end
end
matches(y:narrow(2, 2, 1), second, "second")
near(y:sort():narrow(1, 1, 1), { 0, 2, 3 }, 0, "each once")
assert(y:ne(1):all():item(), "a place without weight was drawn")

-- The same seed draws the same; a generator of its own does too.
accel.manual_seed(7)
local a = w:multinomial(50, true)
accel.manual_seed(7)
near(w:multinomial(50, true), a:tolist(), 0, "seed")
assert(not w:multinomial(50, true):eq(a):all():item(), "the second call draws the same")

assert(refused("too many", accel.multinomial, w, 4):find("only 3 weights above 0", 1, true))
assert(refused("more than places", accel.multinomial, w, 5):find("4 positions", 1, true))
assert(refused("a negative weight", accel.multinomial, accel.tensor { 1.0, -1 }, 1):find("not negative", 1, true))
assert(refused("no weight", accel.multinomial, accel.zeros(3), 1):find("sum to 0", 1, true))
assert(refused("NaN", accel.multinomial, accel.tensor { 1.0, NAN }, 1, true):find("weight 2", 1, true))

print "ok"
