-- Training step of a GPT-2: forward, backward, clipping and AdamW. With --make FOLDER it writes the weights and tokens
-- that both sides start from, and ends.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 6, width = 384, heads = 6, vocab = 256, batch = 8, seq = 256, dtype = "f32",
  steps = 12, drop = 3, data = "", make = "", lr = 1e-4, compile = false }

local BATCHES <const> = 4 -- that steps take by turns

local config = { vocab_size = o.vocab, n_positions = o.seq, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }

accel.manual_seed(1)
local model = accel.models.GPT2(config)
if o.make ~= "" then
  local weights = {}
  for name, t in accel.pairs(model:state_dict()) do
    if name ~= "lm_head.weight" then weights[name] = t end -- tied to wte
  end
  side.save(o.make, "weights", weights)
  local tokens = accel.randint(0, o.vocab, { BATCHES, o.batch, o.seq + 1 })
  side.save(o.make, "tokens", { x = tokens:narrow(3, 1, o.seq):contiguous(),
    y = tokens:narrow(3, 2, o.seq):contiguous() })
  return
end

do
  local weights = side.load(o.data, "weights")
  for name, p in accel.pairs(model:state_dict()) do
    local w = weights[name]
    if w then p:copy_(w) end
  end
end
if o.compile then accel.compile(model.transformer) end
local tokens = side.load(o.data, "tokens")
local params = model:parameters()
local opt = accel.optim.AdamW(params, { lr = o.lr, betas = { 0.9, 0.95 }, weight_decay = 0.1 })
local clock, V = accel.clock, o.vocab
-- the head and the loss as one op, where there is one
local fused = accel.nn.functional.linear_cross_entropy
accel.collect()
accel.empty_cache()
side.reset_peak()

local figures = side.train(o.steps, o.drop, function(i)
  local k = (i - 1) % BATCHES + 1
  local x, y = tokens.x[k], tokens.y[k]:reshape(-1)
  local loss
  do
    local _ <close> = accel.autocast { device = o.device:match "^%a+", dtype = "bf16", enabled = o.dtype == "bf16" }
    if fused then
      loss = fused(model.transformer(x):reshape(-1, o.width), model.lm_head.weight, y, { keep = true })
    else
      loss = accel.cross_entropy(model(x):reshape(-1, V), y)
    end
  end
  local forward = clock()
  loss:backward()
  local backward = clock()
  accel.nn.utils.clip_grad_norm_(params, 1.0, { optimizer = opt })
  opt:step()
  opt:zero_grad()
  return loss, forward, backward
end)
figures.peak_mb = side.peak()
side.finish(figures)
