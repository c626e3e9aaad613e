-- Training step of a GPT on several ranks by DistributedDataParallel, the batch of a rank fixed: f32, AdamW. Started by accel-run
-- --num_processes N, rank 0 prints one JSON object: the median step in ms.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 6, width = 384, heads = 6, vocab = 256, batch = 4, seq = 64, steps = 8, drop = 2 }

accel.manual_seed(1)
local model = accel.models.GPT2 { vocab_size = o.vocab, n_positions = o.seq, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
local several = accel.dist.is_initialized() and accel.dist.get_world_size() > 1
if several then model = accel.nn.parallel.DistributedDataParallel(model) end
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 })
local x = accel.randint(0, o.vocab, { o.batch, o.seq })
local figures = side.train(o.steps, o.drop, function()
  if several then accel.dist.barrier() end
  local loss = model(x, { labels = x })
  local forward = accel.clock()
  loss:backward()
  local backward = accel.clock()
  optimizer:step()
  optimizer:zero_grad()
  return loss, forward, backward
end)
if not several or accel.dist.get_rank() == 0 then side.finish(figures) end
