--- models.SlidingWindowCache: keys and values of the last tokens only, for models whose attention looks at a window
--- (config.sliding_window). Memory follows from the window, not from the text.
local KVCache = require "accel.models.kv_cache"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: local c = accel.models.SlidingWindowCache(1, { 1, 2, 100, 4 }, { window = 4 })
---   for _ = 1, 9 do local kv = accel.ones(1, 2, 1, 4) c:append(1, kv, kv) c:advance(1) end
---   return c.past, c:held() --> 9, 3
---@class accel.models.SlidingWindowCache : accel.models.KVCache
---@field window integer
local SlidingWindowCache = KVCache:extend("accel.models.SlidingWindowCache")

--- A query sees itself and window - 1 keys before it. The buffer holds twice as many, or the longest prompt, so that the
--- keys move to its front once in a while and not at each token.
---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}
---@param opts {window: integer, dtype: string?, device: string?}
function SlidingWindowCache:init(layers, shape, opts, ...)
  opts = options("SlidingWindowCache", opts, { window = options.none, dtype = options.none, device = options.none }, ...)
  self.window = check.positive("SlidingWindowCache", "window", opts.window)
  local room = math.min(shape[3], 2 * self.window + 64)
  KVCache.init(self, layers, { shape[1], shape[2], room, shape[4] }, { dtype = opts.dtype, device = opts.device })
  self.length, self.room, self.first = shape[3], room, 0 -- first: tokens that are gone from the front
end

function SlidingWindowCache:held() return math.min(self.past, self.window - 1) end

function SlidingWindowCache:used(buffer) return buffer:narrow(3, 1, self.past - self.first) end

--- Moves the keys that are still seen to the front, in every layer, before the first one appends.
function SlidingWindowCache:compact()
  local keep = self:held()
  for _, at in ipairs(self:buffers()) do
    local buffer = at[1][at[2]]
    local from = self.past - self.first - keep
    if keep > 0 and from > 0 then buffer:narrow(3, 1, keep):copy_(buffer:narrow(3, from + 1, keep):clone()) end
  end
  self.first = self.past - keep
end

--- Appends. Returns the keys visible to the first of the new tokens, and the new ones.
---@param layer integer position of the layer
---@param k accel.Tensor new keys
---@param v accel.Tensor new values
function SlidingWindowCache:append(layer, k, v)
  local t, keep = self:check(k, v), self:held()
  if t > self.room - keep then return self:append_long(layer, k, v, t, keep) end
  if self.past - self.first + t > self.room then self:compact() end
  local at = self.past - self.first
  local keys, values = self.keys[layer], self.values[layer]
  keys:narrow(3, at + 1, t):copy_(k)
  values:narrow(3, at + 1, t):copy_(v)
  return keys:narrow(3, at - keep + 1, keep + t), values:narrow(3, at - keep + 1, keep + t)
end

--- A text longer than the buffer, as prompts are: attention takes it as it is, and its end stays.
---@param layer integer position of the layer
---@param k accel.Tensor new keys
---@param v accel.Tensor new values
---@param t integer number of new positions
---@param keep integer number of positions that stay
function SlidingWindowCache:append_long(layer, k, v, t, keep)
  local accel = require "accel"
  local keys, values = self.keys[layer], self.values[layer]
  local at, stay = self.past - self.first, self.window - 1
  local all_k, all_v = k:to(keys.dtype), v:to(values.dtype)
  if keep > 0 then
    all_k = accel.cat({ keys:narrow(3, at - keep + 1, keep), all_k }, 3)
    all_v = accel.cat({ values:narrow(3, at - keep + 1, keep), all_v }, 3)
  end
  if stay > 0 then
    keys:narrow(3, 1, stay):copy_(all_k:narrow(3, keep + t - stay + 1, stay))
    values:narrow(3, 1, stay):copy_(all_v:narrow(3, keep + t - stay + 1, stay))
  end
  self.pending = self.past + t - stay
  return all_k, all_v
end

function SlidingWindowCache:advance(t)
  KVCache.advance(self, t)
  if self.pending then self.first, self.pending = self.pending, nil end
end

function SlidingWindowCache:reset()
  KVCache.reset(self)
  self.first = 0
end

function SlidingWindowCache:crop(n)
  if n < self.first + math.min(n, self.window - 1) and n < self.past then
    raise("SlidingWindowCache: the keys before %d tokens are dropped: it holds %d .. %d", n, self.first + 1, self.past)
  end
  KVCache.crop(self, n)
end

return SlidingWindowCache
