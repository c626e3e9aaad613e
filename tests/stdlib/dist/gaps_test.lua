-- Gaps of flat buffers: a gradient that is not finite, once, spoils the step in which it comes and no other, for every exchange of rounded
-- gradients (ZeRO's quantised ones, hooks of data parallelism), every stage, and layers of sizes that leave gaps between and behind them.
--   accel-run tests/stdlib/dist/gaps_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local gaps = require "accel.dist.gaps"
local nn = accel.nn

if not ranks.launched then
  -- every element belongs to a tensor or to exactly one gap, in the whole and in each part of it
  math.randomseed(tonumber(os.getenv "ACCEL_TEST_SEED") or 7)
  for _ = 1, 50 do
    local offsets, numels, at = {}, {}, 0
    for i = 1, math.random(6) do
      offsets[i], numels[i] = at, math.random(0, 40)
      at = at + numels[i] + math.random(0, 9)
    end
    local parts = math.random(4)
    local whole = accel.ones((at // parts + 1) * parts)
    for i, from in ipairs(offsets) do whole:narrow(1, from + 1, numels[i]):mul_(2) end
    local each = whole:numel() // parts
    for k = 0, parts - 1 do
      local part = whole:narrow(1, k * each + 1, each)
      for _, gap in ipairs(gaps(part, offsets, numels, k * each)) do gap:sub_(1) end
    end
    local left = whole:tolist()
    for i, from in ipairs(offsets) do
      for j = from + 1, from + numels[i] do
        assert(left[j] == 2, "an element of a tensor was taken for a gap")
        left[j] = 0
      end
    end
    for j, v in ipairs(left) do assert(v == 0, ("element %d of the gaps: %g"):format(j, v)) end
  end
end

if ranks.start { 2, 3 } then return end
local R = ranks.rank

local function net()
  accel.manual_seed(1)
  return nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3))
end

--- A step is "S" where its gradients were not finite, else ".".
local function check(what, got)
  assert(table.concat(got) == "..S.....", ("%s, rank %d: %s"):format(what, R, table.concat(got)))
end

local function input(step, bad)
  local x = accel.randn(2, 9, { generator = accel.Generator(step * 8 + R) })
  if step == 3 and R == 0 then x[1][4]:fill_(bad) end
  return x
end

local function zero(stage, bad)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { mixed_precision = "fp16", deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    fp16 = { enabled = true, initial_scale_power = 4, loss_scale_window = 1000, hysteresis = 1, min_loss_scale = 1 },
    zero_optimization = { stage = stage, zero_quantized_gradients = true, stage3_param_persistence_threshold = 0 } } } }
  local model = net()
  local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.01 })
  model, optimizer = a:prepare(model, optimizer)
  local got = {}
  for step = 1, 8 do
    a:backward(model(input(step, bad)):pow(2):mean())
    optimizer:step()
    optimizer:zero_grad()
    got[step] = a.optimizer_step_was_skipped and "S" or "."
  end
  check(("stage %d, %s"):format(stage, bad), got)
end
for stage = 1, 3 do
  zero(stage, 1 / 0)
  zero(stage, 0 / 0)
end

local hooks = accel.dist.hooks
for _, name in ipairs { "int8_all_gather_hook", "int4_reduce_scatter_hook", "powerSGD_hook", "batched_powerSGD_hook", "fp16_compress_hook" } do
  local model = nn.parallel.DistributedDataParallel(net())
  local state = name:find "SGD" and hooks.PowerSGDState { start_powerSGD_iter = 2 } or name:find "^int" and hooks.QuantizedState {} or nil
  model:register_comm_hook(state, hooks[name])
  local got = {}
  for step = 1, 8 do
    model:zero_grad()
    model(input(step, 0 / 0)):pow(2):mean():backward()
    local finite = true
    for _, p in ipairs(model:parameters()) do finite = finite and p.grad:isfinite():all():item() end
    got[step] = finite and "." or "S"
  end
  check(name, got)
end
