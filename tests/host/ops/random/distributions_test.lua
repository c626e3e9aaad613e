-- Distributions of the in-place draws and of poisson, bernoulli and normal: against their distribution functions (Kolmogorov and Smirnov) or their
-- moments, in f32 and f64. The seed is printed, ACCEL_TEST_SEED=N repeats it.
local accel = require "accel"
local seed = math.tointeger(tonumber(os.getenv "ACCEL_TEST_SEED")) or 7
print("seed " .. seed)
accel.manual_seed(seed)

local N <const> = 20000

-- The largest distance of the empirical distribution function from cdf, times sqrt(n): above 2.2 once in 8,000 samples.
local function distance(x, cdf)
  local v, worst = x:to("f64"):sort(1):tolist(), 0
  for i = 1, #v do
    local p = cdf(v[i])
    worst = math.max(worst, math.abs(p - (i - 1) / #v), math.abs(p - i / #v))
  end
  return worst * math.sqrt(#v)
end
local function normal_cdf(z) return accel.tensor(z, { dtype = "f64" }):ndtr():item() end

for _, dtype in ipairs { "f32", "f64" } do
  local function empty() return accel.empty({ N }, { dtype = dtype }) end
  local e = empty():exponential_(2)
  assert(e:amin():item() > 0)
  assert(distance(e, function(x) return 1 - math.exp(-2 * x) end) < 2.2, "exponential_")
  assert(distance(empty():cauchy_(1, 3), function(x) return 0.5 + math.atan((x - 1) / 3) / math.pi end) < 2.2, "cauchy_")
  assert(distance(empty():log_normal_(0.5, 0.25):narrow(1, 1, 2000), function(x) return normal_cdf((math.log(x) - 0.5) / 0.25) end) < 2.2,
    "log_normal_")
  -- counts: mean and variance within six standard errors
  local function moments(name, x, mean, var, fourth)
    local m, v = x:to("f64"):mean():item(), x:to("f64"):var():item()
    assert(math.abs(m - mean) < 6 * math.sqrt(var / N), ("%s: mean %g instead of %g"):format(name, m, mean))
    assert(math.abs(v - var) < 6 * math.sqrt((fourth - var ^ 2) / N), ("%s: variance %g instead of %g"):format(name, v, var))
  end
  for _, rate in ipairs { 0.3, 4, 9.9, 10.1, 60, 900 } do
    moments("poisson " .. rate, accel.full({ N }, rate, { dtype = dtype }):poisson(), rate, rate, rate + 3 * rate ^ 2)
  end
  for _, p in ipairs { 0.1, 0.7 } do
    local q = 1 - p
    moments("geometric_ " .. p, empty():geometric_(p), 1 / p, q / p ^ 2, q * (p ^ 2 - 9 * p + 9) / p ^ 4)
  end
  local b = accel.full({ N }, 0.2, { dtype = dtype }):bernoulli()
  assert(b.dtype == dtype and math.abs(b:mean():item() - 0.2) < 6 * 0.4 / math.sqrt(N))
end

-- random_: bounds and evenness
local r = accel.empty({ N }, { dtype = "i64" }):random_(10)
local counts = accel.bincount(r):tolist()
assert(#counts == 10)
for _, n in ipairs(counts) do assert(math.abs(n - N / 10) < 6 * math.sqrt(N / 10)) end
r = accel.empty({ 1000 }, { dtype = "i8" }):random_()
assert(r:amin():item() >= 0 and r:amax():item() > 100)
r = accel.empty(1000):random_(-5, 5)
assert(r:amin():item() == -5 and r:amax():item() == 4)

-- bernoulli_ by a tensor that broadcasts, of another dtype
local m = accel.empty({ 4000, 3 }, { dtype = "i64" }):bernoulli_(accel.tensor { 0.0, 0.5, 1.0 }):to("f32"):mean(1):tolist()
assert(m[1] == 0 and m[3] == 1 and math.abs(m[2] - 0.5) < 0.06)
assert(not pcall(function() accel.empty(2):bernoulli_(accel.tensor { 0.5, 1.5 }) end))

-- the same seed, the same numbers; each call others
local function draws()
  accel.manual_seed(seed)
  local a, c = accel.full({ 50 }, 20.0):poisson(), accel.empty(50):exponential_()
  return a, c, accel.empty(50):exponential_()
end
local a1, c1, d1 = draws()
local a2, c2 = draws()
assert(a1:equal(a2) and c1:equal(c2) and not c1:equal(d1))

-- normal, randint_like
local x = accel.normal(accel.tensor { 100.0, -100 }:reshape(2, 1):expand(2, 4000), accel.tensor { 1.0, 2 }:reshape(2, 1))
assert(math.abs(x[1]:mean():item() - 100) < 0.1 and math.abs(x[2]:std():item() - 2) < 0.2)
assert(accel.normal(2, 3, { 2, 5 }, { dtype = "f64" }).dtype == "f64")
assert(not pcall(accel.normal, accel.ones(2), -1))
local like = accel.randint_like(accel.zeros({ 300 }, { dtype = "u8" }), 3, 6)
assert(like.dtype == "u8" and like:amin():item() == 3 and like:amax():item() == 5)
