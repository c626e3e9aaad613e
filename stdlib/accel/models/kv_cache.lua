--- models.KVCache: keys and values of past tokens, so that generation computes one position a step. Made by
--- model:new_cache(batch, length) and handed to forward, which appends to it.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.models.KVCache
---@field past integer tokens held
---@field length integer tokens that fit
local KVCache = class("accel.models.KVCache")

---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}
---@param opts? {dtype: string?, device: string?}
function KVCache:init(layers, shape, opts)
  self.past, self.length, self.keys, self.values = 0, shape[3], {}, {}
  for i = 1, layers do
    self.keys[i], self.values[i] = accel.zeros(shape, opts), accel.zeros(shape, opts)
  end
end

--- Appends keys and values [batch, heads, t, head_dim] of one layer; returns all up to now. `advance`
--- counts them.
function KVCache:append(layer, k, v)
  local t = k.shape[3]
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
function KVCache:reset() self.past = 0 end

--- The mask for t new tokens behind the past ones, [t, past + t]; nil where none is needed or is_causal
--- says it all.
function KVCache:mask(t, device)
  if t == 1 or self.past == 0 then return nil end
  local at = accel.arange(self.past, self.past + t, { device = device }):unsqueeze(2)
  return accel.arange(self.past + t, { device = device }):unsqueeze(1):le(at)
end

return KVCache
