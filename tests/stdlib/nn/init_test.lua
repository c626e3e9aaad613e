--- nn.init: formulas of every function, bounds and moments, fans of convolutions.
local accel = require "accel"
local nn = accel.nn
local init = nn.init

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function moments(t)
  local v = t:detach():to("f64"):reshape(-1)
  local mean = v:mean():item()
  return mean, math.sqrt(((v - mean) * (v - mean)):mean():item())
end

local function near(a, b, bar) assert(math.abs(a - b) <= bar, ("%.9g is not %.9g within %g"):format(a, b, bar)) end

--- Uniform in +-bound: reaches close to it, and has its standard deviation.
local function is_uniform(t, bound)
  local v = t:detach():to "f64"
  local top = v:abs():max():item()
  assert(top <= bound * (1 + 1e-6) and top > bound * 0.99, ("%g for a bound of %g"):format(top, bound))
  local mean, std = moments(v)
  near(mean / bound, 0, 0.04)
  near(std / bound, 1 / math.sqrt(3), 0.02)
end

local function is_normal(t, mean, std)
  local m, s = moments(t)
  near((m - mean) / std, 0, 0.05)
  near(s / std, 1, 0.03)
end

accel.manual_seed(11)

do -- fans and gains
  local function fans(...) return table.concat({ init.fans(accel.empty(...)) }, " ") end
  assert(fans(5, 3) == "3 5" and fans(8, 4, 3) == "12 24" and fans(8, 4, 3, 2) == "24 48")
  assert(fans(2, 3, 2, 2, 2) == "24 16")
  near(init.calculate_gain "tanh", 5 / 3, 0)
  near(init.calculate_gain "leaky_relu", math.sqrt(2 / 1.0001), 1e-15)
  near(init.calculate_gain("leaky_relu", 0.5), math.sqrt(2 / 1.25), 1e-15)
  near(init.calculate_gain "selu", 0.75, 0)
  assert(init.calculate_gain "conv_transpose2d" == 1 and init.calculate_gain "linear" == 1)
  fails("unknown nonlinearity 'rleu'; did you mean 'relu'", init.calculate_gain, "rleu")
end

do -- what each fills with
  local w = accel.empty(64, 16, 3, 3)
  is_uniform(init.xavier_uniform_(w), math.sqrt(6 / (16 * 9 + 64 * 9)))
  is_uniform(init.xavier_uniform_(w, 2), 2 * math.sqrt(6 / (16 * 9 + 64 * 9)))
  is_normal(init.xavier_normal_(w, 3), 0, 3 * math.sqrt(2 / (16 * 9 + 64 * 9)))
  is_uniform(init.kaiming_uniform_(w), math.sqrt(6 / (16 * 9)))
  is_uniform(init.kaiming_uniform_(w, math.sqrt(5)), 1 / math.sqrt(16 * 9))
  is_uniform(init.kaiming_uniform_(w, { mode = "fan_out", nonlinearity = "tanh" }), 5 / math.sqrt(3 * 64 * 9))
  is_normal(init.kaiming_normal_(w, 0, "fan_out", "relu"), 0, math.sqrt(2 / (64 * 9)))
  is_normal(init.kaiming_normal_(w, { nonlinearity = "relu" }), 0, math.sqrt(2 / (16 * 9)))
  is_normal(init.normal_(w, 2, 0.5), 2, 0.5)
  local mean = moments(init.uniform_(w, 1, 3))
  near(mean, 2, 0.03)
  fails("mode must be one of fan_in, fan_out, got 'fan_inn'", init.kaiming_uniform_, w, { mode = "fan_inn" })
  fails("unknown option 'nonlinarity'; did you mean 'nonlinearity'", init.kaiming_normal_, w, { nonlinarity = "relu" })
  fails("need a tensor of at least 2 dimensions, got shape %(3%)", init.kaiming_normal_, accel.empty(3))
  fails("expected a tensor, got 3", init.zeros_, 3)
end

do -- eye and dirac
  assert(init.eye_(accel.empty(3, 5)):sum():item() == 3)
  fails("expected a matrix", init.eye_, accel.empty(3))
  local w = init.dirac_(accel.empty(4, 3, 3, 3))
  local x = accel.randn(2, 3, 5, 5)
  local y = accel.conv2d(x, w, { padding = 1 })
  assert((y:narrow(2, 1, 3) - x):abs():max():item() == 0 and y:narrow(2, 4, 1):abs():max():item() == 0)
  w = init.dirac_(accel.empty(4, 2, 3), 2)
  assert(w:tolist()[3][1][2] == 1 and w:tolist()[4][2][2] == 1 and w:sum():item() == 4)
  fails("4 output channels are not a multiple of 3 groups", init.dirac_, accel.empty(4, 2, 3), 3)
  fails("expected 3, 4 or 5 dimensions", init.dirac_, accel.empty(4, 2))
end

do -- orthogonal: rows or columns of length gain, and a fair choice of signs
  for _, shape in ipairs { { 4, 7 }, { 7, 4 }, { 5, 5 }, { 6, 2, 3, 2 } } do
    local w = init.orthogonal_(accel.empty(shape, { dtype = "f64" }), 2):reshape(shape[1], -1)
    local wide = w:size(1) <= w:size(2)
    local gram = wide and w:matmul(w:t()) or w:t():matmul(w)
    assert((gram - accel.eye(gram:size(1), { dtype = "f64" }) * 4):abs():max():item() < 1e-12)
  end
  local sum = 0
  for _ = 1, 200 do sum = sum + init.orthogonal_(accel.empty(3, 3, { dtype = "f64" })):tolist()[1][1] end
  near(sum / 200, 0, 0.15)
  assert(init.orthogonal_(accel.empty(3, 3, { dtype = "bf16" })).dtype == "bf16")
  fails("expected at least 2 dimensions", init.orthogonal_, accel.empty(3))
end

do -- truncated normal: inside, and with the distribution's moments
  local t = accel.empty(200, 200, { dtype = "f64" })
  init.trunc_normal_(t)
  assert(t:max():item() <= 2 and t:max():item() > 1.99 and t:min():item() < -1.99)
  local mean, std = moments(t)
  near(mean, 0, 0.02)
  near(std, 0.87962566, 0.01) -- of a standard normal within two deviations
  init.trunc_normal_(t, 1, 0.5, 1.5, 9)
  assert(t:min():item() >= 1.5 and t:min():item() < 1.5001)
  near(t:mean():item(), 1 + 0.5 * 1.52513528, 0.01) -- above one deviation
  init.trunc_normal_(t, 0, 1, 3, 4) -- 1 draw in 760 would fall there
  assert(t:min():item() >= 3 and t:max():item() <= 4)
  near(t:mean():item(), 3.26045, 0.01)
  -- the inverse is exact: quantiles of the draws, drawn again from the same seed
  accel.manual_seed(3)
  local u = accel.empty(1000, { dtype = "f64" }):uniform_(-0.9544997361036416, 0.9544997361036416)
  accel.manual_seed(3)
  local x = init.trunc_normal_(accel.empty(1000, { dtype = "f64" }))
  assert((accel.erf(x / math.sqrt(2)) - u):abs():max():item() < 1e-14)
  fails("holds almost nothing", init.trunc_normal_, t, 0, 1, 9, 10)
end

do -- sparse
  local t = init.sparse_(accel.empty(50, 40), 0.33, 2)
  local zeros = t:eq(0):sum(1):tolist()
  for _, n in ipairs(zeros) do assert(n == 17) end
  local _, std = moments(t)
  near(std, 2 * math.sqrt(33 / 50), 0.1)
  assert(init.sparse_(accel.empty(3, 3), 0):eq(0):any():item() == false)
end

do -- outside of any graph, parameters stay leaves; devices without bytes take part
  local p = nn.Parameter(accel.zeros(4, 3))
  for _, name in ipairs { "uniform_", "normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_",
    "eye_", "ones_" } do
    assert(init[name](p) == p and p.requires_grad and p.is_leaf, name)
    assert(init[name](accel.empty(4, 3, { device = "meta" })).device == "meta", name)
  end
  local g = accel.Generator and accel.Generator(5)
  if g then
    local a = init.normal_(accel.empty(3), 0, 1, g)
    assert((a - init.normal_(accel.empty(3), 0, 1, accel.Generator(5))):abs():sum():item() == 0)
  end
end

do -- what layers start with
  is_uniform(nn.Linear(100, 50).weight, 1 / math.sqrt(100))
  is_uniform(nn.Linear(100, 500).bias, 1 / math.sqrt(100))
  is_uniform(nn.Bilinear(16, 10, 30).weight, 1 / 4)
  is_uniform(nn.Conv2d(32, 64, 3, { groups = 4 }).weight, 1 / math.sqrt(8 * 9))
  is_uniform(nn.Conv2d(32, 640, 3, { groups = 4 }).bias, 1 / math.sqrt(8 * 9))
  is_uniform(nn.Conv1d(16, 64, 5).weight, 1 / math.sqrt(16 * 5))
  is_uniform(nn.ConvTranspose2d(32, 64, 3, { groups = 2 }).weight, 1 / math.sqrt(32 * 9))
  is_normal(nn.Embedding(100, 50).weight, 0, 1)
  is_normal(nn.EmbeddingBag(100, 50).weight, 0, 1)
  local m = nn.MultiheadAttention(48, 4, { add_bias_kv = true })
  is_uniform(m.in_proj_weight, math.sqrt(6 / (48 + 144)))
  is_uniform(m.out_proj.weight, 1 / math.sqrt(48))
  assert(m.in_proj_bias:abs():sum():item() == 0 and m.out_proj.bias:abs():sum():item() == 0)
  is_uniform(nn.MultiheadAttention(48, 4, { kdim = 30 }).k_proj_weight, math.sqrt(6 / 78))
  is_uniform(nn.LSTM(20, 25).weight_hh_l0, 1 / 5)
  is_uniform(nn.GRUCell(20, 25).weight_ih, 1 / 5)
  is_uniform(nn.Transformer(32, 2, 1, 1, 64).encoder.layers[1].linear1.weight, math.sqrt(6 / 96))
  assert(nn.PReLU(3).weight:sum():item() == 0.75 and nn.PReLU(1, { init = 0.5 }).weight:item() == 0.5)
  local bn = nn.BatchNorm2d(3)
  assert(bn.weight:sum():item() == 3 and bn.bias:sum():item() == 0 and bn.running_var:sum():item() == 3)
end
