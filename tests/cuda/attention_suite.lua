-- Attention on the CUDA device against the CPU: shapes that cross the tiles of its kernels, in every dtype that has kernels of its own.
-- Small shapes and every option once more: ops_suite.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"

local function floats(shape, dtype, scale)
  local t = accel.randn(shape, { dtype = "f32" })
  return (scale and t * scale or t):to(dtype)
end

-- q, k, v as (b, t, h, d) in memory seen as (b, h, t, d), as a model has them; or contiguous.
local function inputs(c, dtype)
  local function one(h, t)
    if c.contiguous then return floats({ c.b, h, t, c.d }, dtype) end
    return floats({ c.b, t, h, c.d }, dtype):transpose(2, 3)
  end
  local q, k, v = one(c.h, c.tq), one(c.hk or c.h, c.tk or c.tq), one(c.hk or c.h, c.tk or c.tq)
  local mask, slopes
  if c.mask == "bool" then mask = accel.rand({ c.b, 1, c.tq, c.tk or c.tq }):gt(0.3) end
  if c.mask == "rows" then -- some queries see nothing at all
    mask = accel.rand({ c.tq, c.tk or c.tq }):gt(0.3):logical_and(accel.arange(c.tq):view(-1, 1):remainder(3):gt(0))
  end
  if c.mask == "added" then mask = floats({ 1, c.h, 1, c.tk or c.tq }, dtype) end
  if c.slopes then slopes = accel.rand({ c.h }) end
  return q, k, v, mask, slopes
end

local function outcome(c, dtype, device)
  accel.manual_seed(3)
  local q, k, v, mask, slopes = inputs(c, dtype)
  local g = floats({ c.b, c.h, c.tq, c.d }, dtype)
  local function there(t) return t and t:detach():to(device) end
  q, k, v = there(q), there(k), there(v)
  for _, t in ipairs { q, k, v } do t.requires_grad = true end
  accel.manual_seed(4)
  local y = accel.scaled_dot_product_attention(q, k, v, {
    attn_mask = there(mask), alibi_slopes = there(slopes), is_causal = c.causal, dropout_p = c.drop,
    scale = c.scale, enable_gqa = c.hk ~= nil,
  })
  local grads = accel.grad({ y }, { q, k, v }, { grad_outputs = { there(g) } })
  local out = {}
  for i, t in ipairs { y, grads[1], grads[2], grads[3] } do out[i] = t:detach():to("cpu") end
  return out
end

local cases = {
  { b = 2, h = 2, tq = 33, d = 64, causal = true },
  { b = 1, h = 4, hk = 2, tq = 70, d = 64, causal = true, contiguous = true },
  { b = 1, h = 2, tq = 40, tk = 97, d = 128 },
  { b = 1, h = 1, tq = 97, tk = 40, d = 128, causal = true },
  { b = 1, h = 2, tq = 65, d = 80, mask = "bool" },
  { b = 2, h = 2, tq = 37, tk = 36, d = 40, drop = 0.3 },
  { b = 1, h = 2, tq = 34, tk = 35, d = 64, drop = 0.3, causal = true },
  { b = 1, h = 2, tq = 36, d = 128, drop = 0.2, slopes = true },
  { b = 1, h = 2, tq = 50, d = 128, mask = "rows" },
  { b = 1, h = 2, tq = 50, d = 64, mask = "rows", drop = 0.1 },
  { b = 1, h = 4, hk = 1, tq = 20, tk = 45, d = 33, mask = "added", slopes = true },
  { b = 1, h = 2, tq = 1, tk = 130, d = 64 },
  { b = 1, h = 2, tq = 130, tk = 1, d = 64, causal = true, floor = 1 }, -- one key: the weights do not depend on anything
  { b = 1, h = 2, tq = 20, d = 64, scale = -0.2 },
  { b = 1, h = 2, tq = 20, d = 64, scale = 0, causal = true },
  { b = 1, h = 2, tq = 34, d = 160, causal = true },
  { b = 1, h = 1, tq = 9, d = 1 },
}

local n = 0
for i, c in ipairs(cases) do
  for _, dtype in ipairs { "bf16", "f16", "f32", "f64" } do
    local want, got = outcome(c, dtype, "cpu"), outcome(c, dtype, "cuda")
    n = n + 1
    for j, name in ipairs { "y", "dq", "dk", "dv" } do
      suite.expect(("case %d, %s: %s"):format(i, dtype, name), got[j], want[j], { floor = c.floor })
    end
    collectgarbage()
  end
end

-- The same bits every time.
local twice = { b = 1, h = 4, hk = 2, tq = 70, d = 64, causal = true }
local one, two = outcome(twice, "bf16", "cuda"), outcome(twice, "bf16", "cuda")
for j = 1, 4 do
  if one[j]:contiguous():to_bytes() ~= two[j]:contiguous():to_bytes() then
    suite.failed = suite.failed + 1
    print("FAIL attention gives other bits the second time")
  end
end
one, two = nil, nil
suite.finish(n)
