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

s:finish()
