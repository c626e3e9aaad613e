-- Where tokens stand: rotary embedding with given positions, frequencies and scalings; linear biases of attention
-- against an added mask.
local accel = require "accel"
local alibi_slopes = require "accel.nn.alibi"
package.path = arg[0]:match("^(.*)/host/ops/attention/[^/]*$") .. "/support/?.lua;" .. package.path
local numbers = require "numbers"

local function close(got, want, bar, what, floor)
  local e, why = numbers.distance(numbers.flat(got), numbers.flat(want), floor)
  assert(e <= bar, ("%s: error %.3g, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or ""))
end
local function make(seed, shape, dtype)
  local u, v = numbers.uniform(seed), {}
  for i = 1, numbers.numel(shape) do v[i] = 4 * u() - 2 end
  return numbers.tensor(v, shape, dtype or "f64")
end
local function says(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do
    assert(tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  end
end

-- ---- rope ----
local x = make(1, { 2, 3, 20, 8 }, "f32")
for _, interleaved in ipairs { false, true } do
  local whole = make(2, { 1, 3, 600, 8 }, "f32"):rope { interleaved = interleaved }
  close(whole:narrow(3, 8, 20), make(2, { 1, 3, 600, 8 }, "f32"):narrow(3, 8, 20)
    :rope { interleaved = interleaved, positions = accel.arange(7, 27) }, 0, "positions in a row are an offset")
  -- a position's turn does not depend on the company it is in: near, far, alone, per sequence
  local near, far = accel.randint(0, 60, { 20 }), accel.randint(0, 1000000, { 20 })
  local both = x:rope { interleaved = interleaved, positions = accel.stack({ near, far }, 1) }
  close(both[1], x[1]:rope { interleaved = interleaved, positions = near }, 0, "positions close together")
  close(both[2], x[2]:rope { interleaved = interleaved, positions = far:to("i32") }, 0, "positions far apart")
  for t = 1, 20 do
    close(both[2]:narrow(2, t, 1), x[2]:narrow(2, t, 1):rope { interleaved = interleaved, offset = far[t]:item() }, 0,
      "one position")
  end
end

-- Frequencies by hand: two pairs.
do
  local y = accel.tensor({ { 1.0, 2.0, 0.0, 0.0 } }, { dtype = "f64" })
    :rope { inv_freq = accel.tensor({ 0.5, 0.25 }, { dtype = "f64" }), offset = 3 }:tolist()[1]
  assert(math.abs(y[1] - math.cos(1.5)) < 1e-15 and math.abs(y[3] - math.sin(1.5)) < 1e-15)
  assert(math.abs(y[2] - 2 * math.cos(0.75)) < 1e-15 and math.abs(y[4] - 2 * math.sin(0.75)) < 1e-15)
end
-- Scalings as frequencies. Llama 3: of 8 frequencies 1 / 10^(i / 2), a context of 100 has room for 15.9 / 10^(i / 2)
-- turns.
do
  local theta, linear, llama = 10 ^ 4, {}, {}
  for i = 0, 7 do
    local w = theta ^ (-i / 8)
    local turns = 100 * w / (2 * math.pi)
    local keep = math.min(1, math.max(0, (turns - 1) / 3))
    linear[i + 1], llama[i + 1] = w / 4, w * (keep + (1 - keep) / 8)
  end
  local z = make(3, { 40, 16 })
  local function given(w) return z:rope { inv_freq = accel.tensor(w, { dtype = "f64" }) } end
  close(z:rope { theta = theta, scaling = "linear", scaling_factor = 4 }, given(linear), 1e-13, "linear")
  close(z:rope { theta = theta, scaling = "llama3", scaling_factor = 8, original_max_position = 100 }, given(llama),
    1e-13, "llama3")
end

local z = accel.zeros
says("shape", { "rope", "positions", "(4)", "(2, 3, 5, 8)" }, accel.rope, z(2, 3, 5, 8), { positions = z(4):to("i64") })
says("shape", { "rope", "positions", "(3, 5)" }, accel.rope, z(2, 3, 5, 8), { positions = z(3, 5):to("i64") })
says("dtype", { "rope", "positions" }, accel.rope, z(2, 4), { positions = z(2) })
says("index_out_of_range", { "rope", "-1" }, accel.rope, z(2, 4), { positions = accel.tensor { 0, -1 } })
says("invalid_argument", { "offset and positions" }, accel.rope, z(2, 4),
  { positions = accel.tensor { 0, 1 }, offset = 1 })
says("shape", { "inv_freq", "(3)", "2 pairs" }, accel.rope, z(2, 4), { inv_freq = z(3) })
says("invalid_argument", { "inv_freq", "scaling" }, accel.rope, z(2, 4), { inv_freq = z(2), scaling = "linear" })
says("invalid_argument", { "scaling_factor", "0" }, accel.rope, z(2, 4), { scaling = "linear", scaling_factor = 0 })
says("invalid_argument", { "high_freq_factor 1" }, accel.rope, z(2, 4), { scaling = "llama3", high_freq_factor = 1 })

-- ---- ALiBi ----
close(alibi_slopes(8), accel.tensor { 0.5, 0.25, 0.125, 0.0625, 2 ^ -5, 2 ^ -6, 2 ^ -7, 2 ^ -8 }, 0, "8 slopes")
close(alibi_slopes(3), accel.tensor { 2 ^ -4, 2 ^ -8, 2 ^ -2 }, 0, "3 slopes")
assert(not pcall(alibi_slopes, 0) and not pcall(alibi_slopes, 2.5))

local function bias(slopes, tq, tk, causal)
  local i = accel.arange(tq):to("f64"):unsqueeze(2) + (causal and 0 or tk - tq)
  local j = accel.arange(tk):to("f64")
  local b = (i - j):abs() * slopes:to("f64"):view(-1, 1, 1) * -1
  return causal and b:masked_fill(j:gt(i), -math.huge) or b
end

for _, s in ipairs { { 2, 8, 2, 131, 131, true }, { 1, 3, 3, 70, 300, false }, { 2, 4, 1, 1, 65, false },
  { 1, 2, 2, 40, 40, false } } do
  local B, H, K, tq, tk, causal = table.unpack(s)
  local label = ("(%d, %d, %d, %d, %d)"):format(table.unpack(s, 1, 5))
  local slopes = alibi_slopes(H)
  local function leaves()
    local t = { make(1, { B, H, tq, 16 }), make(2, { B, K, tk, 16 }), make(3, { B, K, tk, 16 }) }
    for _, l in ipairs(t) do l.requires_grad = true end
    return t
  end
  local p, q = leaves(), leaves()
  local y = accel.scaled_dot_product_attention(p[1], p[2], p[3],
    { alibi_slopes = slopes, is_causal = causal, enable_gqa = true })
  local want = accel.scaled_dot_product_attention(q[1], q[2], q[3],
    { attn_mask = bias(slopes, tq, tk, causal):unsqueeze(1), enable_gqa = true })
  close(y, want, 1e-12, "linear biases " .. label)
  local cot = make(4, y.shape)
  local g = accel.grad(y, p, { grad_outputs = cot })
  local h = accel.grad(want, q, { grad_outputs = cot })
  for i = 1, 3 do close(g[i], h[i], 1e-11, ("gradient %d of linear biases %s"):format(i, label)) end
end
-- With a cache: the last query of a prompt is the query of its last step.
do
  local q, k, v = make(5, { 1, 4, 30, 8 }), make(6, { 1, 4, 30, 8 }), make(7, { 1, 4, 30, 8 })
  local slopes = { alibi_slopes = alibi_slopes(4) }
  local last = accel.scaled_dot_product_attention(q:narrow(3, 30, 1), k, v, slopes)
  slopes.is_causal = true
  close(last, accel.scaled_dot_product_attention(q, k, v, slopes):narrow(3, 30, 1), 1e-13, "the last step")
end
says("shape", { "alibi_slopes", "(3)", "4 heads" }, accel.scaled_dot_product_attention, z(1, 4, 2, 2), z(1, 4, 2, 2),
  z(1, 4, 2, 2), { alibi_slopes = z(3) })
says("dtype", { "alibi_slopes", "i64" }, accel.scaled_dot_product_attention, z(1, 1, 2, 2), z(1, 1, 2, 2),
  z(1, 1, 2, 2), { alibi_slopes = accel.tensor { 1 } })
