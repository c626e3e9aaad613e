-- Accelerator { memory = "low" } on two ranks: under DDP, FSDP and ZeRO gradients stay, with one message, and the numbers are those of
-- the same settings without it, or with states of 8 bits. Meshes raise.
--   accel-run tests/stdlib/accelerator/low_memory_ranks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")

if not ranks.launched then
  local _, err, status = ranks.try(2, {})
  assert(status == 0, err)
  for pattern, times in accel.pairs {
    ["gradients stay until optimizer:step%(%): ranks average them in buckets"] = 2,
    ["stay as fsdp_plugin divides them over the ranks"] = 2, ["stay as deepspeed_plugin divides them over the ranks"] = 2,
  } do
    local _, n = err:gsub(pattern, "")
    assert(n == times, ("%d times '%s':\n%s"):format(n, pattern, err))
  end
  return
end

local CONFIG <const> = { vocab_size = 64, n_positions = 16, n_embd = 64, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
accel.manual_seed(3)
local DATA <const> = accel.randint(0, 64, { 4, 2, 2, 16 })

local function train(opts, optimizer, recompute)
  accel.AcceleratorState._reset_state(true)
  accel.manual_seed(1)
  local a = accel.Accelerator(opts)
  local model = accel.models.GPT2(CONFIG)
  if recompute then model:gradient_checkpointing_enable() end
  local o = accel.optim[optimizer]({ { params = model:parameters() } }, { lr = 1e-2 })
  if a.deepspeed_plugin then a.deepspeed_plugin.deepspeed_config.train_micro_batch_size_per_gpu = 2 end
  local m
  m, o = a:prepare(model, o)
  local losses = {}
  for i = 1, 4 do
    a:accumulate(m, function()
      local x = DATA[i][a.process_index + 1]
      local loss = m(x, { labels = x })
      a:backward(loss)
      if not a.deepspeed_plugin then a:clip_grad_norm_(m:parameters(), 1) end
      o:step()
      o:zero_grad()
      losses[i] = loss:item()
    end)
  end
  return losses
end

local function same(what, one, other)
  for i, loss in ipairs(one) do assert(loss == other[i], ("%s: step %d: %.9g and %.9g"):format(what, i, loss, other[i])) end
end

same("ddp", train({ memory = "low" }, "AdamW"), train({}, "AdamW8bit", true))
same("no_sync", train({ memory = "low", gradient_accumulation_steps = 2 }, "AdamW"), train({ gradient_accumulation_steps = 2 }, "AdamW8bit", true))
same("bf16", train({ memory = "low", mixed_precision = "bf16" }, "AdamW"), train({ mixed_precision = "bf16" }, "AdamW8bit", true))
for _, memory in ipairs { "low", "reduced" } do
  local function fsdp() return accel.FullyShardedDataParallelPlugin { fsdp_version = 2 } end
  same("fsdp", train({ memory = memory, fsdp_plugin = fsdp() }, "AdamW"), train({ fsdp_plugin = fsdp() }, "AdamW", true))
  local function zero() return accel.DeepSpeedPlugin { zero_stage = 2, gradient_clipping = 1 } end
  same("zero", train({ memory = memory, deepspeed_plugin = zero() }, "AdamW"), train({ deepspeed_plugin = zero() }, "AdamW", true))
end
accel.AcceleratorState._reset_state(true)
local ok, why = pcall(accel.Accelerator, { memory = "low", parallelism_config = accel.ParallelismConfig { tp_size = 2 } })
assert(not ok and tostring(why):find 'memory = "low" does not support parallelism_config', why)
