-- AdamW over the parameters of a GPT-2, all f32: milliseconds of a step. Gradients are a tenth of the weights in the
-- file, which --make FOLDER writes; sums of magnitudes show that both sides did the same.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { layers = 12, width = 768, vocab = 50304, data = "", make = "" }

if o.make ~= "" then
  local c, weights, n = o.width, {}, 0
  accel.manual_seed(1)
  local function add(...)
    n = n + 1
    weights[("p%04d"):format(n)] = accel.randn(...) * 0.02
  end
  add(o.vocab, c)
  add(1024, c)
  for _ = 1, o.layers do
    for _, shape in ipairs { { c }, { c }, { c, 3 * c }, { 3 * c }, { c, c }, { c }, { c }, { c }, { c, 4 * c },
      { 4 * c }, { 4 * c, c }, { c } } do add(shape) end
  end
  add(c)
  add(c)
  side.save(o.make, "weights", weights)
  return
end

local weights = side.load(o.data, "weights")
local params, count = {}, 0
for _, w in accel.pairs(weights) do
  local p = w:clone():requires_grad_(true)
  p.grad = w * 0.1
  params[#params + 1], count = p, count + p:numel()
end
weights = nil
local opt = accel.optim.AdamW(params, { lr = 1e-3, betas = { 0.9, 0.95 }, weight_decay = 0.1 })
for _ = 1, 3 do opt:step() end
local sums = {}
for i = 1, math.min(8, #params) do sums[i] = side.mean_abs(params[i]) end
local ms = side.time(function() opt:step() end, o.quick, 1) * 1e3
side.finish { ms = ms, sums = sums, parameters = count }
