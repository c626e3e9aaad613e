-- Divided experts under autocast to bf16 and fp16, where tokens travel in 16 bits and losses are scaled, and under DeepSpeed's stages, which
-- cut what is not an expert: losses of some steps are those of ranks that have all experts, and experts learn.
--   accel-run tests/stdlib/parallel/experts_precision_test.lua
-- tier: every change
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")

if ranks.start { 2 } then return end

local STEPS <const> = 4

--- Losses, means over the ranks, and how far the first expert that this rank has moved.
local function train(precision, ep, stage)
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator {
    mixed_precision = precision, parallelism_config = accel.ParallelismConfig { dp_shard_size = 2, ep_size = ep },
    deepspeed_plugin = stage and accel.DeepSpeedPlugin { zero_stage = stage } or nil,
  }
  local model = cases.model("mixtral", 2, 0)
  local expert = model.model.layers[1].block_sparse_moe.experts[2 * ranks.rank + 1].w1.weight
  local before, losses = expert:detach():clone(), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  for step = 1, STEPS do
    local ids = cases.batch("mixtral", step)[1]:narrow(1, 4 * ranks.rank + 1, 4):contiguous()
    local loss = model(ids, { labels = ids })
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = a:reduce(loss:detach(), "mean"):item()
  end
  return losses, ep == 2 and (expert:detach() - before):abs():max():item() or nil
end

for precision, tolerance in pairs { no = 1e-5, bf16 = 2e-3, fp16 = 5e-4 } do
  local want = train(precision, 1)
  local got, moved = train(precision, 2)
  ranks.close(got, want, precision, tolerance * want[1])
  assert(moved > 1e-3, precision)
end
local want = train("no", 2)
for stage = 1, 3 do
  local got, moved = train("no", 2, stage)
  ranks.close(got, want, "stage " .. stage, 1e-5 * want[1])
  assert(moved > 1e-3)
end
