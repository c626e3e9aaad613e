--- Less memory for backward: layers keep their input only and are computed again when backward needs the rest.
---
---   accel-run examples/23_recompute.lua [--layers N] [--width N]
---
--- A GPT is trained twice from the same seed, with dropout. The second time model:gradient_checkpointing_enable() makes
--- each block a checkpoint, as accel.checkpoint(fn, ...) does with any function: backward runs the block again, with
--- the same random numbers, just before it needs the block's saved tensors. The losses are the same to the last bit. A
--- step takes about a third longer, and the activations take a fraction of the memory.
local accel = require "accel"

local declared = {
  name = "23_recompute.lua", summary = "Trains a GPT twice: as it is, and with its blocks computed again in backward.",
  { "layers", "int", 12, "N", "transformer blocks" },
  { "width", "int", 128, "N", "numbers per position" },
  { "steps", "int", 3, "N", "training steps" },
}
local o = accel.util.cli(declared)

local vocab, context, batch = 65, 64, 8

--- Losses of all steps, and the most bytes that a step held beyond model, gradients and optimizer.
local function train(recompute)
  accel.manual_seed(1)
  local model = accel.models.GPT2 {
    vocab_size = vocab, n_positions = context, n_embd = o.width, n_layer = o.layers, n_head = 4,
  }
  if recompute then model:gradient_checkpointing_enable() end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local losses, most = {}, 0
  for step = 1, o.steps do
    local ids = accel.randint(0, vocab, { batch, context })
    accel.collect()
    local before = accel.mem_stats().live_bytes
    accel.reset_peak_memory()
    local loss = accel.cross_entropy(model(ids):reshape(-1, vocab), ids:reshape(-1))
    loss:backward()
    losses[step] = loss:item()
    if step > 1 then most = math.max(most, accel.mem_stats().peak_bytes - before) end
    optimizer:step()
    for _, p in ipairs(model:parameters()) do p.grad:zero_() end -- kept: gradients are not measured
  end
  return losses, most
end

local losses, plain = train(false)
accel.collect()
local again, lean = train(true)
local same = true
for i, loss in ipairs(losses) do same = same and loss == again[i] end
print("the same losses to the last bit:", same)
print(("activations: %.1f MB; recomputed: %.1f MB; %.1f times less"):format(plain / 1e6, lean / 1e6, plain / lean))
