--- models.KVCache: keys and values of past tokens, so that generation computes one position a step. Made by
--- model:new_cache(batch, length) and handed to forward, which appends to it.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- example: local kv, c = accel.ones(1, 2, 3, 4), accel.models.KVCache(1, { 1, 2, 8, 4 })
---   local k = c:append(1, kv, kv) c:advance(3) return k.shape, c.past --> { 1, 2, 3, 4 }, 3
---@class accel.models.KVCache
---@field past integer tokens held
---@field length integer tokens that fit
---@field cross table<integer, accel.Tensor[]> keys and values of an encoder's output, by layer
local KVCache = class("accel.models.KVCache")

---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}
---@param opts? {dtype: string?, device: string?}
function KVCache:init(layers, shape, opts)
  self.past, self.length, self.keys, self.values, self.cross = 0, shape[3], {}, {}, {}
  for i = 1, layers do
    self.keys[i], self.values[i] = accel.zeros(shape, opts), accel.zeros(shape, opts)
  end
end

--- Appends keys and values [batch, heads, t, head_dim] of one layer; returns all up to now. `advance`
--- counts them.
function KVCache:append(layer, k, v)
  local shape, held = k.shape, self.keys[layer].shape
  local t = shape[3]
  if shape[1] ~= held[1] then raise("KVCache: made for a batch of %d, got %d rows", held[1], shape[1]) end
  if k.requires_grad or v.requires_grad then
    raise "KVCache: a cache holds values without gradients: call the model inside accel.no_grad()"
  end
  if self.past + t > self.length then
    raise("KVCache: %d tokens do not fit behind %d of %d", t, self.past, self.length)
  end
  self.keys[layer]:narrow(3, self.past + 1, t):copy_(k)
  self.values[layer]:narrow(3, self.past + 1, t):copy_(v)
  local n = self.past + t
  return self.keys[layer]:narrow(3, 1, n), self.values[layer]:narrow(3, 1, n)
end

--- Called once per forward, after the last layer.
function KVCache:advance(t) self.past = self.past + t end

--- Forgets everything.
function KVCache:reset() self.past, self.cross = 0, {} end

return KVCache
