-- Prepared schedules and optimizers: a schedule advances with applied updates on any number of ranks, or as
-- Accelerate's do with step_unit = "process"; both stand in the places of the real ones. The script starts itself on
-- the ranks.
--   accel-run tests/stdlib/accelerator/scheduler_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn, optim = accel.accelerator, accel.nn, accel.optim
local S = optim.lr_scheduler

if ranks.start { 1, 2, 4 } then return end

local P, says = ranks.size, ranks.fails
local nan <const> = 0 / 0

local function same(got, want, what) ranks.close(got, want, what, 1e-12) end

--- An Accelerator with a prepared weight, SGD with rate 1 and schedule make(optimizer).
local function setup(options, make)
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator(options)
  local w = accel.ones(1, { requires_grad = true })
  local sgd = optim.SGD({ w }, { lr = 1 })
  local schedule = make(sgd)
  local optimizer, prepared = a:prepare(sgd, schedule)
  return { a = a, w = w, optimizer = optimizer, schedule = prepared, sgd = sgd, real = schedule }
end
--- A micro-step with this gradient.
local function step(k, gradient, quiet)
  k.a:backward((k.w * (gradient or 1)):sum())
  k.optimizer:step()
  if not quiet then k.schedule:step() end
  k.optimizer:zero_grad()
end
local function tenths(o) return S.LambdaLR(o, function(n) return 1 - n / 10 end) end
local by_process <const> = "process"

-- ---- lambda: by updates 0.9 after one on any number of ranks, by processes 1 - ranks / 10 ----
for _, unit in ipairs { "update", by_process } do
  local each = unit == by_process and P or 1
  local k = setup({ mixed_precision = "fp16", step_unit = unit }, tenths)
  step(k)
  same(k.sgd.param_groups[1].lr, 1 - each / 10, unit)
  step(k, nan)
  same(k.optimizer.step_was_skipped, true, unit)
  same(k.schedule:get_last_lr()[1], 1 - each / 10, unit .. ", skipped")
  same(k.schedule.skipped, 1, unit)
  step(k)
  same(k.schedule.last_epoch, 2 * each, unit)
  same(k.schedule.skipped, 1, unit)
end

-- ---- steps of the schedule alone count always, exactly once ----
do
  local k = setup({ mixed_precision = "fp16", step_unit = by_process, step_scheduler_with_optimizer = false,
    gradient_accumulation_steps = 3 }, tenths)
  step(k, nan)
  same(k.schedule:get_last_lr()[1], 0.9, "alone")
  k.a.sync_gradients = false
  step(k)
  same(k.schedule:get_last_lr()[1], 0.8, "alone, skipped and accumulating")
end

-- ---- split_batches: the ranks share a batch, so that a step is a step ----
do
  local config = A.DataLoaderConfiguration { split_batches = true }
  local k = setup({ step_unit = by_process, dataloader_config = config }, tenths)
  step(k)
  same(k.schedule.last_epoch, 1, "split_batches")
  case "a schedule by updates"
end

-- ---- one cycle: not beyond its total ----
for _, unit in ipairs { "update", by_process } do
  local k = setup({ step_unit = unit }, function(o)
    return S.OneCycleLR(o, 0.5, { total_steps = 2, cycle_momentum = false })
  end)
  step(k)
  same(k.schedule.last_epoch, unit == by_process and math.min(P, 2) or 1, "one cycle")
  for _ = 1, 3 do step(k) end
  same(k.schedule.last_epoch, 2, "one cycle, at its end")
end

-- ---- linear decay: exactly 0 at the end, not before ----
for _, unit in ipairs { "update", by_process } do
  for _, count in ipairs { 1, 2, 4 } do
    local each = unit == by_process and P or 1
    local k = setup({ step_unit = unit, gradient_accumulation_steps = count }, function(o)
      return S.get_scheduler("linear", o, { num_warmup_steps = 0, num_training_steps = 10 * each })
    end)
    local before
    for i = 1, 10 * count do
      before = k.schedule:get_last_lr()[1]
      k.a:accumulate(function() step(k) end)
      same(k.schedule.last_epoch, i // count * each, "linear")
    end
    assert(before > 0, "zero too early")
    same(k.schedule:get_last_lr()[1], 0, "linear, at its end")
  end
end

-- ---- once per epoch: an epoch counts unless all its updates were skipped ----
do
  local k = setup({ mixed_precision = "fp16" }, function(o) return S.StepLR(o, 1, 0.5) end)
  local epochs, at = { { 1, 1 }, { 1, nan }, { nan, nan }, { nan, 1 } }, {}
  for e, epoch in ipairs(epochs) do
    for _, gradient in ipairs(epoch) do step(k, gradient, true) end
    k.schedule:step()
    at[e] = k.schedule.last_epoch
  end
  same(table.concat(at, " "), "1 2 2 3", "per epoch")
  same(k.schedule.skipped, 1, "per epoch")
end

-- ---- two optimizers: each schedule follows its own ----
do
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator { mixed_precision = "fp16" }
  local w, v = accel.ones(1, { requires_grad = true }), accel.ones(1, { requires_grad = true })
  local p, q = optim.SGD({ w }, { lr = 1 }), optim.SGD({ v }, { lr = 1 })
  local s, t = tenths(p), tenths(q)
  t, p, s, q = a:prepare(t, p, s, q)
  for _ = 1, 2 do
    a:backward((w * nan + v):sum())
    p:step()
    q:step()
    s:step()
    t:step()
    p:zero_grad()
    q:zero_grad()
  end
  same(s.last_epoch, 0, "of the one that skipped")
  same(t.last_epoch, 2, "of the other")
  same(a.scaler:get_scale(), 16384.0, "one update each")
end

-- ---- prepared in a call before its optimizer's: that one is followed all the same, and no other ----
do
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator { mixed_precision = "fp16" }
  local w, v = accel.ones(1, { requires_grad = true }), accel.ones(1, { requires_grad = true })
  local first, second = optim.SGD({ w }, { lr = 1 }), optim.SGD({ v }, { lr = 1 })
  local other = a:prepare(first)
  local schedule = a:prepare(tenths(second))
  local own = a:prepare(second)
  for i, gradients in ipairs { { 1, 1 }, { 1, nan }, { nan, 1 } } do
    a:backward((w * gradients[1]):sum() + (v * gradients[2]):sum())
    other:step()
    own:step()
    schedule:step()
    other:zero_grad()
    own:zero_grad()
    same(schedule.last_epoch, ({ 1, 1, 2 })[i], "before its optimizer")
  end
end

-- ---- plateau: every metric once ----
do
  local k = setup({ step_unit = by_process }, function(o)
    return S.ReduceLROnPlateau(o, { patience = 1, factor = 0.5 })
  end)
  for _, metric in ipairs { 1, 2, 2 } do
    step(k, 1, true)
    k.schedule:step(metric)
  end
  same(k.schedule.last_epoch, 3, "plateau")
  same(k.sgd.param_groups[1].lr, 0.5, "plateau")
  k.a.sync_gradients = false
  k.schedule:step(9)
  same(k.schedule.last_epoch, 3, "plateau, accumulating")
end

-- ---- in the places of the real ones ----
do
  local k = setup({}, tenths)
  local o, s = k.optimizer, k.schedule
  assert(o.param_groups == k.sgd.param_groups and o.state == k.sgd.state and o.optimizer == k.sgd)
  assert(s.scheduler == k.real and s.base_lrs == k.real.base_lrs)
  step(k)
  local state, rates = o:state_dict(), s:state_dict()
  same(#state.param_groups, 1, "state_dict")
  same(rates.last_epoch, 1, "state_dict")
  step(k)
  s:load_state_dict(rates)
  same(k.real.last_epoch, 1, "load_state_dict")
  o:load_state_dict(state)
  same(o.param_groups[1].lr, 0.9, "load_state_dict")
  o:add_param_group { params = { accel.ones(1, { requires_grad = true }) }, lr = 3 }
  same(k.sgd.param_groups[2].lr, 3, "add_param_group")
  function k.sgd:mark() return rawequal(self, k.sgd) end
  assert(o:mark(), "methods are called on the real one")
  o.note = "kept"
  same(k.sgd.note, "kept", "a field")
  assert(tostring(o):find "^AcceleratedOptimizer%(SGD")
  assert(tostring(s):find "^AcceleratedScheduler%(LambdaLR, last_epoch=1")
  o:train()
  o:eval() -- nothing to do
  same(o:step(function() return 7 end), 7, "closure")

  local again = S.StepLR(o, 1, 0.5) -- made with the prepared optimizer
  again:step()
  same(k.sgd.param_groups[2].lr, 1.5, "a schedule over the wrapper")
  says("expected an optimizer", A.AcceleratedOptimizer, {}, { accelerator = k.a })
  says("expected a schedule", A.AcceleratedScheduler, {}, { accelerator = k.a })
end

-- ---- schedule-free optimizers: train and eval pass ----
do
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator()
  local w = accel.ones(2, { requires_grad = true })
  local real = optim.SGDScheduleFree({ w }, { lr = 0.1 })
  local o = a:prepare(real)
  o:train()
  for _ = 1, 2 do
    a:backward((w * w):sum())
    o:step()
    o:zero_grad()
  end
  local y = w:detach():clone()
  o:eval()
  assert(not accel.equal(w, y), "eval switched nothing")
  same(real.param_groups[1].train_mode, false, "eval")
  o:train()
  assert(accel.allclose(w, y), "train")
end

-- ---- nothing while gradients accumulate ----
do
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator { gradient_accumulation_steps = 2 }
  local model = nn.Linear(2, 1)
  local optimizer
  model, optimizer = a:prepare(model, optim.SGD(model:parameters(), { lr = 1 }))
  local w = model:parameters()[1]
  local before = w:detach():clone()
  local schedule = a:prepare(tenths(optimizer))
  for i = 1, 2 do
    local _ <close> = a:accumulate(model)
    a:backward(model(accel.ones(1, 2)):sum())
    optimizer:step()
    schedule:step()
    assert(accel.equal(w, before) == (i == 1), "step")
    optimizer:zero_grad()
    assert((w.grad ~= nil) == (i == 1), "zero_grad")
    same(schedule.last_epoch, i - 1, "schedule")
  end
  same(optimizer.applied, 1, "applied")
  case "a schedule and accumulation"
end
