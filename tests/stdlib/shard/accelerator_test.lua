-- Plugins of the Accelerator: FSDP 1 and 2 and ZeRO stages 0 to 3 leave the very losses, steps and weights of data parallelism with
-- accumulation, clipping and bf16, and fp16 with a step that is skipped; whatever a rank holds of so small a model. The weights that
-- are saved are whole. DeepSpeed's gradient_clipping clips by itself.
--   accel-run tests/stdlib/shard/accelerator_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 2, 3 } then
  ranks.run(2, { backend = "tcp" })
  return
end

local function plugins(kind, clip)
  local fsdp, ds = accel.FullyShardedDataParallelPlugin, accel.DeepSpeedPlugin
  if kind == "ddp" then return {} end
  local o = { auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 20 }
  if kind == "fsdp2" then o.fsdp_version = 2 end
  if kind:find "^fsdp" then return { fsdp_plugin = fsdp(o) } end
  return { deepspeed_plugin = ds { zero_stage = math.tointeger(kind:match "%d"), gradient_clipping = clip or 0.1,
    zero3_save_16bit_model = true } }
end

local folder = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function train(kind, precision, clip)
  local o = plugins(kind, clip)
  o.mixed_precision, o.gradient_accumulation_steps = precision, 2
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator(o)
  accel.manual_seed(1)
  local model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
  local optimizer, losses = accel.optim.AdamW(model:parameters(), { lr = 0.1 }), {}
  model, optimizer = a:prepare(model, optimizer)
  for s = 1, 8 do
    local _ <close> = a:accumulate(model)
    local x = accel.randn(4, 3, { generator = accel.Generator(s * 10 + a.process_index) })
    local loss = model(x):pow(2):mean()
    if s == 4 and precision == "fp16" then loss = loss * 1e30 end
    a:backward(loss)
    if not clip then a:clip_grad_norm_(model:parameters(), 0.1) end
    optimizer:step()
    optimizer:zero_grad()
    losses[s] = loss:item()
  end
  assert(optimizer.skipped == (precision == "fp16" and 1 or 0) and optimizer.applied + optimizer.skipped == 4)
  local state = a:get_state_dict(model)
  if a.is_main_process then
    assert(state["0.weight"].shape[1] == 8 and state["0.weight"].shape[2] == 3)
    local w = state["2.weight"]
    losses[#losses + 1] = w:sum():item()
    losses.rounded = precision ~= "no" and w:to(precision == "fp16" and "f16" or "bf16"):to("f32"):sum():item() or nil
  end
  return losses, a, model
end

for _, precision in ipairs { "no", "bf16", "fp16" } do
  local want = train("ddp", precision)
  for _, kind in ipairs { "fsdp", "fsdp2", "zero0", "zero1", "zero2", "zero3" } do
    local losses = train(kind, precision)
    for i = 1, #want do
      -- stage 3 gathers weights of 16 bits: those of the others, rounded
      local value = i == 9 and kind == "zero3" and want.rounded or want[i]
      local got = i == 9 and kind == "zero3" and losses.rounded or losses[i]
      assert(math.abs(got - value) <= 1e-5 * math.max(1, math.abs(value)), ("%s %s %d: %.9g, not %.9g"):format(kind, precision, i, got, value))
    end
  end
end

do -- DeepSpeed's own clipping
  local want, losses = train("ddp", "no"), train("zero2", "no", 0.1)
  for i = 1, #want do assert(math.abs(losses[i] - want[i]) < 1e-5) end
end

do -- what is there and what is not
  local _, a, model = train("zero3", "no")
  assert(a.distributed_type == "DEEPSPEED" and not a.is_fsdp2)
  local dir = ("%s/model-%d-%s"):format(folder, ranks.size, accel.dist.get_backend())
  a:save_model(model, dir)
  a:wait_for_everyone()
  local state = accel.load(dir .. "/model.safetensors")
  assert(state["0.weight"].shape[2] == 3)
  if a.process_index == 0 then assert(accel.equal(state["0.weight"], a:get_state_dict(model)["0.weight"])) else
    a:get_state_dict(model)
  end
end
