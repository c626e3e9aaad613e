--- Learning-rate schedules against the rates that PyTorch and Transformers used
--- (reference/ops/manifest.json).
local accel = require "accel"
local optim = accel.optim
local S = optim.lr_scheduler

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local file = assert(io.open(os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/ops/manifest.json", "rb"))
local manifest = accel.json.decode(file:read "a")
file:close()

local function optimizer()
  return optim.SGD({ accel.zeros(1, { requires_grad = true }) }, { lr = manifest.schedules_base_lr })
end

local function named(name)
  return function(o) return S.get_scheduler(name, o, { num_warmup_steps = 6, num_training_steps = 36 }) end
end

local function sequence(o)
  local warm = S.LinearLR(o, { start_factor = 0.1, end_factor = 1.0, total_iters = 10 })
  return S.SequentialLR(o, { warm, S.CosineAnnealingLR(o, { T_max = 30 }) }, { 10 })
end

local makers = {
  ["StepLR(step_size=7, gamma=0.3)"] = function(o) return S.StepLR(o, 7, 0.3) end,
  ["MultiStepLR(milestones={5,20}, gamma=0.1)"] = function(o) return S.MultiStepLR(o, { 5, 20 }, 0.1) end,
  ["ExponentialLR(gamma=0.9)"] = function(o) return S.ExponentialLR(o, 0.9) end,
  ["ConstantLR(factor=0.25, total_iters=6)"] = function(o) return S.ConstantLR(o, 0.25, { total_iters = 6 }) end,
  ["LinearLR(start_factor=0.1, end_factor=1.0, total_iters=10)"] = function(o)
    return S.LinearLR(o, { start_factor = 0.1, end_factor = 1.0, total_iters = 10 })
  end,
  ["PolynomialLR(total_iters=25, power=2.0)"] = function(o) return S.PolynomialLR(o, 25, 2.0) end,
  ["CosineAnnealingLR(T_max=30, eta_min=0.01)"] = function(o)
    return S.CosineAnnealingLR(o, { T_max = 30, eta_min = 0.01 })
  end,
  ["CosineAnnealingWarmRestarts(T_0=8, T_mult=2, eta_min=0.01)"] = function(o)
    return S.CosineAnnealingWarmRestarts(o, 8, 2, 0.01)
  end,
  ["OneCycleLR(max_lr=1.0, total_steps=41)"] = function(o) return S.OneCycleLR(o, 1.0, 41) end,
  ["OneCycleLR(max_lr=1.0, total_steps=41, three_phase=true, anneal_strategy=linear)"] = function(o)
    return S.OneCycleLR(o, { max_lr = 1.0, total_steps = 41, three_phase = true, anneal_strategy = "linear" })
  end,
  ["CyclicLR(base_lr=0.1, max_lr=0.5, step_size_up=6, mode=triangular2)"] = function(o)
    return S.CyclicLR(o, 0.1, 0.5, 6, { mode = "triangular2", cycle_momentum = false })
  end,
  ["LambdaLR(0.95^step)"] = function(o) return S.LambdaLR(o, function(step) return 0.95 ^ step end) end,
  ["SequentialLR(LinearLR(0.1,1.0,10) then CosineAnnealingLR(T_max=30), milestones={10})"] = sequence,
}
for _, name in ipairs {
  "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup",
    "inverse_sqrt",
} do
  makers[("get_scheduler(%s, num_warmup_steps=6, num_training_steps=36)"):format(name)] = named(name)
end
for name in pairs(manifest.schedules) do assert(makers[name], "no maker for " .. name) end

for name, make in pairs(makers) do
  local want = assert(manifest.schedules[name], name)
  local o = optimizer()
  local schedule = make(o)
  for step = 0, #want - 1 do
    if step == 17 then -- a schedule that is resumed goes on the same way
      local state = schedule:state_dict()
      o = optimizer()
      schedule = make(o)
      schedule:load_state_dict(state)
    end
    local got = o.param_groups[1].lr
    assert(math.abs(got - want[step + 1]) <= 1e-12, ("%s, step %d: %.17g, wanted %.17g"):format(name, step,
      got,
      want[step + 1]))
    assert(schedule:get_last_lr()[1] == got)
    o:step()
    schedule:step()
  end
end

--- Rates (and momentums, of SGD and as the first beta) at some steps, as PyTorch and Transformers gave them from
--- a base rate of 0.5; the schedule is resumed on the way.
local at = { 0, 1, 5, 8, 13, 21, 29, 39, 59 }
local numbers = {
  { function(o) return S.OneCycleLR(o, 1.0, { total_steps = 41 }) end,
    { 0.04, 0.0584312568716181, 0.433730021683942, 0.811764158458547, 0.991367860368475, 0.743654764742232,
      0.32073358473436, 0.00299654390206559 },
    momentum = { 0.95, 0.948080077409206, 0.908986456074589, 0.869607900160568, 0.850863217416022, 0.875634626064281,
      0.917926913234217, 0.949700744412771 } },
  { function(o)
    return S.OneCycleLR(o, {
      max_lr = { 1.0 }, epochs = 1, steps_per_epoch = 41, three_phase = true, anneal_strategy = "linear",
      base_momentum = 0.8, max_momentum = 0.97, div_factor = 10, final_div_factor = 100, pct_start = 0.25,
    })
  end,
    { 0.1, 0.197297297297297, 0.586486486486486, 0.878378378378378, 0.635135135135135, 0.0884883720930233,
      0.0516511627906977, 0.0056046511627907 },
    momentum = { 0.97, 0.951621621621622, 0.878108108108108, 0.822972972972973, 0.868918918918919, 0.97, 0.97, 0.97 } },
  { function(o) return S.CyclicLR(o, 0.1, 0.5, 6, 4) end,
    { 0.1, 0.166666666666667, 0.433333333333333, 0.3, 0.3, 0.166666666666667, 0.2, 0.2 },
    momentum = { 0.9, 0.883333333333333, 0.816666666666667, 0.85, 0.85, 0.883333333333333, 0.875, 0.875 } },
  { function(o)
    return S.CyclicLR(o, 0.1, 0.5, 6, { mode = "triangular2", base_momentum = { 0.7 }, max_momentum = 0.95 })
  end,
    { 0.1, 0.166666666666667, 0.433333333333333, 0.366666666666667, 0.133333333333333, 0.2, 0.183333333333333, 0.125 },
    momentum = { 0.95, 0.908333333333333, 0.741666666666667, 0.783333333333333, 0.929166666666667, 0.8875,
      0.897916666666667, 0.934375 } },
  { function(o) return S.CyclicLR(o, 0.1, 0.5, 5, 7, "exp_range", 0.97) end,
    { 0.1, 0.1776, 0.44349361028, 0.279141339300045, 0.153842167213246, 0.190425230738105, 0.265363739605426,
      0.173165926779167 },
    momentum = { 0.9, 0.8806, 0.81412659743, 0.855214665174989, 0.886539458196689, 0.877393692315474,
      0.858659065098644, 0.881708518305208 } },
  { function(o)
    return S.CyclicLR(o, 0.1, 0.5, 5, { scale_fn = function(x) return 1 / x end, cycle_momentum = false })
  end,
    { 0.1, 0.18, 0.5, 0.26, 0.22, 0.126666666666667, 0.126666666666667, 0.12 } },
  { function(o) return S.MultiplicativeLR(o, function(k) return 0.9 + 0.01 * (k % 3) end) end,
    { 0.5, 0.455, 0.315406728, 0.23765266141344, 0.146655485876553, 0.0689401315967025, 0.0327676115042983,
      0.0126154423330962 } },
  { function(o) return S.ChainedScheduler { S.ConstantLR(o, 0.1, 8), S.ExponentialLR(o, 0.95) } end,
    { 0.05, 0.0475, 0.038689046875, 0.331710215644531, 0.256671041639752, 0.170280813144057, 0.112967770496283,
      0.0676379771395279 } },
  { function(o)
    return S.ChainedScheduler({ S.LinearLR(o, 0.2, 1.0, 9), S.StepLR(o, 5, 0.5), S.CosineAnnealingLR(o, 60) }, o)
  end,
    { 0.1, 0.144345466398941, 0.15836624711773, 0.217931566009296, 0.111071622591061, 0.0227186015584304,
      0.008221374658148, 0.0010664248051962 } },
  { function(o)
    return S.SequentialLR(o, { S.ConstantLR(o, 0.1, 8), S.ExponentialLR(o, 0.95), S.StepLR(o, 4, 0.5) }, { 5, 20 })
  end,
    { 0.05, 0.05, 0.5, 0.4286875, 0.331710215644531, 0.5, 0.125, 0.03125 } },
  { function(o) return S.CosineAnnealingWarmRestarts(o, 7, { eta_min = 0.01 }) end,
    { 0.5, 0.475737372636093, 0.10224499854461, 0.475737372636093, 0.0342626273639073, 0.5, 0.475737372636093,
      0.200482371180703, 0.309517628819297 } },
  { function(o) return S.CosineAnnealingWarmRestarts(o, 3, 3, 0.01) end,
    { 0.5, 0.3775, 0.44268088856415, 0.212456196471602, 0.498343397646776, 0.3775, 0.157960457320407, 0.5,
      0.429912784966685 } },
  { function(o) return S.CosineAnnealingLR(o, 7, 0.02) end,
    { 0.5, 0.476232528296581, 0.110362447553904, 0.0437674717034194, 0.476232528296581, 0.02, 0.476232528296585,
      0.313405024149516, 0.313405024149517 } },
  { function(o) return S.get_scheduler("cosine_with_min_lr", o, { num_warmup_steps = 6, num_training_steps = 36,
      min_lr = 0.05 }) end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.495083210165106, 0.442207585732414, 0.275, 0.107792414267586,
      0.0610122838335905 } },
  { function(o)
    return S.get_scheduler("cosine_with_min_lr", o, {
      num_warmup_steps = 6, num_training_steps = 36, min_lr_rate = 0.2, num_cycles = 1.5,
    })
  end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.46180339887499, 0.182442949541505, 0.3, 0.417557050458495,
      0.182442949541505 } },
  { function(o) return S.get_scheduler("cosine_warmup_with_min_lr", o, { num_warmup_steps = 6,
      num_training_steps = 36, min_lr = 0.05 }) end,
    { 0.0833333333333333, 0.166666666666667, 0.5, 0.48898771616641, 0.425554386430743, 0.251481095764778,
      0.0929711762656369, 0.0694522720304148 } },
  { function(o)
    return S.get_scheduler("cosine_warmup_with_min_lr", o, {
      num_warmup_steps = 6, num_training_steps = 36, min_lr_rate = 0.1, warmup_lr_rate = 0.3,
    })
  end,
    { 0.15, 0.22, 0.5, 0.48898771616641, 0.425554386430743, 0.251481095764778, 0.0929711762656369,
      0.0694522720304148 } },
  { function(o)
    return S.get_scheduler("warmup_stable_decay", o, {
      num_warmup_steps = 6, num_training_steps = 36, num_decay_steps = 12,
    })
  end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.5, 0.5, 0.5, 0.31470476127563, 0 } },
  { function(o)
    return S.get_scheduler("warmup_stable_decay", o, {
      num_warmup_steps = 6, num_decay_steps = 12, num_stable_steps = 9, warmup_type = "cosine", decay_type = "linear",
      min_lr_ratio = 0.1,
    })
  end,
    { 0.05, 0.0801442841485013, 0.469855715851499, 0.5, 0.5, 0.275, 0.05, 0.05 } },
  { function(o)
    return S.get_scheduler("warmup_stable_decay", o, {
      num_warmup_steps = 6, num_decay_steps = 12, num_stable_steps = 9, warmup_type = "1-sqrt", decay_type = "1-sqrt",
      min_lr_ratio = 0.1,
    })
  end,
    { 0.05, 0.0892080818711254, 0.316288269291262, 0.5, 0.5, 0.181801948466054, 0.05, 0.05 } },
  { function(o) return S.get_scheduler("cosine_with_restarts", o, { num_warmup_steps = 6, num_training_steps = 36,
      num_cycles = 3 }) end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.452254248593737, 0.103053686926882, 0.25, 0.396946313073118, 0 } },
  { function(o)
    return S.get_scheduler("cosine", o, {
      num_warmup_steps = 6, num_training_steps = 36, num_cycles = 1.25,
    })
  end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.46650635094611, 0.18529523872437, 0.0732233047033631,
      0.491481456572267, 0.073223304703363 } },
  { function(o)
    return S.get_scheduler("polynomial", o, {
      num_warmup_steps = 6, num_training_steps = 36, power = 2.0, lr_end = 0.01,
    })
  end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.436844444444444, 0.298011111111111, 0.1325, 0.0366777777777778,
      0.01 } },
  { function(o) return S.get_scheduler("inverse_sqrt", o, { num_warmup_steps = 6, timescale = 50 }) end,
    { 0, 0.0833333333333333, 0.416666666666667, 0.49029033784546, 0.468292905790847, 0.438529009653515,
      0.413802944301184, 0.388075262853166 } },
}
for n, case in ipairs(numbers) do
  for _, class in ipairs { "SGD", "AdamW" } do
    local function made()
      local o = optim[class]({ accel.zeros(1) }, { lr = 0.5 })
      return o, case[1](o)
    end
    local o, schedule = made()
    local k = 1
    for step = 0, at[#case[2]] do
      if step == 17 then
        local state = schedule:state_dict()
        o, schedule = made()
        schedule:load_state_dict(state)
      end
      if step == at[k] then
        local group = o.param_groups[1]
        local function near(got, want)
          assert(math.abs(got - want) <= 1e-14, ("case %d, step %d: %.17g, wanted %.17g"):format(n, step, got, want))
        end
        near(group.lr, case[2][k])
        if case.momentum then near(group.betas and group.betas[1] or group.momentum, case.momentum[k]) end
        k = k + 1
      end
      schedule:step()
    end
  end
end

--- Schedules that follow a metric.
local function follow(make, metrics, want, state_at)
  local o = optimizer()
  local schedule = make(o)
  for i, metric in ipairs(metrics) do
    if i == state_at then
      local state = schedule:state_dict()
      o = optimizer()
      schedule = make(o)
      schedule:load_state_dict(state)
    end
    assert(math.abs(o.param_groups[1].lr - want[i]) <= 1e-15, ("metric %d: %.17g"):format(i, o.param_groups[1].lr))
    assert(schedule:get_last_lr()[1] == o.param_groups[1].lr)
    schedule:step(i % 2 == 0 and accel.full({}, metric, { dtype = "f64" }) or metric)
  end
end

do -- patience 2: three bad ones in a row lower the rate; cooldown 2: the next two are not counted; then the floor
  local metrics = { 1.0, 0.9, 0.95, 0.95, 0.89999, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95 }
  local want = { 0.5, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125, 0.125 }
  for state_at = 2, 15 do
    follow(function(o)
      return S.ReduceLROnPlateau(o, { factor = 0.5, patience = 2, cooldown = 2, min_lr = { 0.02 } })
    end, metrics, want, state_at)
    local mirrored = {}
    for i, m in ipairs(metrics) do mirrored[i] = -m end
    follow(function(o)
      return S.ReduceLROnPlateau(o, "max", 0.5, 2, { cooldown = 2, threshold_mode = "abs" })
    end, mirrored, want, state_at)
  end
  local o = optimizer()
  local schedule = S.ReduceLROnPlateau(o, { factor = 0.1, patience = 0, min_lr = 0.02 })
  for _ = 1, 9 do schedule:step(1) end
  assert(o.param_groups[1].lr == 0.02)
  schedule:step(0 / 0) -- never better
  fails("step takes the metric, a number, got nil", schedule.step, schedule)
  fails("follows a metric", S.SequentialLR, o, { schedule }, {})
  fails("follows a metric", S.ChainedScheduler, { schedule })
end

do -- GreedyLR, as Transformers' of that name: 0.8 per change, 1 evaluation of cooldown, 2 of warm-up
  local metrics = { 1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4 }
  local want = {
    0.5, 0.5, 0.5, 0.625, 0.625, 0.625, 0.625, 0.625, 0.625, 0.625, 0.5, 0.5, 0.5, 0.5, 0.4,
  }
  for state_at = 2, 15 do
    follow(function(o)
      return S.get_scheduler("greedy", o, { factor = 0.8, patience = 2, cooldown = 1, warmup = 2, min_lr = 0.05 })
    end, metrics, want, state_at)
  end
end

--- last_epoch = k is the last epoch that is done: a schedule made with it has the rates of one that took k + 1 steps, in every class.
local function resumed(name, make)
  for _, k in ipairs { -1, 0, 1, 4, 9 } do
    local o, p = optimizer(), optimizer()
    local stepped, made = make(o), make(p, k)
    for _ = 1, k + 1 do stepped:step() end
    for i = 1, 4 do
      local got, want = p.param_groups[1], o.param_groups[1]
      assert(math.abs(got.lr - want.lr) <= 1e-15 and got.momentum == want.momentum and made.last_epoch == stepped.last_epoch,
        ("%s, last_epoch = %d, step %d: %.17g, wanted %.17g"):format(name, k, i, got.lr, want.lr))
      stepped:step()
      made:step()
    end
  end
end
local function factor(k) return 1 / (1 + k) end
for name, opts in pairs {
  StepLR = { step_size = 3 }, MultiStepLR = { milestones = { 2, 6 } }, ExponentialLR = { gamma = 0.9 }, ConstantLR = {}, LinearLR = {},
  PolynomialLR = { power = 2.0 }, CosineAnnealingLR = { T_max = 7 }, CosineAnnealingWarmRestarts = { T_0 = 3, T_mult = 2 },
  OneCycleLR = { max_lr = 1.0, total_steps = 20, cycle_momentum = false }, LambdaLR = { lr_lambda = factor },
  CyclicLR = { base_lr = 0.1, max_lr = 0.5, step_size_up = 3, cycle_momentum = false }, MultiplicativeLR = { lr_lambda = factor },
} do
  resumed(name, function(o, k)
    local all = { last_epoch = k }
    for key, value in pairs(opts) do all[key] = value end
    return S[name](o, all)
  end)
end
resumed("LambdaLR by position", function(o, k) return S.LambdaLR(o, factor, k) end)
resumed("MultiplicativeLR, then options", function(o, k) return S.MultiplicativeLR(o, { factor }, { last_epoch = k }) end)
resumed("get_scheduler", function(o, k)
  return S.get_scheduler("cosine", o, { num_warmup_steps = 3, num_training_steps = 36, last_epoch = k })
end)
resumed("SequentialLR", function(o, k)
  return S.SequentialLR(o, { S.ConstantLR(o, 0.1, 4), S.ExponentialLR(o, 0.9) }, { 3 }, { last_epoch = k })
end)
resumed("ChainedScheduler", function(o, k) return S.ChainedScheduler { S.StepLR(o, 2, { last_epoch = k }), S.LambdaLR(o, factor, k) } end)
resumed("WarmupLR", function(o, k) return accel.deepspeed.WarmupLR(o, { warmup_num_steps = 6, last_batch_iteration = k }) end)

do -- PyTorch's own numbers (torch 2.15): the usual way to continue, and the class that raised a raw error
  local o = optim.SGD({ accel.zeros(1, { requires_grad = true }) }, { lr = 1.0 })
  assert(S.LambdaLR(o, factor, { last_epoch = 4 }):get_last_lr()[1] == 0.16666666666666666)
  for _, bad in ipairs { 1.5, -2, "3" } do
    fails("LambdaLR: .*last_epoch.* must be a.*, got", S.LambdaLR, optimizer(), factor, bad)
  end
end

do -- a fraction of an epoch; the state goes on from whole steps
  local o = optimizer()
  local schedule = S.CosineAnnealingWarmRestarts(o, 4)
  schedule:step(2.5)
  assert(math.abs(o.param_groups[1].lr - 0.25 * (1 + math.cos(math.pi * 2.5 / 4))) < 1e-15)
  schedule:step()
  assert(schedule.last_epoch == 3)
end

do -- a group that comes later starts from its own rate, once
  local o = optimizer()
  local schedule = S.ExponentialLR(o, 0.5)
  schedule:step()
  o:add_param_group { params = { accel.zeros(1, { requires_grad = true }) }, lr = 8 }
  schedule:step()
  schedule:step()
  assert(o.param_groups[2].lr == 1 and o.param_groups[2].initial_lr == 8)
end

do -- pictures
  local picture = S.OneCycleLR(optimizer(), 2.0, 40):plot(40, { width = 60, height = 8, utf8 = false })
  assert(picture:find("1.000 |", 1, true) and picture:find("rate / 2", 1, true) and picture:find("39 step", 1, true))
  fails("its rates are not known ahead", function() S.ReduceLROnPlateau(optimizer()):plot(3) end)
end

do -- groups keep their proportions; one function per group
  local p, q = accel.zeros(1, { requires_grad = true }), accel.zeros(1, { requires_grad = true })
  local o = optim.SGD({ { params = { p } }, { params = { q }, lr = 4 } }, { lr = 1 })
  local schedule = S.LambdaLR(o, { function(s) return 1 / (s + 1) end, function() return 0.5 end })
  schedule:step()
  assert(o.param_groups[1].lr == 0.5 and o.param_groups[2].lr == 2)
  fails("2 functions for 1 parameter groups", S.LambdaLR, optimizer(), { math.sqrt, math.sqrt })
end

fails("'linear' needs num_training_steps", S.get_scheduler, "linear", optimizer())
fails("no schedule 'cosin'; did you mean 'cosine'", S.get_scheduler, "cosin", optimizer())
fails("T_max must be", S.CosineAnnealingLR, optimizer(), {})
fails("LambdaLR: expected a function of the step, got nil", S.LambdaLR, optimizer())
fails("LambdaLR: function 1 is 3", S.LambdaLR, optimizer(), 3)
fails("LinearLR: total_iters must be a positive integer, got 0", S.LinearLR, optimizer(), { total_iters = 0 })
fails("SequentialLR: expected a list of schedules and a list of milestones", S.SequentialLR, optimizer(), {})
fails("expected an optimizer", S.LambdaLR, {}, math.sqrt)
fails("step_size must be a positive integer, got nil", S.StepLR, optimizer())
fails("unknown option 'gama'; did you mean 'gamma'", S.StepLR, optimizer(), 3, { gama = 0.1 })
fails("given by position and as an option", S.StepLR, optimizer(), 3, { step_size = 4 })
fails("needs total_steps", S.OneCycleLR, optimizer(), 1.0)
fails("a list of one for each of 1 parameter groups", S.OneCycleLR, optimizer(), { 1, 2 }, 10)
fails("neither momentum nor betas; set cycle_momentum = false", S.CyclicLR,
  optim.Adagrad({ accel.zeros(1) }), 0.1, 0.5)
fails("lies beyond total_steps = 2", function()
  local schedule = S.OneCycleLR(optimizer(), 1.0, 2)
  for _ = 1, 3 do schedule:step() end
end)
fails("mode must be one of triangular, triangular2, exp_range, got 'sine'", S.CyclicLR, optimizer(), 0.1, 0.5,
  { mode = "sine" })
fails("either min_lr or min_lr_rate", S.get_scheduler, "cosine_with_min_lr", optimizer(), { num_training_steps = 9 })
fails("unknown option 'num_cycles'", S.get_scheduler, "linear", optimizer(), { num_training_steps = 9, num_cycles = 1 })
fails("needs num_decay_steps", S.get_scheduler, "warmup_stable_decay", optimizer(), { num_training_steps = 9 })
fails("did you mean 'greedy'", S.get_scheduler, "greed", optimizer())
fails("MultiplicativeLR: expected a function of the step, got nil", S.MultiplicativeLR, optimizer())
fails("not the state of a schedule", function() S.StepLR(optimizer(), 3):load_state_dict {} end)
