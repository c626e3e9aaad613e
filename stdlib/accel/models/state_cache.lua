--- A cache for models whose layers keep a state of fixed size in place of keys and values (Mamba). It has the parts of KVCache that
--- generation uses. States are tables of tensors by layer, [batch, ...] each.
local KVCache = require "accel.models.kv_cache"
local raise = require "accel.util.raise"

---@class accel.models.StateCache : accel.models.KVCache
---@field states table<integer, table<string, accel.Tensor>>
local StateCache = KVCache:extend("accel.models.StateCache")

---@param batch integer
function StateCache:init(batch)
  KVCache.init(self, 0, { batch, 1, 1, 1 })
  self.length, self.states = math.huge, {}
end

--- Rows change places, as beams do.
---@param order accel.Tensor i64 [batch]
function StateCache:reorder(order)
  for _, state in next, self.states do
    for key, t in next, state do state[key] = t:index_select(1, order) end
  end
end

---@param copies integer
function StateCache:expand(copies)
  self.batch = self.batch * copies
  for _, state in next, self.states do
    for key, t in next, state do state[key] = t:repeat_interleave(copies, 1) end
  end
end

function StateCache:reset()
  self.past, self.states = 0, {}
end

function StateCache:crop(n)
  if n ~= self.past then raise("StateCache: a state cannot go back to %d tokens of %d", n, self.past) end
end

function StateCache:nbytes()
  local n = 0
  for _, state in next, self.states do
    for _, t in next, state do n = n + t:numel() * t:element_size() end
  end
  return n
end

return StateCache
