-- mlp: on the CPU the same bits as linear, activation and linear, forward and backward, in every dtype, orientation and layout and under
-- autocast; what it keeps; second derivatives; refusals; and that models take it only where both layers are plain ones.
local accel = require "accel"

local DTYPES <const> = { "f32", "f64", "bf16", "f16" }
local ACTIVATIONS <const> = { gelu = accel.gelu, relu = accel.relu, silu = accel.silu,
  gelu_tanh = function(x) return accel.gelu(x, { approximate = "tanh" }) end }

local function leaf(dtype, ...)
  local t = accel.randn({ ... }):to(dtype):detach()
  t.requires_grad = true
  return t
end
local function same(a, b, what)
  assert(a.dtype == b.dtype and accel.json.encode(a.shape) == accel.json.encode(b.shape), what)
  assert(a:numel() == 0 or a:eq(b):all():item(), what .. ": other bits")
end

accel.manual_seed(1)
local function plain(act, x, w1, w2, b1, b2, transposed)
  if transposed then w1, w2 = w1:t(), w2:t() end
  return accel.linear(ACTIVATIONS[act](accel.linear(x, w1, b1)), w2, b2)
end

for _, dtype in ipairs(DTYPES) do
  for act in accel.pairs(ACTIVATIONS) do
    for _, transposed in ipairs { false, true } do
      for _, shape in ipairs { { 5 }, { 3, 5 }, { 2, 3, 5 }, { 0, 5 }, { 2, 0, 5 } } do
        for _, biased in ipairs { true, false } do
          local what = table.concat({ dtype, act, tostring(transposed), #shape, tostring(biased) }, " ")
          local x = leaf(dtype, table.unpack(shape))
          local w1 = transposed and leaf(dtype, 5, 8) or leaf(dtype, 8, 5)
          local w2 = transposed and leaf(dtype, 8, 4) or leaf(dtype, 4, 8)
          local b1, b2 = biased and leaf(dtype, 8) or nil, biased and leaf(dtype, 4) or nil
          local options = { activation = act, transposed = transposed }
          local y, want = accel.mlp(x, w1, w2, b1, b2, options), plain(act, x, w1, w2, b1, b2, transposed)
          same(y, want, what)
          accel.no_grad(function() same(accel.mlp(x, w1, w2, b1, b2, options), want, what .. " no_grad") end)
          local leaves = { x, w1, w2, b1, b2 }
          local dy = accel.randn(y.shape):to(dtype)
          local got = accel.grad(y, leaves, { grad_outputs = dy })
          for i, g in ipairs(accel.grad(want, leaves, { grad_outputs = dy })) do same(got[i], g, what .. " gradient " .. i) end
        end
      end
    end
  end
end

-- layouts: rows apart, a transposed weight as a view, a gradient that is one number everywhere
do
  local base, w1, w2 = leaf("f32", 7, 10), leaf("f32", 5, 8), leaf("f32", 4, 8)
  local x = base:narrow(2, 3, 5)
  local y, want = accel.mlp(x, w1:t(), w2), plain("gelu", x, w1:t(), w2)
  same(y, want, "views")
  local leaves = { base, w1, w2 }
  local got = accel.grad(y:sum(), leaves)
  for i, g in ipairs(accel.grad(want:sum(), leaves)) do same(got[i], g, "views, gradient " .. i) end
end

-- only what is asked for
do
  local x, w1, w2, b1 = accel.randn(3, 5), accel.randn(8, 5), leaf("f32", 4, 8), leaf("f32", 8)
  local got = accel.grad(accel.mlp(x, w1, w2, b1):sum(), { w2, b1 })
  for i, g in ipairs(accel.grad(plain("gelu", x, w1, w2, b1):sum(), { w2, b1 })) do same(got[i], g, "some, gradient " .. i) end
end

-- autocast: products in its dtype, gradients in the parameters' own
do
  local x, w1, w2, b1, b2 = leaf("f32", 6, 5), leaf("f32", 8, 5), leaf("f32", 4, 8), leaf("f32", 8), leaf("f32", 4)
  local leaves = { x, w1, w2, b1, b2 }
  local function under(f)
    local y = accel.autocast({ device = "cpu", dtype = "bf16" }, f)
    return y, accel.grad(y:to("f32"):sum(), leaves)
  end
  local y, got = under(function() return accel.mlp(x, w1, w2, b1, b2) end)
  local want, gradients = under(function() return plain("gelu", x, w1, w2, b1, b2) end)
  assert(y.dtype == "bf16")
  same(y, want, "autocast")
  for i, g in ipairs(gradients) do same(got[i], g, "autocast, gradient " .. i) end
end

-- second derivatives
for _, act in ipairs { "gelu", "gelu_tanh", "silu" } do
  local inputs = { leaf("f64", 3, 5), leaf("f64", 6, 5), leaf("f64", 4, 6), leaf("f64", 6), leaf("f64", 4) }
  local function f(x, w1, w2, b1, b2) return accel.mlp(x, w1, w2, b1, b2, { activation = act }) end
  assert(accel.autograd.gradcheck(f, inputs) and accel.autograd.gradgradcheck(f, inputs))
end

-- what is written after it was kept is noticed
do
  local x, w1, w2 = leaf("f32", 3, 5), leaf("f32", 8, 5), leaf("f32", 4, 8)
  local y = accel.mlp(x, w1, w2)
  accel.no_grad(function() w2:mul_(2) end)
  assert(not pcall(function() y:sum():backward() end))
end

local function refused(message, ...)
  local ok, e = pcall(accel.mlp, ...)
  assert(not ok and tostring(e):find(message, 1, true), tostring(e))
end
local x, w1, w2 = accel.randn(3, 5), accel.randn(8, 5), accel.randn(4, 8)
refused("shapes (3, 5) and (4, 8) cannot be multiplied: 5 and 8 must be equal", x, w2, w1)
refused("shapes (8, 5) and (8, 5) cannot be multiplied: 8 and 5 must be equal", x, w1, w1)
refused("needs bias1 of shape (8), got (4)", x, w1, w2, accel.randn(4))
refused("needs bias2 of shape (4), got (8)", x, w1, w2, nil, accel.randn(8))
refused("weight2 is f64", x, w1, w2:to "f64")
refused("x must be floating point", x:to "i64", w1:to "i64", w2:to "i64")
refused("at least one dim and weights of two", x, accel.randn(8), w2)

-- models: one op where both layers are plain, else layer by layer, with the same result
do
  local feed_forward = require "accel.models.feed_forward"
  local activation = require "accel.models.activation"
  local seen = 0
  local real = accel.linear
  local first, second = accel.nn.Linear(5, 8), accel.nn.Linear(8, 4)
  local function made_by(t) return tostring(t.grad_fn):match "[%w_]+" end
  local want = feed_forward(first, activation.find "gelu_new", second, x)
  assert(made_by(want) == "mlp_parts", made_by(want))
  local handle = first:register_forward_hook(function() seen = seen + 1 end)
  local watched = feed_forward(first, activation.find "gelu_new", second, x)
  same(watched, want, "with a hook")
  assert(seen == 1 and made_by(watched) == "linear", made_by(watched))
  handle:remove()
  assert(made_by(feed_forward(first, activation.find "gelu_new", second, x)) == "mlp_parts", "a hook that was removed")
  local own = accel.nn.Linear:extend("Own")
  function own:forward(t) return real(t, self.weight, self.bias) * 2 end
  local other = own(8, 4)
  same(feed_forward(first, activation.find "mish", other, x), other(accel.mish(first(x))), "another class")
  local models = accel.models
  for _, dtype in ipairs(DTYPES) do
    local gpt2 = models.GPT2(models.tiny.gpt2):to(dtype):eval()
    local part, t = gpt2.transformer.h[1].mlp, leaf(dtype, 2, 3, 8)
    local y = part(t)
    assert(made_by(y) == "mlp_parts", made_by(y))
    part.c_fc:register_forward_hook(function() end)
    local z = part(t)
    same(z, y, "GPT-2")
    local leaves = { t, table.unpack(part:parameters()) }
    local got = accel.grad(y:sum(), leaves)
    for i, g in ipairs(accel.grad(z:sum(), leaves)) do same(got[i], g, "GPT-2, gradient " .. i) end
  end
  assert(activation.fused(activation.find "mish") == nil and activation.fused(activation.find "gelu_new") == "gelu_tanh")
end
print "ok"
