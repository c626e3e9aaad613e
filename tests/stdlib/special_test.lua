-- accel.special: names of torch.special at points whose values are known (DLMF, and SciPy 1.17 for those without a closed form); absent names.
--   accel-run tests/stdlib/special_test.lua
local accel = require "accel"
local says = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua").fails
local S = accel.special
local function at(x) return accel.tensor(x, { dtype = "f64" }) end
for name, row in accel.pairs {
  expit = { 0.5, 0.0 }, gammaln = { math.log(24), 5.0 }, psi = { -0.57721566490153286, 1.0 }, digamma = { -0.57721566490153286, 1.0 },
  entr = { 0.5 * math.log(2), 0.5 }, erf = { 0.8427007929497149, 1.0 }, erfc = { 0.15729920705028513, 1.0 }, erfcx = { 1.0, 0.0 },
  erfinv = { 0.4769362762044699, 0.5 }, exp2 = { 8.0, 3.0 }, expm1 = { math.exp(1) - 1, 1.0 }, i0 = { 1.2660658777520084, 1.0 },
  i0e = { 1.2660658777520084 / math.exp(1), 1.0 }, i1 = { 0.5651591039924851, 1.0 }, i1e = { 0.5651591039924851 / math.exp(1), 1.0 },
  log1p = { math.log(2), 1.0 }, log_ndtr = { math.log(0.5), 0.0 }, logit = { math.log(3), 0.75 }, ndtr = { 0.5, 0.0 }, ndtri = { 0.0, 0.5 },
  sinc = { 2 / math.pi, 0.5 }, round = { 2.0, 2.5 },
} do
  local got = S[name](at(row[2])):item()
  assert(math.abs(got - row[1]) < 1e-13 * math.max(1, math.abs(row[1])), ("%s: %.17g"):format(name, got))
end
local two = { gammainc = { 1 - math.exp(-2), 1.0, 2.0 }, gammaincc = { math.exp(-2), 1.0, 2.0 }, xlogy = { 2 * math.log(3), 2.0, 3.0 },
  xlog1py = { 2 * math.log(4), 2.0, 3.0 }, zeta = { math.pi ^ 2 / 6, 2.0, 1.0 } }
for name, row in accel.pairs(two) do
  assert(math.abs(S[name](at(row[2]), at(row[3])):item() - row[1]) < 1e-12, name)
end
assert(math.abs(S.multigammaln(at(2.0), 1):item()) < 1e-14 and math.abs(S.polygamma(1, at(1.0)):item() - math.pi ^ 2 / 6) < 1e-12)
assert(S.softmax(at { 0.0, 0.0 }, 1)[1]:item() == 0.5 and S.log_softmax(at { 0.0, 0.0 }, 1)[1]:item() == -math.log(2))
assert(S.logsumexp(at { 0.0, 0.0 }, 1):item() == math.log(2))
assert(S.expit == accel.sigmoid and S.nothing == nil)
says("accel.special.bessel_j0 is not in accel", function() return S.bessel_j0 end)
says("accel.special.i0 is the same function", function() return S.modified_bessel_i0 end)
