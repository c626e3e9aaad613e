-- Fourier transforms: random lengths against the sum that defines them, inverses, lines that do not change each other, views, derivatives
-- of both orders, and shapes on meta. calls/fft compares arguments and values with PyTorch.
local accel = require "accel"
local fft = accel.fft

local seed = tonumber(os.getenv "ACCEL_TEST_SEED") or os.time()
print("seed " .. seed)
accel.manual_seed(seed)
math.randomseed(seed)
local function most(t) return t:numel() > 0 and t:abs():max():item() or 0.0 end

-- sum_j x_j e^(-2 pi i j k / n), with angles that are reduced exactly
local function direct(x)
  local n = x.shape[1]
  local k = accel.arange(n)
  local angle = (k:unsqueeze(2) * k:unsqueeze(1) % n):to "f64" * (-2 * math.pi / n)
  return accel.polar(accel.ones_like(angle), angle):matmul(x)
end

local lengths = { 1, 2, 3, 4, 5, 7, 11, 13, 31, 32, 37, 97, 121, 128, 202, 289 }
for _ = 1, 6 do lengths[#lengths + 1] = math.random(2, 300) end
for _, n in ipairs(lengths) do
  local x = accel.randn(n, { dtype = "c128" })
  local want = direct(x)
  local e = most(fft.fft(x) - want) / most(want)
  assert(e < 1e-13, ("fft of %d: error %g"):format(n, e))
  e = most(fft.fft(x:to "c64"):to "c128" - want) / most(want)
  assert(e < 1e-6, ("fft of %d in c64: error %g"):format(n, e))
  assert(most(fft.ifft(fft.fft(x)) - x) < 1e-13, n)
  local real = accel.randn(n, 3, { dtype = "f64" })
  local half = fft.rfft(real, { dim = 1 })
  e = most(half - fft.fft(real, { dim = 1 }):narrow(1, 1, n // 2 + 1))
  assert(e < 1e-12, ("rfft of %d: %g from fft"):format(n, e))
  assert(most(fft.irfft(half, n, 1) - real) < 1e-13, n)
end

-- The bits of a line are the same alone and among others, along any dim.
local x = accel.randn(40, 60, { dtype = "c64" })
local all, columns = fft.fft(x), fft.fft(x:t(), { dim = 1 })
for _, row in ipairs { 1, 17, 40 } do
  assert(all[row]:eq(fft.fft(x[row])):all():item(), "a line depends on its neighbours")
  assert(columns:select(2, row):eq(all[row]):all():item(), "a line depends on its dim")
end
-- An infinity stays in its line.
local bad = accel.zeros(3, 8)
bad[2] = 1 / 0
assert(fft.rfft(bad)[1]:isfinite():all():item() and not fft.rfft(bad)[2]:isfinite():all():item())
-- A prime above the stages, in f32: no worse than about 10 roundings.
local long = accel.randn(10007, { dtype = "c128" })
local exact = fft.fft(long)
assert(most(fft.fft(long:to "c64"):to "c128" - exact) / most(exact) < 2e-6)
assert(most(fft.ifft(exact) - long) < 1e-12)

local check, second = accel.autograd.gradcheck, accel.autograd.gradgradcheck
local z = accel.randn(2, 5, { dtype = "c128", requires_grad = true })
local r = accel.randn(2, 6, { dtype = "f64", requires_grad = true })
for _, f in ipairs { fft.fft, fft.ifft, fft.irfft, fft.hfft, fft.fft2, fft.irfft2 } do
  assert(check(f, z))
  assert(second(function(t) return f(t):abs():square() end, z))
end
for _, f in ipairs { fft.rfft, fft.ihfft, fft.rfft2 } do
  assert(check(f, r))
  assert(second(function(t) return f(t):abs():square() end, r))
end

local m = accel.zeros(3, 10, { device = "meta" })
assert(table.concat(fft.rfft2(m).shape, ",") == "3,6" and fft.rfft(m).dtype == "c64" and fft.irfft(m, 7).shape[2] == 7)
assert(fft.fft(m:to "f64").dtype == "c128")
print "ok"
