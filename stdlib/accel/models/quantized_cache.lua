--- models.QuantizedCache: keys and values as int8, with one scale per token and head: half the memory of bf16.
local KVCache = require "accel.models.kv_cache"
local accel = require "accel"
local options = require "accel.util.options"

local attention = accel.scaled_dot_product_attention

--- example: local c, kv = accel.models.QuantizedCache(1, { 1, 1, 8, 4 }), accel.tensor { 1.0, -2, 3, 4 }:view(1, 1, 1, 4)
---   local k = c:append(1, kv, kv) return (k - kv):abs():max():item() < 4 / 254 --> true
---@class accel.models.QuantizedCache : accel.models.KVCache
local QuantizedCache = KVCache:extend("accel.models.QuantizedCache")

---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}
---@param opts? {dtype: string?, device: string?} dtype: of append's results
function QuantizedCache:init(layers, shape, opts, ...)
  opts = options("QuantizedCache", opts, { dtype = options.none, device = options.none }, ...)
  KVCache.init(self, layers, shape, { dtype = "i8", device = opts.device })
  self.dtype, self.key_scales, self.value_scales = opts.dtype or "f32", {}, {}
  local one = { shape[1], shape[2], shape[3], 1 }
  for i = 1, layers do
    self.key_scales[i] = accel.zeros(one, { dtype = "f32", device = opts.device })
    self.value_scales[i] = accel.zeros(one, { dtype = "f32", device = opts.device })
  end
end

function QuantizedCache:buffers()
  local out = KVCache.buffers(self)
  for i = 1, self.layers do
    out[#out + 1], out[#out + 2] = { self.key_scales, i }, { self.value_scales, i }
  end
  return out
end

--- x as q * scale: the largest of each token and head is 127.
local function store(x, q, scale, past, t)
  x = x:to("f32")
  local s = x:abs():amax(4, true) / 127
  scale:narrow(3, past + 1, t):copy_(s)
  q:narrow(3, past + 1, t):copy_((x / s:maximum(1e-30)):round())
end

function QuantizedCache:append(layer, k, v)
  local t, past = self:check(k, v), self.past
  local keys, values, key_scales, value_scales = self.keys[layer], self.values[layer], self.key_scales[layer],
    self.value_scales[layer]
  store(k, keys, key_scales, past, t)
  store(v, values, value_scales, past, t)
  local n = past + t
  return (keys:narrow(3, 1, n):to("f32") * key_scales:narrow(3, 1, n)):to(self.dtype),
    (values:narrow(3, 1, n):to("f32") * value_scales:narrow(3, 1, n)):to(self.dtype)
end

function QuantizedCache:attend(layer, q, k, v, opts)
  k, v = self:append(layer, k, v)
  return attention(q, k:to(q.dtype), v:to(q.dtype), opts)
end

return QuantizedCache
