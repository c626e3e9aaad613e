-- A linear layer onto the vocabulary and the cross entropy of its logits, forward and backward: milliseconds, and the
-- memory that this needs at its peak beyond inputs and gradients. --make FOLDER writes the inputs.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { tokens = 1024, width = 768, vocab = 50257, dtype = "f32", data = "", make = "" }

if o.make ~= "" then
  accel.manual_seed(1)
  side.save(o.make, "inputs", { x = accel.randn(o.tokens, o.width), w = accel.randn(o.vocab, o.width) * 0.02,
    target = accel.randint(0, o.vocab, { o.tokens }) })
  return
end

local x, w, target
do
  local inputs = side.load(o.data, "inputs")
  x, w, target = inputs.x:clone():requires_grad_(true), inputs.w:clone():requires_grad_(true), inputs.target:clone()
end
local fused = accel.nn.functional.linear_cross_entropy

local function step(a, t)
  local loss
  do
    local _ <close> = accel.autocast { device = o.device:match "^%a+", dtype = "bf16", enabled = o.dtype == "bf16" }
    if fused then loss = fused(a, w, t) else loss = accel.cross_entropy(accel.linear(a, w), t) end
  end
  loss:backward()
  return loss
end
local function clear() x.grad, w.grad = nil, nil end

-- What is loaded and kept on first use is not counted.
step(x:narrow(1, 1, 8), target:narrow(1, 1, 8))
clear()
accel.collect()
accel.empty_cache()
side.reset_peak()
local before = side.resident()
local loss = step(x, target):item()
accel.collect()
local gradients = (x:numel() + w:numel()) * 4 / 1e6
local extra = math.max(0, side.peak() - before - gradients)
local losses = { loss, side.mean_abs(x.grad), side.mean_abs(w.grad) }
clear()
local seconds = side.time(function()
  step(x, target)
  clear()
end, o.quick, 1)
side.finish { ms = seconds * 1e3, extra_mb = extra, losses = losses, fused = fused and 1 or 0,
  logits_mb = o.tokens * o.vocab * (o.dtype == "f32" and 4 or 2) / 1e6 }
