--- models.DynamicCache: a cache of keys and values that grows with the text. Its memory doubles when it is full, so that an
--- appended token costs no copy of the others on average.
local KVCache = require "accel.models.kv_cache"
local accel = require "accel"

local FIRST <const> = 64

--- example: local kv, c = accel.ones(1, 2, 3, 4), accel.models.DynamicCache(1, { 1, 2, 8, 4 })
---   c:append(1, kv, kv) c:advance(3) return c.past, c:nbytes() --> 3, 512
---@class accel.models.DynamicCache : accel.models.KVCache
local DynamicCache = KVCache:extend("accel.models.DynamicCache")

---@param layers integer
---@param shape integer[] {batch, kv_heads, length, head_dim}: it never grows beyond length
---@param opts? {dtype: string?, device: string?}
function DynamicCache:init(layers, shape, opts, ...)
  KVCache.init(self, 0, shape, opts, ...)
  self.layers, self.opts, self.capacity = layers, opts, {}
end

local function grown(self, old, shape, capacity)
  local new = accel.empty({ self.batch, shape[2], capacity, shape[4] }, self.opts)
  if old then
    if self.past > 0 then self:used(new):copy_(self:used(old)) end
    old:release()
  end
  return new
end

function DynamicCache:append(layer, k, v)
  local need, held = self.past + k.shape[3], self.capacity[layer] or 0
  if need > held and need <= self.length and k.shape[1] == self.batch then
    local capacity, shape = math.max(FIRST, held), k.shape
    while capacity < need do capacity = capacity * 2 end
    capacity = math.min(capacity, self.length)
    self.keys[layer] = grown(self, self.keys[layer], shape, capacity)
    self.values[layer] = grown(self, self.values[layer], shape, capacity)
    self.capacity[layer] = capacity
  end
  return KVCache.append(self, layer, k, v)
end

return DynamicCache
