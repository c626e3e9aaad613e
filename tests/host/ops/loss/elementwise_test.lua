-- Losses of pairs: values of PyTorch 2.15 in f64, sums that do not depend on threads or layout, refusals.
local accel = require "accel"

local x = accel.tensor({ -1.5, 0.2, 3.0, -0.4 }, { dtype = "f64", requires_grad = true })
local t = accel.tensor({ 0.25, 1.0, 0.0, 0.75 }, { dtype = "f64" })

-- {op, options, value, gradient by input}
local cases = {
  { "mse_loss", {}, 3.50625, { -0.875, -0.4, 1.5, -0.575 } },
  { "l1_loss", { reduction = "sum" }, 6.7, { -1, -1, 1, -1 } },
  { "smooth_l1_loss", { beta = 1.0 }, 1.18, { -0.25, -0.2, 0.25, -0.25 } },
  { "huber_loss", { delta = 2.0 }, 1.628125, { -0.4375, -0.2, 0.5, -0.2875 } },
}
for _, c in ipairs(cases) do
  x.grad = nil
  local l = accel[c[1]](x, t, c[2])
  assert(math.abs(l:item() - c[3]) < 1e-9, ("%s: %.12g, not %.12g"):format(c[1], l:item(), c[3]))
  l:backward()
  for i, g in ipairs(x.grad:tolist()) do assert(math.abs(g - c[4][i]) < 1e-12, c[1] .. ": gradient " .. i) end
end

-- large: the mean against f64, in one pass; strided inputs give the same bits as contiguous ones
do
  accel.manual_seed(2)
  local a, b = accel.randn(1000, 301), accel.randn(1000, 301)
  for _, name in ipairs { "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div" } do
    local u = name == "kl_div" and b:abs() or b
    local got, want = accel[name](a, u):item(), accel[name](a:to("f64"), u:to("f64")):item()
    assert(math.abs(got - want) <= 1e-6 * math.abs(want), name)
    assert(accel[name](a:t():contiguous():t(), u):item() == got, name .. ": layout changes the bits")
  end
end

-- under autocast the loss is computed in f32
do
  local h = accel.randn(4, 3):to("bf16")
  local _ <close> = accel.autocast { device = "cpu", dtype = "bf16" }
  assert(accel.mse_loss(h, h).dtype == "f32" and accel.binary_cross_entropy_with_logits(h, h:sigmoid()).dtype == "f32")
end

local function refused(pattern, fn, ...)
  local ok, message = pcall(fn, ...)
  assert(not ok and tostring(message):find(pattern), tostring(message))
end
refused("input %(3%) and target %(3, 1%) differ in shape", accel.mse_loss, accel.ones(3), accel.ones(3, 1))
refused("floating point", accel.l1_loss, accel.ones(3), accel.ones(3, { dtype = "i64" }))
refused("delta must be positive", accel.huber_loss, accel.ones(3), accel.ones(3), { delta = 0.0 })
refused("beta must not be negative", accel.smooth_l1_loss, accel.ones(3), accel.ones(3), { beta = -1.0 })
refused("did you mean 'reduction'", accel.mse_loss, accel.ones(3), accel.ones(3), { reductoin = "sum" })
refused("target of shape %(2%) does not fit input of shape %(3, 4%)", accel.nll_loss, accel.ones(3, 4), accel.zeros(2, { dtype = "i64" }))
refused("not one of the 4 classes %(0 to 3; ignore_index is %-100%)", accel.nll_loss, accel.ones(3, 4), accel.full({ 3 }, 4, { dtype = "i64" }))
assert(accel.smooth_l1_loss(accel.tensor { 1.0 }, accel.tensor { 3.0 }, { beta = 0.0 }):item() == 2)
refused("weight must be floating point", accel.nll_loss, accel.ones(3, 4), accel.zeros(3, { dtype = "i64" }), accel.ones(4, { dtype = "i64" }))
refused("var of shape %(4%) does not fit input of shape %(3, 4%)", accel.gaussian_nll_loss, accel.ones(3, 4), accel.ones(3, 4), accel.ones(4))

-- one variance for each last dim, also where broadcasting would take it for one of each column; gradients pass eps
do
  local v = accel.tensor({ 0.5, 0.01 }, { dtype = "f64", requires_grad = true })
  local zeros, ones = accel.zeros(2, 2, { dtype = "f64" }), accel.ones(2, 2, { dtype = "f64" })
  local l = accel.gaussian_nll_loss(zeros, ones, v, { eps = 0.2, reduction = "none" })
  for i, want in ipairs { 0.6534264097200273, 1.6952810437829498 } do
    for k = 1, 2 do assert(math.abs(l[i][k]:item() - want) < 1e-12) end
  end
  l:sum():backward()
  for i, want in ipairs { -2, -20 } do assert(math.abs(v.grad[i]:item() - want) < 1e-9, "gradient by var") end
end

-- more elements than f16 can count
do
  local input, target = accel.full({ 70000, 2 }, -1.0, { dtype = "f16" }), accel.zeros(70000, { dtype = "i64" })
  assert(accel.nll_loss(input, target):item() == 1)
  assert(accel.nll_loss(input, target, accel.full({ 2 }, 2.0, { dtype = "f16" })):item() == 1)
end

-- an infinite logit with a target between the classes; a difference of NaN has no slope
do
  local inf, half = accel.tensor { math.huge, -math.huge }, accel.tensor { 0.5, 0.5 }
  local l = accel.binary_cross_entropy_with_logits(inf, half, { reduction = "none" }):tolist()
  assert(l[1] == math.huge and l[2] == math.huge)
  local y = accel.tensor({ 0 / 0, math.huge }, { requires_grad = true })
  accel.l1_loss(y, accel.tensor { 0, math.huge }, { reduction = "sum" }):backward()
  assert(y.grad[1]:item() == 0 and y.grad[2]:item() == 0)
end
assert(accel.hinge_embedding_loss(accel.tensor { 0.5, 0.25 }, accel.tensor { 1, -1 }):item() == 0.625)
local none = accel.ones(0)
assert(accel.mse_loss(none, none):isnan():item() and accel.mse_loss(none, none, { reduction = "sum" }):item() == 0)

-- probabilities lie in 0 .. 1; the ends are fine, and so is NaN, which stays
refused("holds 1.5, but probabilities", accel.binary_cross_entropy, accel.tensor { 0.5, 1.5 }, accel.ones(2))
refused("holds %-1, but probabilities", accel.binary_cross_entropy, accel.tensor { 0.5, -1.0 }, accel.ones(2), { reduction = "none" })
assert(accel.binary_cross_entropy(accel.tensor { 0.0, 1.0 }, accel.tensor { 0.0, 1.0 }):item() == 0)
assert(accel.binary_cross_entropy(accel.tensor { 0 / 0 }, accel.ones(1)):isnan():item())

do -- as PyTorch: of targets that are neither 1 nor -1 the hinge loss is the sum of both parts; isclose and prelu refuse what it refuses
  local l = accel.hinge_embedding_loss(accel.tensor { 0.25, 0.25, 0.25 }, accel.tensor { 1.0, -1.0, 0.0 }, { reduction = "none" })
  for i, want in ipairs { 0.25, 0.75, 1.0 } do assert(l[i]:item() == want) end
  assert(not pcall(accel.isclose, accel.ones(1), accel.ones(1), { rtol = -1 }))
  assert(not pcall(accel.prelu, accel.ones(2, 3), accel.ones(1, 3)))
end

do -- an op of which only the first derivative exists is named by its public name
  local x = accel.randn(5, 1, 4)
  x.requires_grad = true
  local loss = accel.nn.functional.ctc_loss(x:log_softmax(-1), accel.tensor { { 1, 2 } }, accel.tensor { 5 }, accel.tensor { 2 })
  local g = accel.grad({ loss }, { x }, { create_graph = true })[1]
  local ok, message = pcall(accel.grad, { g:sum() }, { x })
  assert(not ok and tostring(message):find("ctc_loss has no second derivative", 1, true), message)
end
