-- amp.GradScaler: trajectories written out by hand from PyTorch's rule, those of PyTorch itself (grad_scaler.json,
-- which make_grad_scaler.py writes), order of calls, saving; and how an Accelerator uses it.
--   accel-run tests/stdlib/accelerator/grad_scaler_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local optim, says = accel.optim, ranks.fails
local GradScaler = accel.amp.GradScaler

local inf <const>, nan <const> = math.huge, 0 / 0
local values = { g = 0.25, i = inf, n = nan }

local function eq(a, b, what)
  if a ~= b then error(("%s: %s, not %s"):format(what, tostring(a), tostring(b)), 2) end
end
local function params(n)
  local list, optimizers = {}, {}
  for i = 1, n do
    list[i] = accel.ones(1, { requires_grad = true })
    optimizers[i] = optim.SGD({ list[i] }, { lr = 0.5 })
  end
  return list, optimizers
end
--- The sum of every parameter times the value of its letter.
local function loss_of(list, letters)
  local loss
  for i, p in ipairs(list) do
    local value = values[letters:sub(i, i)]
    if value then loss = loss and loss + (p * value):sum() or (p * value):sum() end
  end
  return loss
end

-- ---- against PyTorch ----
local golden = ranks.json "stdlib/accelerator/grad_scaler.json"

--- The loop of torch: step of each, then update.
local function by_hand(options, n)
  local list, optimizers = params(n)
  local scaler = GradScaler(options)
  return list, scaler, function(letters)
    scaler:scale(loss_of(list, letters)):backward()
    for i, o in ipairs(optimizers) do
      if letters:sub(i, i) ~= "-" then scaler:step(o) end
    end
    scaler:update()
    for _, o in ipairs(optimizers) do o:zero_grad() end
  end
end

--- The loop of Accelerator: one backward, step of each; nothing else. half: clips, which unscales, every other round.
local function accelerated(options, n, half)
  local list, optimizers = params(n)
  local accelerator = accel.Accelerator {
    mixed_precision = "fp16", kwargs_handlers = { accel.accelerator.GradScalerKwargs(options) },
  }
  optimizers = { accelerator:prepare(table.unpack(optimizers)) }
  local round = 0
  return list, accelerator.scaler, function(letters)
    round = round + 1
    accelerator:backward(loss_of(list, letters))
    local any = false
    for i, o in ipairs(optimizers) do
      local letter = letters:sub(i, i)
      if letter ~= "-" then
        if half and (round + i) % 2 == 0 then accelerator:clip_grad_norm_({ list[i] }, 1e6) end
        o:step()
        eq(o.step_was_skipped, letter ~= "g", "step_was_skipped")
        any = any or o.step_was_skipped
      end
    end
    if not letters:find "-" then eq(accelerator.optimizer_step_was_skipped, any, "optimizer_step_was_skipped") end
    for _, o in ipairs(optimizers) do o:zero_grad() end
  end
end

local rounds = 0
for c, case in ipairs(golden.cases) do
  for kind, make in accel.pairs { hand = by_hand, accelerator = accelerated, clipping = function(o, n)
    return accelerated(o, n, true)
  end } do
    local list, scaler, play = make(case.options, #case.rounds[1])
    for r, letters in ipairs(case.rounds) do
      local what, want = ("case %d, round %d (%s), %s"):format(c, r, letters, kind), case.results[r]
      play(letters)
      eq(scaler:get_scale(), want.scale, what .. ": scale")
      eq(scaler:state_dict()._growth_tracker, want.tracker, what .. ": tracker")
      for i, p in ipairs(list) do eq(p:item(), want.params[i], what .. ": parameter") end
      rounds = rounds + 1
    end
  end
end
assert(rounds >= 300, rounds)

-- ---- a step that is left out takes along the factor of clipping that was put off to it ----
do
  local p = accel.ones(1, { requires_grad = true })
  local o = optim.SGD({ p }, { lr = 1 })
  local scaler, accelerator = GradScaler { init_scale = 8 }, accel.Accelerator { mixed_precision = "fp16" }
  local prepared = accelerator:prepare(o)
  local function by_scaler(value)
    scaler:scale((p * value):sum()):backward()
    scaler:unscale_(o)
    accel.nn.utils.clip_grad_norm_(p, 0.25, { optimizer = o })
    assert(o.inv_scale)
    scaler:step(o)
    scaler:update()
  end
  local function by_accelerator(value)
    accelerator:backward((p * value):sum())
    accelerator:clip_grad_norm_(p, 0.25, { optimizer = o })
    assert(o.inv_scale)
    prepared:step()
  end
  for _, play in ipairs { by_scaler, by_accelerator } do
    p:detach():fill_(1)
    play(inf)
    assert(o.inv_scale == nil and p:item() == 1)
    p:sum():backward() -- adds to the gradient that is there
    p.grad = nil
    p:sum():backward()
    o:step()
    eq(p:item(), 0, "not clipped")
    p.grad = nil
    play(1)
    assert(math.abs(p:item() + 0.25) < 1e-6)
    p.grad = nil
  end
end

-- ---- by hand: good, NaN, NaN, good; the schedule moved twice ----
do
  local w = accel.ones(1, { requires_grad = true })
  local accelerator = accel.Accelerator { mixed_precision = "fp16" }
  local optimizer = optim.SGD({ w }, { lr = 1 })
  local schedule = optim.lr_scheduler.LambdaLR(optimizer, function(n) return 1 - n / 10 end)
  optimizer, schedule = accelerator:prepare(optimizer, schedule)
  local wanted = {
    { false, 65536, 1, 0.9, 0 }, { true, 32768, 1, 0.9, 1 }, { true, 16384, 1, 0.9, 2 }, { false, 16384, 2, 0.8, 2 },
  }
  for i, g in ipairs { 0.5, nan, nan, 0.5 } do
    accelerator:backward((w * g):sum())
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    local skipped, scale, epoch, lr, left_out = table.unpack(wanted[i])
    eq(optimizer.step_was_skipped, skipped, "skipped")
    eq(accelerator.optimizer_step_was_skipped, skipped, "any skipped")
    eq(accelerator.scaler:get_scale(), scale, "scale")
    eq(schedule.last_epoch, epoch, "last_epoch")
    eq(schedule:get_last_lr()[1], lr, "lr")
    eq(schedule.skipped, left_out, "schedule.skipped")
  end
  eq(optimizer.applied, 2, "applied")
  eq(optimizer.skipped, 2, "skipped")
  assert(math.abs(w:item() - (1 - 0.5 - 0.9 * 0.5)) < 1e-6)
end

-- ---- an update is due once per round, and seen before it is made ----
do
  local list, optimizers = params(2)
  local accelerator = accel.Accelerator { mixed_precision = "fp16" }
  local a, b = accelerator:prepare(table.unpack(optimizers))
  local scaler = accelerator.scaler
  accelerator:backward(loss_of(list, "ng"))
  a:step()
  eq(scaler:get_scale(), 32768.0, "after the first of two steps")
  eq(scaler:get_scale(), 32768.0, "asking changes nothing")
  eq(scaler:state_dict().scale, 32768.0, "as it is saved")
  b:step()
  eq(scaler:get_scale(), 32768.0, "one update for both")
  eq(list[2]:item(), 1 - 0.5 * 0.25, "the second met the scale of its backward")
  eq(list[1]:item(), 1, "the first skipped")
  a:zero_grad()
  b:zero_grad()

  -- Gradients that wait for another step follow the scale.
  accelerator:backward(loss_of(list, "ng"))
  a:step()
  a:zero_grad()
  accelerator:backward(loss_of(list, "gg"))
  eq(scaler:get_scale(), 16384.0, "made by the next backward")
  b:step()
  assert(math.abs(list[2]:item() - (1 - 0.5 * 0.25 - 2 * 0.5 * 0.25)) < 1e-6, list[2]:item())
  a:step()
  b:zero_grad()
  a:zero_grad()

  -- An overflow that was seen and dropped lowers the scale all the same.
  local before = scaler:get_scale()
  accelerator:backward(loss_of(list, "ni"))
  accelerator:clip_grad_norm_({ list[1] }, 1)
  a:zero_grad()
  b:zero_grad()
  eq(scaler:get_scale(), before / 2, "dropped after clipping")
  accelerator:backward(loss_of(list, "gg"))
  a:step()
  b:step()
  eq(a.step_was_skipped or b.step_was_skipped, false, "the next is good")
  eq(scaler:get_scale(), before / 2, "once")

  -- A second backward may not add to gradients that are unscaled already.
  a:zero_grad()
  b:zero_grad()
  accelerator:backward(loss_of(list, "gg"))
  accelerator:clip_grad_norm_({ list[1] }, 1)
  accelerator:backward(loss_of({ list[2] }, "g"))
  says("unscaled or normalised already", accelerator.backward, accelerator, loss_of({ list[1] }, "g"))
end

-- ---- one norm over two optimizers: what overflowed in one would be NaN in the other ----
for _, joint in ipairs { true, false } do
  local u, v = accel.ones(2, { requires_grad = true }), accel.ones(2, { requires_grad = true })
  local accelerator = accel.Accelerator { mixed_precision = "fp16" }
  local a, b = accelerator:prepare(optim.SGD({ u }, { lr = 1 }), optim.SGD({ v }, { lr = 1 }))
  for i, factor in ipairs { 1, inf, 1 } do
    accelerator:backward((u * factor):sum() + v:sum())
    local norm
    if joint then
      norm = accelerator:clip_grad_norm_({ u, v }, 1)
    else
      accelerator:clip_grad_norm_({ u }, 1)
      norm = accelerator:clip_grad_norm_({ v }, 1)
    end
    a:step()
    b:step()
    a:zero_grad()
    b:zero_grad()
    eq(a.step_was_skipped, i == 2, "the one that overflowed")
    eq(b.step_was_skipped, joint and i == 2, "the other one")
    if joint and i == 2 then eq(norm:item(), inf, "norm") end
  end
  local want = joint and 1 - 2 * 0.5 or 1 - 3 * math.sqrt(0.5)
  assert(math.abs(v[1]:item() - want) < 1e-5, ("%g, not %g"):format(v[1]:item(), want))
  eq(accelerator.scaler:get_scale(), 32768.0, "one overflow, one step back")
end

-- ---- accumulation in fp16: one scale for all micro-batches, checked once ----
do
  local w = accel.ones(1, { requires_grad = true })
  local accelerator = accel.Accelerator { mixed_precision = "fp16", gradient_accumulation_steps = 3 }
  local optimizer = accelerator:prepare(optim.SGD({ w }, { lr = 1 }))
  local at = {}
  for i, g in ipairs { 1, 2, 3, 1, inf, 1, 1, 1, 1 } do
    local _ <close> = accelerator:accumulate()
    accelerator:backward((w * g):sum())
    eq(accelerator:clip_grad_norm_({ w }, 1e6) ~= nil, i % 3 == 0, "clips at the end only")
    optimizer:step()
    optimizer:zero_grad()
    at[i] = w:item()
  end
  for i, want in ipairs { 1, 1, -1, -1, -1, -1, -1, -1, -2 } do
    assert(math.abs(at[i] - want) < 1e-6, ("after %d: %g"):format(i, at[i]))
  end
  eq(accelerator.scaler:get_scale(), 32768.0, "scale")
end

-- ---- order of calls ----
do
  local list, optimizers = params(1)
  local o, scaler = optimizers[1], GradScaler { init_scale = 4 }
  says("no gradients were checked", scaler.update, scaler)
  says("has a gradient", scaler.step, scaler, o)
  scaler = GradScaler { init_scale = 4 }
  local scaled = scaler:scale { list[1] * 1, deep = { list[1] * 2 } }
  eq(scaled[1]:item(), 4, "scale of a list")
  eq(scaled.deep[1]:item(), 8, "scale of nested tables")
  says("tensor or a table", scaler.scale, scaler, 3)
  scaler:scale(list[1]:sum()):backward()
  eq(list[1].grad:item(), 4, "scaled")
  scaler:unscale_(o)
  eq(list[1].grad:item(), 1, "unscaled")
  says("already since", scaler.unscale_, scaler, o)
  scaler:step(o)
  eq(list[1]:item(), 0.5, "stepped")
  says("after step()", scaler.unscale_, scaler, o)
  says("already since", scaler.step, scaler, o)
  says("closure", scaler.step, scaler, o, function() end)
  scaler:update()
  says("expected an optimizer", scaler.step, scaler, list[1])
  scaler:update(128)
  eq(scaler:get_scale(), 128.0, "update(number)")
  scaler:update(accel.full({}, 32.0))
  eq(scaler:get_scale(), 32.0, "update(tensor)")
  says("one element", scaler.update, scaler, accel.ones(2))
  says("growth_factor must be above 1", GradScaler, { growth_factor = 1 })
  says("backoff_factor must be below 1", GradScaler, { backoff_factor = 1 })
  says("did you mean 'init_scale'", GradScaler, { init_scle = 1 })
  local half = accel.ones(1, { dtype = "f16", requires_grad = true })
  local other = optim.SGD({ half }, { lr = 1 })
  half:sum():backward()
  says("f16 gradients", scaler.unscale_, scaler, other)
end

-- ---- saving, switching off ----
do
  local list, optimizers = params(1)
  local a = GradScaler { init_scale = 2, growth_interval = 2 }
  local function round(scaler)
    scaler:scale(loss_of(list, "g")):backward()
    scaler:step(optimizers[1])
    scaler:update()
  end
  round(a)
  local state = a:state_dict()
  eq(state.scale, 2.0, "scale")
  eq(state._growth_tracker, 1, "tracker")
  local b = GradScaler()
  b:load_state_dict(state)
  round(a)
  round(b)
  eq(a:get_scale(), 4.0, "grown")
  eq(b:get_scale(), 4.0, "grown from the state")
  eq(b:get_growth_interval(), 2, "interval")
  b:set_growth_factor(4)
  b:set_backoff_factor(0.125)
  b:set_growth_interval(1)
  round(b)
  eq(b:get_scale(), 16.0, "set_growth_factor")
  says("empty", b.load_state_dict, b, {})
  local off = GradScaler { enabled = false }
  eq(off:is_enabled(), false, "enabled")
  eq(off:get_scale(), 1.0, "scale when off")
  eq(off:scale(list[1]), list[1], "scale() when off")
  eq(next(off:state_dict()), nil, "state when off")
  off:unscale_(optimizers[1])
  local before = list[1]:item()
  list[1].grad = accel.ones(1)
  off:step(optimizers[1])
  off:update()
  eq(list[1]:item(), before - 0.5, "step when off")
end

-- ---- a scaler that is switched off, and none ----
for _, options in ipairs { { mixed_precision = "bf16" }, { mixed_precision = "fp16", kwargs_handlers = {
  accel.accelerator.GradScalerKwargs { enabled = false },
} } } do
  accel.AcceleratorState._reset_state()
  local w = accel.ones(1, { requires_grad = true })
  local accelerator = accel.Accelerator(options)
  local optimizer = accelerator:prepare(optim.SGD({ w }, { lr = 1 }))
  accelerator:backward((w * 0.5):sum())
  eq(w.grad:item(), 0.5, "not scaled")
  optimizer:step()
  eq(w:item(), 0.5, "stepped")
  eq(optimizer.step_was_skipped, false, "not skipped")
end

do -- handles of gradients that a script holds outlive unscaling, whatever those tensors were before
  local p = accel.ones(2, { requires_grad = true })
  local g = accel.ones(2):requires_grad_(true):requires_grad_(false)
  local scaler = accel.amp.GradScaler()
  local optimizer = accel.optim.SGD(p, { lr = 1 })
  scaler:scale(p:sum()):backward()
  p.grad = g
  scaler:unscale_(optimizer)
  assert(p.grad == g and g:sum():item() > 0)
end
