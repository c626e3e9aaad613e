-- Options of accel.optim, the optimizers: each one changes the steps or the states, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/optim_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder("optim", function(entry) return not entry.name:find "lr_scheduler" end)

--- Some steps of two matrices under gradients that are given, then the parameters and the state (its param_groups only repeat the options).
local function steps(call, given)
  local dtype = given.stochastic_rounding ~= nil and "bf16" or "f32"
  local params = {}
  for i, shape in ipairs { { 64, 2 }, { 3, 5 } } do
    params[i] = ((accel.arange(shape[1] * shape[2]):to "f32" * 0.37):sin() * 2):reshape(shape):to(dtype):detach():requires_grad_(true)
  end
  local opt = call(params)
  local before_training = pcall(opt.step, opt) -- schedule-free ones refuse it in evaluation
  if opt.train then opt:train() end
  for step = 1, 8 do
    for i, p in ipairs(params) do p.grad = ((p:detach() + step):cos() * i):to(dtype) end
    opt:step()
  end
  return params, opt:state_dict().state, before_training
end

local values = {
  betas = { { 0.7, 0.999 }, { 0.9, 0.8 } }, etas = { { 0.4, 1.2 }, { 0.5, 1.5 } }, step_sizes = { { 0.008, 50 }, { 1e-6, 0.011 } },
  ns_coefficients = { { 3, -4, 2 } }, ns_steps = { 3 }, adjust_lr_fn = { "match_rms_adamw", "spectral_unclamped" },
  eps = { 0.1 }, weight_decay = { 0.3 }, momentum = { 0.5 }, min_8bit_size = { 16 }, t0 = { 1 }, lambd = { 0.2 }, warmup_steps = { 3 },
  t_alpha = { 9 }, t_beta3 = { 9 }, maximize = { true }, stochastic_rounding = { true }, max_coeff = { 0.5 }, min_coeff = { 5 },
}
local with = {
  nesterov = { momentum = 0.9 }, dampening = { momentum = 0.9 }, decoupled_weight_decay = { weight_decay = 0.3 },
  weight_lr_power = { warmup_steps = 4 }, no_prox = { weight_decay = 0.3 },
}
local function recipe(base, own)
  local all = setmetatable(own or {}, { __index = values })
  return { base = base and function() return base end, run = steps, values = all, with = with }
end
s:recipe("^accel%.optim%.%w+$", recipe())
s:recipe({ "^accel%.optim%.%w*AdEMAMix", "accel.optim.Adan" }, recipe(nil, { betas = { { 0.7, 0.9, 0.9 }, { 0.8, 0.8, 0.9 }, { 0.8, 0.9, 0.7 } } }))
s:recipe("^accel%.optim%.SGD%d+bit$", recipe { momentum = 0.9 })
s:recipe("accel.optim.Muon", recipe(nil, { eps = { 100 } }))
s:recipe("accel.optim.RAdam", recipe { betas = { 0.9, 0.9 } })
s:recipe("accel.optim.Adafactor", recipe(nil, { d = { 1.5 }, eps = { { 10, 1e-3 }, { false, 2 } } }))

s:recipe("accel.optim.Optimizer:step", {
  base = function() return { opt = accel.optim.SGD(accel.ones(2, { requires_grad = true }), { lr = 0.1 }) } end,
  run = function(call, given)
    local opt = given.opt
    given.opt = nil
    return call(opt), opt.param_groups[1].params[1]
  end,
  values = { closure = { function() return 7 end } },
})
s:recipe("accel.optim.Optimizer:load_state_dict", {
  run = function(call, given)
    local p = accel.ones(2, { requires_grad = true })
    p.grad = accel.ones(2)
    local opt = accel.optim.Adam(p)
    opt:step()
    local state = opt:state_dict()
    given.dict = state
    call(opt)
    local own = opt:state_dict()
    return own, rawequal(own.state[0].exp_avg, state.state[0].exp_avg) or own.state[0].exp_avg == state.state[0].exp_avg
  end,
})
s:leave("accel.optim.Optimizer", "abstract: its options are those of each subclass")
s:leave({ "accel.optim.Optimizer:expect_betas", "accel.optim.Optimizer:expect_not_negative" }, "for subclasses: checks of options")


-- ---- LBFGS takes a closure ----
s:recipe("accel.optim.LBFGS", {
  run = function(call)
    local p, q = accel.tensor({ -1.2, 1.0 }, { requires_grad = true }), accel.tensor({ 0.5 }, { requires_grad = true })
    local opt = call { p, q }
    local evals = 0
    for _ = 1, 4 do
      opt:step(function()
        evals = evals + 1
        opt:zero_grad()
        local loss = 10 * (p[2] - p[1] ^ 2) ^ 2 + (1 - p[1]) ^ 2 + (q ^ 4):sum() + (q * p[1]):sum()
        loss:backward()
        return loss
      end)
    end
    return p, q, evals
  end,
  base = function() return { lr = 0.1, max_iter = 6 } end,
  values = { lr = { 0.2 }, max_iter = { 3 }, max_eval = { 2 }, tolerance_grad = { 10 }, tolerance_change = { 1 }, history_size = { 1 },
    line_search_fn = { "strong_wolfe" } },
})
s:leave("accel.optim.LBFGS:load_state_dict", "Optimizer's, with the history of the steps: tests/stdlib/optim/lbfgs_test.lua")

-- ---- averages ----
local W = accel.optim.swa_utils
s:recipe("accel.optim.swa_utils.get_ema_avg_fn", { values = { decay = { 0.5 } },
  run = function(call) return call()(accel.ones(2), accel.zeros(2), 1) end })
s:recipe("accel.optim.swa_utils.get_ema_multi_avg_fn", { values = { decay = { 0.5 } }, run = function(call)
  local a = accel.ones(2)
  call()({ a }, { accel.zeros(2) }, 1)
  return a
end })
s:recipe("accel.optim.swa_utils.AveragedModel", {
  run = function(call, given)
    local net = accel.nn.BatchNorm1d(2)
    given.model = net
    local average = call()
    for k = 1, 3 do
      net.running_mean:fill_(k)
      do
        local _ <close> = accel.no_grad()
        net.weight:fill_(k)
      end
      if not given.device then average:update_parameters(net) end
    end
    return average.module.weight, average.module.running_mean, tostring(average.module.weight.device)
  end,
  values = { device = { "meta" }, avg_fn = { W.get_ema_avg_fn(0.25) }, multi_avg_fn = { W.get_ema_multi_avg_fn(0.25) }, use_buffers = { true } },
})
s:recipe("accel.optim.swa_utils.update_bn", { run = function(call, given)
  local net = accel.nn.BatchNorm1d(1)
  given.loader, given.model = { accel.tensor { { 1.0 }, { 3.0 } } }, net
  call()
  return net.running_mean
end, values = { device = { "meta" } }, raises = { device = "meta" } })
s:recipe("accel.optim.swa_utils.SWALR", {
  base = function() return { swa_lr = 0.05 } end,
  run = function(call)
    local opt = accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 0.5 })
    opt.param_groups[1].initial_lr = 0.5
    local schedule, list = call(opt), {}
    for i = 1, 6 do
      list[i] = opt.param_groups[1].lr
      opt:step()
      schedule:step()
    end
    return list
  end,
  values = { swa_lr = { 0.1 }, anneal_epochs = { 3 }, anneal_strategy = { "linear" }, last_epoch = { 2 } },
})
s:finish()
