--- cosine_similarity of inputs that broadcast: an extent of 1 along dim counts as often as it is repeated, as in PyTorch.
local accel = require "accel"
local function near(got, want) assert(math.abs(got - want) < 1e-6, ("%g, wanted %g"):format(got, want)) end

local x, y = accel.tensor { { 1.0 }, { 2.0 } }, accel.tensor { { 1.0 } }
near(accel.cosine_similarity(x, y, { dim = 1 })[1]:item(), 3 / math.sqrt(10))
near(accel.nn.CosineSimilarity { dim = 1 }(x, y)[1]:item(), 3 / math.sqrt(10))
near(accel.cosine_similarity(accel.ones(4), accel.tensor { 2.0 }, { dim = -1 }):item(), 1)

-- the same as after an expand, whatever is missing, with gradients
local seed = tonumber(os.getenv "ACCEL_TEST_SEED") or os.time()
print("seed " .. seed)
accel.manual_seed(seed)
for _, case in ipairs { { { 3, 4 }, { 4 }, 1 }, { { 3, 4 }, { 3, 1 }, 2 }, { { 3, 1, 5 }, { 4, 5 }, 3 }, { { 2, 1, 3 }, { 2, 4, 1 }, 2 },
  { { 2, 1, 3 }, { 2, 4, 1 }, -1 }, { { 5 }, { 2, 3, 1 }, 3 } } do
  local a = accel.randn(case[1], { dtype = "f64", requires_grad = true })
  local b = accel.randn(case[2], { dtype = "f64", requires_grad = true })
  local shape = (a + b).shape
  local got, want = accel.cosine_similarity(a, b, case[3]), accel.cosine_similarity(a:expand(shape), b:expand(shape), case[3])
  assert(tostring(got.shape) == tostring(want.shape))
  assert((got - want):abs():max():item() < 1e-12)
  local g, w = accel.grad(got:sum(), { a, b }), accel.grad(want:sum(), { a, b })
  for i = 1, 2 do assert((g[i] - w[i]):abs():max():item() < 1e-12) end
end
