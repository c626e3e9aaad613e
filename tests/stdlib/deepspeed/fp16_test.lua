-- fp16 of a DeepSpeed configuration end to end: loss scales of every step, among them those of skipped steps, are DeepSpeed's own, and so
-- are the losses within what 16 bits tell apart, for stages 1 to 3 on two ranks, and with tiers. Where the scale grows DeepSpeed 0.19.8
-- divides the gradients of that step by the scale of the next one (it updates the scale first); here they are divided by their own, so
-- that losses are compared up to there, and scales up to the next step that is skipped.
--   accel-run tests/stdlib/deepspeed/fp16_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 2 } then return end

local file <close> = assert(io.open(here .. "fp16.json"))
local reference = accel.json.decode(file:read "a")

local function run(reading, stage, tier)
  accel.accelerator.AcceleratorState._reset_state(true)
  local where = tier and { device = "cpu" } or nil
  local a = accel.Accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = 4, gradient_accumulation_steps = 1, gradient_clipping = 0.5,
    zero_optimization = { stage = stage, stage3_param_persistence_threshold = 0, offload_optimizer = where,
      offload_param = stage == 3 and where or nil },
    fp16 = { enabled = true, initial_scale_power = 20, loss_scale_window = reading.window, hysteresis = 1 },
  } } }
  local net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
  do
    local _ <close> = accel.no_grad()
    for name, p in net:named_parameters() do p:copy_(accel.tensor(reference.init[name]):view(p.shape)) end
  end
  local optimizer = accel.optim.AdamW(net:parameters(), { lr = 0.02, weight_decay = 0.01 })
  local model
  model, optimizer = a:prepare(net, optimizer)
  local far, own_way = 0.0, false
  for i, row in ipairs(reading.losses) do
    local x = (accel.arange(32):to("f32"):view(4, 8) * 0.37 + (i - 1 + ranks.rank * 0.5)):sin()
    local loss = model(x):pow(2):mean()
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    local want, name = row[ranks.rank + 1], ("stage %d%s, step %d"):format(stage, tier and " with tiers" or "", i)
    if not own_way then
      far = math.max(far, math.abs(loss:item() / want - 1))
      assert(math.abs(loss:item() - want) <= 0.005 * want + 1e-5, ("%s: loss %.9g, DeepSpeed's %.9g"):format(name, loss:item(), want))
    end
    assert(a.scaler:get_scale() == reading.scales[i], ("%s: scale %g, DeepSpeed's %g"):format(name, a.scaler:get_scale(),
      reading.scales[i]))
    if own_way and reading.scales[i + 1] and reading.scales[i + 1] < reading.scales[i] then break end
    own_way = own_way or i > 1 and reading.scales[i] > reading.scales[i - 1]
  end
  return far, optimizer.skipped
end

for _, case in ipairs { { 1 }, { 2 }, { 3 }, { 2, true }, { 3, true } } do
  for name, skips in accel.pairs { steady = 2, grows = 2 } do
    local far, skipped = run(reference[name], case[1], case[2])
    assert(skipped == skips, ("%s: %d steps skipped"):format(name, skipped))
    if os.getenv "SHOW" then print(name, case[1], case[2], far) end
  end
end
