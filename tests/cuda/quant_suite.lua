-- Quantised tensors on the device: the bits of the CPU where the CPU's are exact, products near them, steps of optimizers with 8-bit states
-- with and without paging, and that nothing of it goes by the host: a step of all of it can be recorded. Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local full = os.getenv "ACCEL_TEST_FULL" == "1" -- on a device; each launch of the twin costs

local function drawn(seed, ...)
  accel.manual_seed(seed)
  return accel.randn({ ... }, { device = "cpu" })
end
local function same(a, b, what)
  a, b = a:to "cpu", b:to "cpu"
  assert(a.dtype == b.dtype and a:contiguous():to_bytes() == b:contiguous():to_bytes(), what .. " differs")
end

-- ---- codes, scales and values to the bit: whole and short blocks, zeros, infinities, NaN, other strides, means of many scales ----
local PARTS <const> = { "values", "absmax", "nested_absmax", "offset" }
local function encoded(what, op, x, ...)
  local a, b = op(x, ...), op(x:to "cuda", ...)
  for _, part in ipairs(PARTS) do
    local mine = a:quant_part(part)
    if mine then same(mine, b:quant_part(part), ("%s: %s"):format(what, part)) end
  end
  same(a:dequantize(), b:dequantize(), what .. ": values")
  same(a:to "cuda":dequantize "bf16", a:dequantize "bf16", what .. ": values in bf16")
end
for _, dtype in ipairs { "f32", full and "bf16" or nil, full and "f16" or nil } do
  local large = drawn(1, 130, 1031):to(dtype)
  local odd = drawn(2, 5, 77):to(dtype)
  odd[1], odd[2] = 0, odd[2] * 1e-3
  for name, x in pairs { large = large, odd = odd, turned = odd:t(), few = drawn(3, 3, 2):to(dtype) } do
    for _, kind in ipairs { "nf4", "fp4" } do
      for _, block in ipairs { 64, full and 256 or nil } do
        encoded(("%s %s %s %d"):format(dtype, name, kind, block), accel.quantize_4bit, x, kind, block)
        encoded(("%s %s %s %d twice"):format(dtype, name, kind, block), accel.quantize_4bit, x, kind, block, true)
      end
    end
    encoded(dtype .. name .. " dynamic", accel.quantize_dynamic, x)
    encoded(dtype .. name .. " dynamic twice", accel.quantize_dynamic, x:abs(), 32, false, true)
    encoded(dtype .. name .. " int8", accel.quantize_int8, x)
    for _, threshold in ipairs { 0, 2.5 } do
      local q, stats, outliers = x:int8_vectorwise_quant(threshold)
      local p, tops, columns = x:to "cuda":int8_vectorwise_quant(threshold)
      same(q, p, "vectorwise")
      same(stats, tops, "stats")
      same(outliers, columns, "outliers")
      assert(name ~= "large" or outliers:any():item() == (threshold > 0))
    end
  end
end

-- ---- blocks that are not finite: their scales and codes to the bit; which values are finite, and these ----
do
  local x = drawn(5, 7, 128)
  x[2][9], x[4][70], x[6][1], x[6][2] = 0 / 0, 1 / 0, -1 / 0, 0 / 0
  local function lost(what, op, ...)
    local a, b = op(x, ...), op(x:to "cuda", ...)
    for _, part in ipairs { "values", "absmax" } do same(a:quant_part(part), b:quant_part(part), what .. ": " .. part) end
    local v, w = a:dequantize(), b:dequantize():to "cpu"
    assert(not v:isfinite():all():item(), what)
    same(v:isfinite(), w:isfinite(), what .. ": finite values")
    same(v:isnan(), w:isnan(), what .. ": NaN")
    same(v:nan_to_num(), w:nan_to_num(), what .. ": values")
  end
  lost("nf4", accel.quantize_4bit, "nf4", 64)
  lost("fp4", accel.quantize_4bit, "fp4", 64)
  lost("fp4, a short block", accel.quantize_4bit, "fp4", 512)
  lost("dynamic", accel.quantize_dynamic, 64)
  lost("int8", accel.quantize_int8)
  for _, threshold in ipairs { 0, 2.5 } do
    local q, stats, outliers = x:int8_vectorwise_quant(threshold)
    local p, tops, columns = x:to "cuda":int8_vectorwise_quant(threshold)
    same(q, p, "vectorwise")
    same(stats, tops, "stats")
    same(outliers, columns, "outliers")
  end
end

-- ---- products: rows of x in fours, twos and ones; rows of the weight of any length ----
local function near(a, b, bar, what)
  a, b = a:to "cpu":to "f64", b:to "f64"
  local off = ((a - b):abs():max() / b:abs():max():clamp(1e-30)):item()
  assert(off <= bar, ("%s: %.3g of the largest, bar %.3g"):format(what, off, bar))
end
local BARS <const> = { f32 = 2e-6, bf16 = 8e-3, f16 = 1e-3, f64 = 2e-6 }
for _, k in ipairs { 1032, 27, full and 8 or nil, full and 200 or nil } do
  local w, bias = drawn(4, 37, k), drawn(5, 37)
  local weights = { nf4 = w:quantize_4bit "nf4", twice = w:quantize_4bit("fp4", 64, true),
    int8 = w:quantize_int8(), dynamic = w:quantize_dynamic(64) }
  for _, m in ipairs(full and { 1, 2, 3, 4, 5, 6, 7, 8, 9 } or { 1, 7, 9 }) do
    for dtype, bar in pairs(BARS) do
      local x = (drawn(6, m, k) * 2):to(dtype)
      for name, q in pairs(weights) do
        local threshold = name == "int8" and m % 2 == 0 and 4.0 or 0
        local what = ("%s %s %d x %d"):format(name, dtype, m, k)
        local want = accel.linear_quantized(x, q, m > 4 and bias or nil, threshold)
        near(accel.linear_quantized(x:to "cuda", q:to "cuda", m > 4 and bias:to "cuda" or nil, threshold), want, bar, what)
      end
    end
  end
end
do -- outliers count: without the threshold the product is another
  local x, w = drawn(7, 4, 96), drawn(8, 20, 96)
  x:select(2, 11):mul_(40)
  local q = w:quantize_int8():to "cuda"
  local with, without, exact = accel.linear_quantized(x:to "cuda", q, nil, 6.0), accel.linear_quantized(x:to "cuda", q), x:matmul(w:t())
  local function off(y) return (y:to "cpu" - exact):norm():item() / exact:norm():item() end
  assert(off(with) < 0.4 * off(without), ("%g %g"):format(off(with), off(without)))
end

-- ---- optimizers: the same parameters and codes, paged or not ----
local SHAPES <const> = { { 400, 260 }, { 4096 }, { 100 }, { 120001 }, { 7, 1 } }
local function leaves(dtype, device)
  local out = {}
  for i, shape in ipairs(SHAPES) do out[i] = drawn(i, table.unpack(shape)):to(dtype):to(device):requires_grad_() end
  for i = 1, 16 do out[#out + 1] = drawn(40 + i, 300):to(dtype):to(device):requires_grad_() end -- more than one launch takes
  return out
end
local function steps(class, dtype, device, opts)
  local params = leaves(dtype, device)
  local o = accel.optim[class](params, opts)
  for step = 1, 3 do
    for i, p in ipairs(params) do p.grad = drawn(100 * step + i, table.unpack(p.shape)):to(dtype):to(device) end
    accel.manual_seed(step)
    o:step()
  end
  return params, o
end
for class, more in pairs { AdamW8bit = {}, Lion8bit = {}, SGD8bit = { momentum = 0.9 }, RMSprop8bit = {}, Adagrad8bit = {}, AdEMAMix8bit = {},
  AdamW32bit = {} } do
  for _, dtype in ipairs { "bf16", full and "f32" or nil } do
    local opts = { lr = 0.01, stochastic_rounding = dtype == "bf16" }
    for key, value in pairs(more) do opts[key] = value end
    local a, left = steps(class, dtype, "cpu", opts)
    local b, right = steps(class, dtype, "cuda", opts)
    for i, p in ipairs(a) do
      same(p:detach(), b[i]:detach(), ("%s %s: parameter %d"):format(class, dtype, i))
      for key, t in pairs(left.state[p]) do same(t, right.state[b[i]][key], ("%s %s: %s %d"):format(class, dtype, key, i)) end
    end
    if accel.optim["Paged" .. class] then
      opts.page_budget = 250000
      local c, paged = steps("Paged" .. class, dtype, "cuda", opts)
      for i, p in ipairs(b) do same(p:detach(), c[i]:detach(), ("Paged%s %s: parameter %d"):format(class, dtype, i)) end
      local _, window = next(paged.paging:stats().windows)
      local bytes = left.states * 120001 * (class:find "32" and 4 or 1) -- of the largest parameter
      assert(paged.paging.tiers.host:used() > bytes and window.peak_bytes <= bytes + 512 + opts.page_budget, window.peak_bytes)
    end
  end
end

for _, bad in ipairs { 0 / 0, 1 / 0, -1 / 0 } do -- a gradient that is not finite: the same elements are lost, and their block of a state
  local function lost(device)
    local p = drawn(21, 8192):to(device):requires_grad_()
    local o = accel.optim.AdamW8bit({ p }, { lr = 0.01 })
    for step = 1, 2 do
      local g = drawn(21 + step, 8192)
      if step == 1 then g[300] = bad end
      p.grad = g:to(device)
      o:step()
    end
    return p:detach():to "cpu"
  end
  local a, b = lost "cpu", lost "cuda"
  assert(not a:narrow(1, 257, 256):isfinite():any():item() and a:narrow(1, 513, 512):isfinite():all():item(), bad)
  same(a:isfinite(), b:isfinite(), "8 bits: finite parameters")
  same(accel.where(a:isfinite(), a, 0), accel.where(b:isfinite(), b, 0), "8 bits: parameters")
end

do -- parameters that come to the device after the optimizer was made, as prepare moves them: their states are paged all the same
  local core = require "accel.parallel.core"
  local p = drawn(9, 400, 300):requires_grad_()
  local o = accel.optim.PagedLion8bit { p }
  core.replace(p, p:detach():to "cuda")
  p.grad = drawn(10, 400, 300):to "cuda"
  o:step()
  assert(p.device:find "cuda" and o.paging and o.paging.tiers.host:used() >= 400 * 300)
end

do -- a step with quantised weights, LoRA-like, and AdamW8bit is recorded: no part of it waits for the host
  local function run(recorded)
    accel.manual_seed(3)
    local w4, w8 = drawn(1, 64, 64):quantize_4bit("nf4", 64, true):to "cuda", drawn(2, 64, 64):quantize_int8():to "cuda"
    local a = drawn(3, 64, 64):to("cuda"):requires_grad_()
    local o = accel.optim.AdamW8bit({ a }, { lr = 0.01, min_8bit_size = 1 })
    local function step(batch)
      o:zero_grad()
      local h = accel.linear_quantized(batch.x, w4) + batch.x:matmul(a)
      local loss = accel.linear_quantized(h, w8, nil, 6.0):pow(2):mean()
      loss:backward()
      o:step()
      return loss
    end
    local call = recorded and accel.graph(step) or step
    local last, batches = nil, {}
    for i = 1, 6 do batches[i] = drawn(10 + i, 3, 64):to "cuda" end -- here: another seed would be another step
    for i = 1, 6 do last = call { x = batches[i] } end
    if recorded then assert(call.replays >= 2 and call.reason == nil, ("%d %s"):format(call.replays, call.reason)) end
    return last:detach(), a:detach()
  end
  local loss, a = run(false)
  local again, b = run(true)
  same(loss, again, "loss of a recorded step")
  same(a, b, "parameter of a recorded step")
end

do -- a whole model: greedy tokens of the CPU's
  accel.manual_seed(4)
  local model = accel.models.Llama { vocab_size = 64, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 2, num_attention_heads = 4,
    num_key_value_heads = 2, max_position_embeddings = 64 }
  local weights = os.getenv "ACCEL_TEST_TMP" .. "/weights.safetensors"
  assert(accel.save(weights, model:state_dict()))
  for _, config in ipairs { { load_in_8bit = true }, { load_in_4bit = true, bnb_4bit_quant_type = "nf4", bnb_4bit_use_double_quant = true } } do
    local copy = accel.quant.load_and_quantize_model(accel.models.Llama(model.config, { device = "meta" }),
      accel.BnbQuantizationConfig(config), { weights_location = weights, device_map = { [""] = "cpu" } })
    local ids = accel.tensor({ { 3, 9, 27, 17 } }, { dtype = "i64", device = "cpu" })
    local function tokens(device)
      copy:to(device)
      local out = copy:generate { input_ids = ids:to(device), max_new_tokens = 8, do_sample = false }
      return accel.json.encode(out)
    end
    local want = tokens "cpu"
    assert(tokens "cuda" == want, want)
  end
end
suite.finish()
