-- swa_utils: averages of a model, SWALR and update_bn give PyTorch's numbers (reference/optim_more.json), as do chained schedules and those whose
-- formula depends on the rate so far. What is refused.
local accel = require "accel"
local nn, S, W = accel.nn, accel.optim.lr_scheduler, accel.optim.swa_utils
local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/optim_more.json"))
local want = accel.json.decode(file:read "a")
file:close()

local function fails(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end
local function same(what, got, numbers)
  assert(#got == #numbers, what)
  for i, w in ipairs(numbers) do
    assert(math.abs(got[i] - w) <= 1e-12 * math.max(1, math.abs(w)), ("%s: number %d is %.17g, wanted %.17g"):format(what, i, got[i], w))
  end
end
local function flat(t) return t:detach():to("f64"):reshape(-1):tolist() end
local function wave(n, k) return (accel.arange(n):to "f64" * 1.3 + k):cos() end
local function x(s) return (accel.arange(8):to "f64" * 0.9 + s):sin():reshape(4, 2) end
local function net()
  local m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)):to "f64"
  local _ <close> = accel.no_grad()
  for k, p in ipairs(m:parameters()) do p:copy_(wave(p:numel(), k - 1):view_as(p)) end
  return m
end

-- ---- averages ----
local kinds = { swa = {}, swa_fn = { avg_fn = W.get_swa_avg_fn() }, ema = { multi_avg_fn = W.get_ema_multi_avg_fn(0.9) },
  ema_fn = { avg_fn = W.get_ema_avg_fn(0.9) }, buffers = { multi_avg_fn = W.get_ema_multi_avg_fn(0.9), use_buffers = true } }
for name, options in pairs(kinds) do
  local m = net()
  local a, o = W.AveragedModel(m, options), accel.optim.SGD(m:parameters(), { lr = 0.1 })
  local s, rates = W.SWALR(o, 0.02, { anneal_epochs = 4 }), {}
  for step = 0, 5 do
    o:zero_grad();
    (m(x(step)) ^ 2):sum():backward()
    o:step()
    a:update_parameters(m)
    rates[#rates + 1] = o.param_groups[1].lr
    s:step()
    if step == 3 then -- saved and loaded
      local state = a:state_dict()
      a = W.AveragedModel(m, options)
      a:load_state_dict(state)
    end
  end
  same(name .. " rates", rates, want.averaged[name].rates)
  local n = 0
  for key, t in pairs(a:state_dict()) do
    same(name .. " " .. key, flat(t), want.averaged[name].state[key])
    n = n + 1
  end
  assert(n == 10, name)
  a:eval()
  W.update_bn({ x(10), { x(11), "label" }, x(12) }, a)
  assert(not a.training and a.module[2].momentum == 0.1)
  same(name .. " results", flat(a(x(20))), want.averaged[name].y)
  same(name .. " mean", flat(a.module[2].running_mean), want.averaged[name].mean)
  same(name .. " variance", flat(a.module[2].running_var), want.averaged[name].var)
end

-- update_bn over a loader, and over a function.
local data = accel.randn(12, 3) * 2 + 1
local bn = nn.BatchNorm1d(3)
W.update_bn(accel.data.DataLoader { dataset = accel.data.TensorDataset(data), batch_size = 6 }, bn)
assert(accel.allclose(bn.running_mean, data:mean(1), { atol = 1e-5 }))
local left = 2
W.update_bn(function()
  left = left - 1
  return left >= 0 and data:narrow(1, left * 6 + 1, 6) or nil
end, bn, "cpu")
assert(accel.allclose(bn.running_mean, data:mean(1), { atol = 1e-5 }) and bn.num_batches_tracked:item() == 2)

local m = net()
assert(W.AveragedModel(m, { device = "meta" }).module[1].weight.device == "meta")
fails("give avg_fn or multi_avg_fn, not both", W.AveragedModel, m, { avg_fn = print, multi_avg_fn = print })
fails("expected a module", W.AveragedModel, { 1 })
fails("parameter 1 has shape (4, 2), the average's (3, 2)", W.AveragedModel(m).update_parameters, W.AveragedModel(m),
  nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
fails("the model has 2 parameters, the average 6", W.AveragedModel(m).update_parameters, W.AveragedModel(m), nn.Linear(2, 3))
fails("decay", W.get_ema_multi_avg_fn, 1.5)
fails("decay", W.get_ema_avg_fn, -0.1)
fails("a batch must be a tensor", W.update_bn, { "x" }, bn)

-- ---- schedules ----
local half = function() return 0.98 end
local function power(s) return 0.95 ^ s end
local makers = {
  const_exp = function(o) return S.ChainedScheduler { S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9) } end,
  lin_cos = function(o) return S.ChainedScheduler { S.LinearLR(o, 0.25, 1.0, 4), S.CosineAnnealingLR(o, 5, { eta_min = 0.05 }) } end,
  lambda_step = function(o) return S.ChainedScheduler { S.LambdaLR(o, power), S.StepLR(o, 3, 0.5) } end,
  step_lambda = function(o) return S.ChainedScheduler { S.StepLR(o, 3, 0.5), S.LambdaLR(o, power) } end,
  poly_mult_multi = function(o)
    return S.ChainedScheduler { S.PolynomialLR(o, 12, 2.0), S.MultiplicativeLR(o, half), S.MultiStepLR(o, { 2, 2, 6 }, 0.5) }
  end,
  swalr_linear = function(o) return W.SWALR(o, 0.05, { anneal_epochs = 4, anneal_strategy = "linear" }) end,
  swalr_zero = function(o) return W.SWALR(o, 0.05, { anneal_epochs = 0 }) end,
  chained_swalr = function(o) return S.ChainedScheduler { S.ExponentialLR(o, 0.9), W.SWALR(o, 0.05, { anneal_epochs = 5 }) } end,
  warm_restarts = function(o) return S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01) end,
  cos_long = function(o) return S.CosineAnnealingLR(o, 4, { eta_min = 0.05 }) end,
  cyc_exp = function(o) return S.CyclicLR(o, 0.1, 0.5, 3, 5, { mode = "exp_range", gamma = 0.95, cycle_momentum = false }) end,
}
local function optimizer() return accel.optim.SGD({ accel.zeros(1, { requires_grad = true }) }, { lr = 0.5 }) end
for name, make in pairs(makers) do
  local o = optimizer()
  local s, got = make(o), {}
  for i = 1, #want.rates[name] do
    if i == 7 then -- resumed, with the optimizer's state
      local state, rate = s:state_dict(), o.param_groups[1].lr
      o = optimizer()
      s = make(o)
      o.param_groups[1].lr = rate
      s:load_state_dict(state)
    end
    got[i] = o.param_groups[1].lr
    o:step()
    s:step()
  end
  same(name, got, want.rates[name])
end
local o = optimizer()
local s, got = S.ReduceLROnPlateau(o, "max", 0.5, 1, { threshold = 0.05, threshold_mode = "abs", cooldown = 1, min_lr = 0.04, eps = 1e-3 }), {}
for i, metric in ipairs { 1, 1.01, 1.02, 1.03, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2 } do
  s:step(metric)
  got[i] = o.param_groups[1].lr
end
same("plateau", got, want.rates.plateau)
fails("anneal_strategy", W.SWALR, o, 0.1, { anneal_strategy = "log" })

-- Refused as in PyTorch.
fails("factor must lie in (0, 1], got 1.5", S.ConstantLR, o, 1.5)
fails("power", S.PolynomialLR, o, 5, -1.0)
fails("div_factor must be above 0, got 0", S.OneCycleLR, o, { max_lr = 1.0, total_steps = 9, div_factor = 0 })
fails("unknown option 'fused': every step is one pass over all parameters; leave it out", accel.optim.AdamW, { accel.ones(1) }, { fused = true })
