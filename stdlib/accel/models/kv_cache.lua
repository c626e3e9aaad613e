--- models.KVCache: keys and values of past tokens, so that generation computes one position a step. Made by
--- model:new_cache(batch, length) and handed to forward, whose attention layers call `attend`.
---
--- This one has its memory from the start ("static"). This one allocates its memory at the start ("static"). Subclasses:
--- DynamicCache grows with the text, SlidingWindowCache keeps the window of attention, QuantizedCache holds int8.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local attention = accel.scaled_dot_product_attention

--- example: local kv, c = accel.ones(1, 2, 3, 4), accel.models.KVCache(1, { 1, 2, 8, 4 })
---   local k = c:append(1, kv, kv) c:advance(3) return k.shape, c.past --> { 1, 2, 3, 4 }, 3
---@class accel.models.KVCache : accel.util.class.Object
---@field past integer tokens seen
---@field length number tokens that fit
---@field batch integer
---@field cross table<integer, accel.Tensor[]> keys and values of an encoder's output, by layer
local KVCache = class("accel.models.KVCache")

---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}
---@param opts? {dtype: string?, device: string?}
function KVCache:init(layers, shape, opts, ...)
  opts = options("KVCache", opts, { dtype = options.none, device = options.none }, ...)
  self.past, self.batch, self.length, self.keys, self.values, self.cross = 0, shape[1], shape[3], {}, {}, {}
  self.layers = layers
  for i = 1, layers do
    self.keys[i], self.values[i] = accel.zeros(shape, opts), accel.zeros(shape, opts)
  end
end

--- Keys visible to attention before new ones. Fewer than `past` if a window drops some.
---@return integer
function KVCache:held() return self.past end

--- Raises unless new keys [batch, heads, t, head_dim] can be appended.
---@param k accel.Tensor new keys
---@param v accel.Tensor new values
function KVCache:check(k, v)
  local shape = k.shape
  if shape[1] ~= self.batch then raise("KVCache: made for a batch of %d, got %d rows", self.batch, shape[1]) end
  if k.requires_grad or v.requires_grad then
    raise "KVCache: a cache holds values without gradients: call the model inside accel.no_grad()"
  end
  if self.past + shape[3] > self.length then
    raise("KVCache: %d tokens do not fit after %d of %d", shape[3], self.past, self.length)
  end
  return shape[3]
end

--- Appends keys and values [batch, heads, t, head_dim] of one layer. Returns all up to now. `advance` counts them.
---@param layer integer position of the layer
---@param k accel.Tensor new keys
---@param v accel.Tensor new values
---@return accel.Tensor, accel.Tensor
function KVCache:append(layer, k, v)
  local t, past, keys, values = self:check(k, v), self.past, self.keys[layer], self.values[layer]
  keys:narrow(3, past + 1, t):copy_(k)
  values:narrow(3, past + 1, t):copy_(v)
  return keys:narrow(3, 1, past + t), values:narrow(3, 1, past + t)
end

--- Attention of q [batch, heads, t, head_dim] to all keys up to now, after k and v are appended. If the cache holds a
--- narrower dtype than q, the products use that dtype and are summed in f32.
---@param opts table scaled_dot_product_attention's
---@param layer integer position of the layer
---@param q accel.Tensor queries
---@param k accel.Tensor new keys
---@param v accel.Tensor new values
---@return accel.Tensor
function KVCache:attend(layer, q, k, v, opts, ...)
  check.surplus("KVCache:attend", ...)
  k, v = self:append(layer, k, v)
  opts = opts or {}
  if k.dtype == q.dtype then return attention(q, k, v, opts) end
  local mask = opts.attn_mask
  if mask and mask.dtype ~= "bool" then opts.attn_mask = mask:to(k.dtype) end
  local y = attention(q:to(k.dtype), k, v, opts):to(q.dtype)
  opts.attn_mask = mask
  return y
end

--- Called once per forward, after the last layer.
---@param t integer number of new positions
function KVCache:advance(t) self.past = self.past + t end

--- Forgets everything.
function KVCache:reset() self.past, self.cross = 0, {} end

--- Drops all tokens after the first n.
---@param n integer
function KVCache:crop(n)
  if n < 0 or n > self.past then raise("KVCache: cannot go back to %d tokens of %d", n, self.past) end
  self.past = n
end

--- The part of a buffer that is in use.
---@param buffer accel.Tensor
function KVCache:used(buffer) return buffer:narrow(3, 1, self.past) end

--- Every buffer of this cache as (list, index) for `reorder` and `expand`.
function KVCache:buffers()
  local out = {}
  for i = 1, self.layers do
    if self.keys[i] then
      out[#out + 1], out[#out + 2] = { self.keys, i }, { self.values, i }
    end
  end
  return out
end

--- Row i becomes the former row order[i] (0-based), for continuing beams. Rows change places within the copies of one
--- prompt, so that the encoder's keys stay.
---@param order accel.Tensor i64 [batch]
function KVCache:reorder(order)
  for _, at in ipairs(self:buffers()) do
    local part = self:used(at[1][at[2]])
    part:copy_(part:index_select(1, order))
  end
end

--- Every row `copies` times in a row.
---@param copies integer
function KVCache:expand(copies)
  self.batch = self.batch * copies
  for _, at in ipairs(self:buffers()) do
    local old = at[1][at[2]]
    local shape = old.shape
    shape[1] = self.batch
    local new = accel.empty(shape, { dtype = old.dtype, device = old.device })
    self:used(new):copy_(self:used(old):repeat_interleave(copies, 1))
    at[1][at[2]] = new
    old:release()
  end
  for _, pair in next, self.cross do
    pair[1], pair[2] = pair[1]:repeat_interleave(copies, 1), pair[2]:repeat_interleave(copies, 1)
  end
end

--- Bytes of its buffers.
---@return integer
function KVCache:nbytes()
  local n = 0
  for _, at in ipairs(self:buffers()) do
    local t = at[1][at[2]]
    n = n + t:numel() * t:element_size()
  end
  return n
end

return KVCache
