-- The loss scale of the fp16 block follows DeepSpeed's, overflow by overflow (deepspeed.json): window, hysteresis, the least scale; a saved
-- state goes on; and under an Accelerator a step that overflows is left out, the schedule with it.
--   accel-run tests/stdlib/deepspeed/loss_scaler_test.lua
local accel = require "accel"

local file <close> = assert(io.open((arg[0]:match "^.*/" or "") .. "deepspeed.json"))
local reference = accel.json.decode(file:read "a")

--- Gradients of an update of one parameter, some of which are not finite.
local function update(scaler, optimizer, p, overflow)
  p.grad = accel.full({ 1 }, overflow and math.huge or 1.0)
  scaler:step(optimizer)
  scaler:update()
end

local function of(block)
  local given = {}
  for key, value in next, block do given[key] = value end
  return accel.deepspeed.DynamicLossScaler(given)
end

for n, row in ipairs(reference.scalers) do
  local p = accel.ones(1, { requires_grad = true })
  local optimizer, scaler = accel.optim.SGD { p }, of(row.block)
  for i, want in ipairs(row.scales) do
    update(scaler, optimizer, p, row.overflows:sub(i, i) == "x")
    assert(scaler:get_scale() == want, ("scaler %d, update %d: %g, not %g"):format(n, i, scaler:get_scale(), want))
    if i % 11 == 0 then
      local saved = scaler:state_dict()
      scaler = of(row.block)
      scaler:load_state_dict(saved)
    end
  end
  if math.type(row.fails_at) == "integer" then
    local ok, e = pcall(update, scaler, optimizer, p, true)
    assert(not ok and tostring(e):find "smallest loss scale", tostring(e))
  end
end

do -- under an Accelerator
  local a = accel.Accelerator { mixed_precision = "fp16", deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    zero_optimization = { stage = 1 }, fp16 = { enabled = "auto", initial_scale_power = 10, loss_scale_window = 2, hysteresis = 1 },
    optimizer = { type = "SGD", params = { lr = 1.0 } }, scheduler = { type = "WarmupLR", params = { warmup_num_steps = 4 } },
  } } }
  assert(a.mixed_precision == "fp16" and a.deepspeed_config.fp16.enabled == true and a.deepspeed_config.bf16.enabled == false)
  local net = accel.nn.Linear(2, 1)
  local dummy = accel.accelerator.DummyOptim(net:parameters())
  local model, optimizer, schedule = a:prepare(net, dummy, accel.accelerator.DummyScheduler(dummy))
  local scales, steps = {}, {}
  for i = 1, 6 do
    local loss = model(accel.ones(1, 2)):sum()
    if i == 3 then loss = loss * 1e30 end
    a:backward(loss)
    optimizer:step()
    assert(optimizer.step_was_skipped == (i == 3) and a.optimizer_step_was_skipped == (i == 3))
    scales[i], steps[i] = a.scaler:get_scale(), schedule.last_epoch
  end
  for i, want in ipairs { 1024, 1024, 512, 512, 512, 1024 } do assert(scales[i] == want, i .. " " .. scales[i]) end
  for i, want in ipairs { 1, 2, 2, 3, 4, 5 } do assert(steps[i] == want) end
end
print "ok"
