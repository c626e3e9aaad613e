-- Attention of one query, as decoding asks for: equal to that in f64 for every dtype, lengths around the chunks, shared heads, masks,
-- rows that see nothing; the same with any number of threads. tier: every change, memory
local accel = require "accel"
accel.manual_seed(1)
local attention = accel.scaled_dot_product_attention
local bars = { f32 = 2e-6, bf16 = 2e-2, f16 = 2e-3 }

local function check(dtype, tk, heads, d, mask)
  local q, v = accel.randn(3, 6, 1, d):to(dtype), accel.randn(3, heads, tk, d):to(dtype)
  local k = accel.randn(3, heads, tk + 3, d):to(dtype):narrow(3, 2, tk) -- with a stride, as a cache has
  local o = { enable_gqa = true, is_causal = mask == "causal" }
  if mask == "bool" then o.attn_mask = accel.rand(3, 1, 1, tk):lt(0.7) end
  if mask == "add" then o.attn_mask = accel.randn(3, 6, 1, tk):to(dtype) end
  local got = attention(q, k, v, o):to "f64"
  if mask == "add" then o.attn_mask = o.attn_mask:to "f64" end
  local off = (got - attention(q:to "f64", k:to "f64", v:to "f64", o)):abs():max():item()
  assert(off <= bars[dtype], ("%s, %d keys, %d heads, width %d, %s: %g"):format(dtype, tk, heads, d, mask, off))
end

local sample = dofile((arg[0]:match "^.*/" or "") .. "../../../support/sample.lua")
local take = sample.one_of(1, 7) -- all 648 take minutes under a sanitizer
for dtype in accel.pairs(bars) do
  for _, tk in ipairs { 1, 7, 255, 256, 257, 700 } do
    for _, heads in ipairs { 1, 2, 6 } do -- six, three and one query heads to each: groups of four, and the rest
      for _, d in ipairs { 5, 64, 100 } do
        for _, mask in ipairs { "none", "bool", "add", "causal" } do
          if take() then check(dtype, tk, heads, d, mask) end
        end
      end
    end
  end
end

do -- nothing to see gives zeros, one chunk of nothing before others changes nothing, NaN comes through
  local q, k, v = accel.randn(1, 2, 1, 16), accel.randn(1, 2, 600, 16), accel.randn(1, 2, 600, 16)
  local none = accel.zeros(1, 1, 1, 600):ne(0)
  assert(attention(q, k, v, { attn_mask = none }):abs():max():item() == 0)
  local late = accel.arange(600):ge(300):view(1, 1, 1, 600)
  local want = attention(q, k:narrow(3, 301, 300), v:narrow(3, 301, 300))
  assert((attention(q, k, v, { attn_mask = late }) - want):abs():max():item() < 1e-6)
  local v_inf = v:clone() -- behind a mask a value is not looked at
  v_inf:narrow(3, 1, 290):fill_(1 / 0)
  assert(accel.equal(attention(q, k, v_inf, { attn_mask = late }), attention(q, k, v, { attn_mask = late })))
  k:select(3, 5):fill_(0 / 0)
  assert(attention(q, k, v):isnan():all():item() == true)
end

do -- gradients of one query go through what forward kept
  local q = accel.randn(1, 2, 1, 16, { requires_grad = true })
  local k, v = accel.randn(1, 2, 300, 16, { requires_grad = true }), accel.randn(1, 2, 300, 16, { requires_grad = true })
  attention(q, k, v):square():sum():backward()
  local grads = { q.grad:to "f64", k.grad:to "f64", v.grad:to "f64" }
  local wide = { q:detach():to "f64", k:detach():to "f64", v:detach():to "f64" }
  for _, t in ipairs(wide) do t:requires_grad_() end
  attention(table.unpack(wide)):square():sum():backward()
  for i, t in ipairs(wide) do assert((grads[i] - t.grad):abs():max():item() < 1e-5, i) end
end
