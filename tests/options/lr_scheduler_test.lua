-- Options of accel.optim.lr_scheduler: each one changes the rates of ten steps, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/lr_scheduler_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local L = accel.optim.lr_scheduler
local s = sweep.folder("optim", function(entry) return entry.name:find "lr_scheduler" ~= nil end)

local function optimizer()
  local p = accel.ones(1, { requires_grad = true })
  p.grad = accel.ones(1)
  local opt = accel.optim.SGD({ p }, { lr = 0.1, momentum = 0.9 })
  for _, group in ipairs(opt.param_groups) do group.initial_lr = group.lr end
  return opt
end

--- Rates and momenta of ten steps, with losses that fall and then stay.
local function rates(call, given, opt)
  opt = type(opt) == "table" and opt.param_groups and opt or optimizer()
  local schedule = call(opt)
  local list = {}
  local watches = schedule.isinstance and (schedule:isinstance(L.ReduceLROnPlateau) or schedule:isinstance(L.GreedyLR))
  for i = 1, 16 do
    list[i] = { opt.param_groups[1].lr, opt.param_groups[1].momentum, schedule.last_epoch }
    opt:step()
    local loss = given.mode == "max" and i or i < 5 and 10 / i or i % 3 == 0 and 2.5 or 2
    if watches then schedule:step(loss) else schedule:step() end
  end
  return list
end
local function recipe(name, base, more)
  local all = { base = function()
    local copy = {}
    for key, value in pairs(base) do copy[key] = value end
    return copy
  end, run = rates }
  for key, value in pairs(more or {}) do all[key] = value end
  s:recipe("accel.optim.lr_scheduler." .. name, all)
end

for _, entry in ipairs(s.entries) do
  if entry.name:find "%.get_%w+_.*schedule" then s:leave(entry.name, "get_scheduler by another name: tests/stdlib/optim/schedules_test.lua") end
end
recipe("ConstantLR", {}, { values = { total_iters = { 3 } } })
recipe("CosineAnnealingLR", { T_max = 8 }, { values = { eta_min = { 0.01 } } })
recipe("CosineAnnealingWarmRestarts", { T_0 = 3 }, { values = { T_mult = { 2 }, eta_min = { 0.01 } } })
recipe("CyclicLR", { base_lr = 0.01, max_lr = 0.1, step_size_up = 3 }, {
  values = {
    step_size_down = { 5 }, mode = { "triangular2", "exp_range" }, gamma = { 0.8 }, scale_fn = { function(x) return 1 / (1 + x) end },
    scale_mode = { "iterations" }, cycle_momentum = { false }, base_momentum = { 0.7 }, max_momentum = { 0.95 }, step_size_up = { 4 },
  },
  with = { mode = { gamma = 0.8 }, gamma = { mode = "exp_range" }, scale_mode = { scale_fn = function(x) return 1 / (1 + x) end } },
})
recipe("ExponentialLR", { gamma = 0.9 })
recipe("GreedyLR", { patience = 1, factor = 0.5 }, {
  values = {
    mode = { "max" }, threshold_mode = { "rel" }, threshold = { 0.7 }, cooldown = { 2 }, warmup = { 2 }, min_lr = { 0.2 }, max_lr = { 0.15 },
    eps = { 0.5 }, smooth = { true }, window_size = { 2 }, reset_start = { 1 }, patience = { 2 }, factor = { 0.8 },
  },
  with = { window_size = { smooth = true }, threshold_mode = { threshold = 0.7 }, reset_start = { min_lr = 0.09, patience = 0 },
    cooldown = { patience = 0 } },
})
recipe("LinearLR", {}, { values = { start_factor = { 0.5 }, end_factor = { 0.7 }, total_iters = { 3 } } })
recipe("MultiStepLR", { milestones = { 3, 6 } })
recipe("OneCycleLR", { max_lr = 0.5, total_steps = 20 }, {
  values = {
    pct_start = { 0.5 }, anneal_strategy = { "linear" }, cycle_momentum = { false }, base_momentum = { 0.7 }, max_momentum = { 0.99 },
    div_factor = { 5 }, final_div_factor = { 1 }, epochs = { 6 }, steps_per_epoch = { 6 }, three_phase = { true },
  },
  with = {
    epochs = { total_steps = sweep.none, epochs = 4, steps_per_epoch = 5 }, steps_per_epoch = { total_steps = sweep.none, epochs = 4,
      steps_per_epoch = 5 },
  },
})
recipe("PolynomialLR", {}, { values = { total_iters = { 9 }, power = { 2 } } })
recipe("ReduceLROnPlateau", { patience = 1, factor = 0.5 }, {
  values = { mode = { "max" }, threshold_mode = { "abs" }, threshold = { 0.7 }, cooldown = { 3 }, min_lr = { 0.04 }, eps = { 0.5 },
    patience = { 2 } },
  with = { threshold_mode = { threshold = 0.7 } },
})
recipe("StepLR", { step_size = 3 })
local functions = { values = { lr_lambda = { function(i) return 1 / (i + 2) end } } }
recipe("LambdaLR", { lr_lambda = function(i) return 1 / (i + 1) end }, functions)
recipe("MultiplicativeLR", { lr_lambda = function() return 0.9 end }, functions)

recipe("SequentialLR", {}, {
  run = function(call, given)
    local opt = optimizer()
    local function factor(f) return L.LambdaLR(opt, function() return f end) end
    given.schedulers, given.milestones = given.schedulers or { factor(0.5), factor(3) }, given.milestones or { 5 }
    local schedule, list = call(opt), {}
    for i = 1, 8 do
      list[i] = opt.param_groups[1].lr
      opt:step()
      schedule:step()
    end
    return list
  end,
  values = { milestones = { { 3 } }, last_epoch = { 3 } },
  elsewhere = { schedulers = "tests/options/lr_scheduler_test.lua" }, -- required
})
s:leave("accel.optim.lr_scheduler.LRScheduler", "abstract: its option is that of each subclass")
recipe("LRScheduler:plot", {}, { run = function(call)
  return call(L.StepLR(optimizer(), 2))
end, base = function() return { steps = 9 } end, values = { width = { 40 }, height = { 5 }, utf8 = { false, true, any = true },
  xlabel = { "label" } } })
s:leave("accel.optim.lr_scheduler.ChainedScheduler", "its optimizer is that of its schedules, or an error")
for name, own in pairs {
  constant = {}, constant_with_warmup = {}, linear = {}, cosine = { num_cycles = 1 }, cosine_with_restarts = { num_cycles = 2 },
  polynomial = { lr_end = 0.01, power = 2 }, inverse_sqrt = { timescale = 3 },
  cosine_with_min_lr = { num_cycles = 1, min_lr = 0.05, min_lr_rate = 0.4 },
  cosine_warmup_with_min_lr = { num_cycles = 1, min_lr = 0.05, min_lr_rate = 0.4, warmup_lr_rate = 0.2 },
  warmup_stable_decay = { num_decay_steps = 4, num_stable_steps = 3, warmup_type = "cosine", decay_type = "linear", min_lr_ratio = 0.1,
    num_cycles = 1 },
  reduce_lr_on_plateau = {}, greedy = {},
} do
  local values, least, metric = {}, name:find "min_lr", name:find "plateau" or name == "greedy"
  for key, value in pairs(own) do values[key] = { value } end
  local total = sweep.none
  if name:find "linear" or name:find "cosine" or name == "polynomial" then total = 14 end
  s:variant("accel.optim.lr_scheduler.get_scheduler", name, {
    base = function()
      return { name = name, num_warmup_steps = 2, num_training_steps = total ~= sweep.none and total or nil, min_lr_rate = least and 0.3 or nil,
        num_decay_steps = name == "warmup_stable_decay" and 3 or nil, num_stable_steps = name == "warmup_stable_decay" and 4 or nil }
    end,
    run = function(call, given)
      given.optimizer = optimizer()
      if metric or name == "constant" then given.num_warmup_steps = given.num_warmup_steps ~= 2 and given.num_warmup_steps or nil end
      return rates(function() return call() end, given, given.optimizer)
    end,
    values = setmetatable(values, { __index = { num_warmup_steps = { 4 }, num_training_steps = { 11 }, last_epoch = { 3 } } }),
    with = { min_lr = { min_lr_rate = sweep.none, min_lr = 0.02 } },
    raises = metric and { last_epoch = "unknown option" },
    elsewhere = metric and setmetatable({ num_warmup_steps = false, num_training_steps = false, last_epoch = false }, {
      __index = function() return "tests/options/lr_scheduler_test.lua" end, -- the options of ReduceLROnPlateau and GreedyLR, above
    }) or nil,
  })
end

s:finish()
