-- Cross entropies on the CUDA device against the CPU, where rows cross what their kernels read at once: in every dtype, with every
-- option. Small shapes once more: ops_suite.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"

local function floats(shape, dtype, scale) return (accel.randn(shape, { dtype = "f32" }) * (scale or 3)):to(dtype) end
local function labels(n, shape, ignore)
  local t = accel.randint(0, n, shape)
  if ignore then t = accel.where(accel.rand(shape):lt(0.3), ignore, t) end
  return t
end

-- Each returns the tensors that want gradients, and what makes the loss of them and of others that do not.
local function entropy(shape, options, how)
  return function(dtype)
    local x, t, w = floats(shape, dtype), nil, how and how.weight and (accel.rand({ shape[2] or shape[1] }) + 0.5):to(dtype) or nil
    local dims = {}
    for d, n in ipairs(shape) do
      if d ~= (#shape > 1 and 2 or 1) then dims[#dims + 1] = n end
    end
    if how and how.soft then t = accel.rand(shape):softmax(#shape > 1 and 2 or 1):to(dtype)
    else t = labels(shape[2] or shape[1], dims, how and how.ignore) end
    return { x }, { t, w or false }, function(inputs, others)
      local o = { weight = others[2] or nil }
      for k, v in pairs(options or {}) do o[k] = v end
      local logits = inputs[1]
      if how and how.shift then logits = logits:narrow(2, 2, shape[2] - 1) end -- rows that begin anywhere
      return accel.cross_entropy(logits, how and how.shift and others[1]:clamp(0, shape[2] - 2) or others[1], o)
    end
  end
end
local function head(n, k, v, options, how)
  return function(dtype)
    local wide = how and how.autocast and "f32" or dtype
    local x, w, b = floats({ n, k }, wide, 1), floats({ v, k }, wide, 1), how and how.bias and floats({ v }, wide, 1) or nil
    return { x, w, b }, { labels(v, { n }, how and how.ignore), how and how.weight and (accel.rand({ v }) + 0.5):to(wide) or false },
      function(inputs, others)
        local o = { linear_bias = inputs[3], weight = others[2] or nil }
        for key, value in pairs(options or {}) do o[key] = value end
        local function run() return accel.linear_cross_entropy(inputs[1], inputs[2], others[1], o) end
        if how and how.autocast then return accel.autocast({ dtype = dtype, device = inputs[1].device }, run) end
        return run()
      end
  end
end

local cases = {
  { "rows", entropy { 5, 257 } },
  { "even rows", entropy { 6, 512 } },
  { "a long row", entropy { 2, 3001 } },
  { "one row", entropy { 300 } },
  { "each", entropy({ 4, 301 }, { reduction = "none" }) },
  { "sum, smoothed", entropy({ 4, 301 }, { reduction = "sum", label_smoothing = 0.1 }) },
  { "weights", entropy({ 5, 130 }, nil, { weight = true }) },
  { "weights, smoothed", entropy({ 5, 130 }, { label_smoothing = 0.2 }, { weight = true }) },
  { "ignored", entropy({ 9, 130 }, { ignore_index = 3 }, { ignore = 3 }) },
  { "ignored, smoothed", entropy({ 9, 130 }, { label_smoothing = 0.2 }, { ignore = -100 }) },
  { "probabilities", entropy({ 4, 130 }, { label_smoothing = 0.1 }, { soft = true }) },
  { "probabilities, weights", entropy({ 4, 130 }, { reduction = "sum" }, { soft = true, weight = true }) },
  { "places", entropy({ 2, 40, 3, 5 }, { reduction = "none" }) },
  { "few classes", entropy({ 70, 3 }, { label_smoothing = 0.1 }, { weight = true }) },
  { "few classes, places", entropy({ 2, 3, 7, 9 }, nil, { ignore = -100 }) },
  { "few probabilities", entropy({ 7, 3, 2 }, nil, { soft = true }) },
  { "shifted rows", entropy({ 5, 259 }, nil, { shift = true }) },
  { "head", head(37, 24, 300) },
  { "head, bias", head(150, 16, 513, nil, { bias = true }) },
  { "head, sum, smoothed", head(37, 24, 300, { reduction = "sum", label_smoothing = 0.1 }, { bias = true, weight = true }) },
  { "head, each", head(37, 24, 300, { reduction = "none" }, { ignore = -100 }) },
  { "head, kept", head(37, 24, 300, { keep = true }, { bias = true }) },
  { "head, kept, weights", head(150, 8, 700, { keep = true, label_smoothing = 0.1 }, { weight = true }) },
  { "head, lowered", head(37, 24, 300, nil, { autocast = true, bias = true, ignore = -100 }), { "bf16", "f16" } },
}

local function outcome(make, dtype, device)
  accel.manual_seed(7)
  local inputs, others, loss = make(dtype)
  local leaves = {}
  for i, t in pairs(inputs) do inputs[i] = t:detach():to(device) end
  for i = 1, 3 do
    if inputs[i] then
      inputs[i].requires_grad = true
      leaves[#leaves + 1] = inputs[i]
    end
  end
  for i, t in ipairs(others) do others[i] = t and t:detach():to(device) end
  local y = loss(inputs, others)
  accel.manual_seed(8)
  local g = accel.grad({ y }, leaves, { grad_outputs = { accel.rand(y.shape, { dtype = y.dtype, device = "cpu" }):to(device) } })
  local out = { y:detach():to("cpu") }
  for _, t in ipairs(g) do out[#out + 1] = t:detach():to("cpu") end
  return out
end

local n = 0
for _, c in ipairs(cases) do
  for _, dtype in ipairs(c[3] or { "f32", "bf16", "f16", "f64" }) do
    local want, got = outcome(c[2], dtype, "cpu"), outcome(c[2], dtype, "cuda")
    n = n + 1
    for j = 1, #want do
      suite.expect(("%s, %s: %s"):format(c[1], dtype, j == 1 and "the loss" or "gradient " .. j - 1), got[j], want[j], { dtype = dtype })
    end
    collectgarbage()
  end
end
suite.finish(n)
