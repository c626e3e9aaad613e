-- Training step of a GPT-2 in bf16 through an Accelerator, with --memory normal, low or reduced, and parameters of --dtype. Figures: the
-- milliseconds of a step, the most memory of the pool in steps after the first, the losses.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 12, width = 768, heads = 12, vocab = 50304, batch = 4, seq = 256, steps = 4, drop = 1, memory = "normal",
  dtype = "f32" }

accel.manual_seed(1)
local model = accel.models.GPT2 { vocab_size = o.vocab, n_positions = o.seq, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
if o.dtype ~= "f32" then model:to(o.dtype) end
local accelerator = accel.Accelerator { mixed_precision = "bf16", memory = o.memory }
local optimizer
model, optimizer = accelerator:prepare(model, accel.optim.AdamW(model:parameters(), { lr = 1e-4 }))
local tokens = accel.randint(0, o.vocab, { 2, o.batch, o.seq })
local clock = accel.clock

local figures = side.train(o.steps, o.drop, function(i)
  if i == 2 then accel.reset_peak_memory(o.device) end
  local x = tokens[i % 2 + 1]
  local loss = model(x, { labels = x })
  local forward = clock()
  accelerator:backward(loss)
  local backward = clock()
  optimizer:step()
  optimizer:zero_grad()
  return loss, forward, backward
end)
figures.peak_mb = accel.mem_stats(o.device).peak_bytes / 1e6
side.finish(figures)
