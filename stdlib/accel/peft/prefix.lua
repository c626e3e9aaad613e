--- Prefix tuning: a cache whose keys and values of past tokens are learned. Used by prompt.lua.
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"

local M = {}

--- A cache of learned tokens, through which gradients flow. It holds nothing of the tokens after them.
---@class accel.peft.PrefixCache : accel.models.KVCache
local PrefixCache = KVCache:extend("accel.peft.PrefixCache")

---@param rows accel.Tensor [n, layers * 2 * heads * head_dim]
---@param config accel.peft.PrefixTuningConfig
---@param batch integer
function PrefixCache:init(rows, config, batch)
  KVCache.init(self, 0, { batch, config.num_attention_heads, math.maxinteger, config.token_dim // config.num_attention_heads })
  self.past = rows.shape[1]
  self.prefix = M.split(rows, config)
end

function PrefixCache:append(layer, k, v)
  local own = self.prefix[layer]
  local function joined(prefix, t)
    local shape = prefix.shape
    shape[1] = t.shape[1]
    return accel.cat({ prefix:to(t.dtype):expand(shape), t }, 3)
  end
  return joined(own[1], k), joined(own[2], v)
end

function PrefixCache:advance() end

--- Keys and values of each layer, [1, heads, n, head_dim].
---@param rows accel.Tensor
---@param config accel.peft.PrefixTuningConfig
---@return accel.Tensor[][]
function M.split(rows, config)
  local heads, n, out = config.num_attention_heads, rows.shape[1], {}
  local all = rows:reshape(n, config.num_layers * 2, heads, -1):permute(2, 3, 1, 4):unsqueeze(2) -- [layers * 2, 1, heads, n, head_dim]
  for i = 1, config.num_layers do out[i] = { all:select(1, 2 * i - 1), all:select(1, 2 * i) } end
  return out
end

M.Cache = PrefixCache

--- Puts the prefix into an empty cache.
---@param cache accel.models.KVCache
---@param rows accel.Tensor
---@param config accel.peft.PrefixTuningConfig
function M.fill(cache, rows, config)
  local _ <close> = accel.no_grad()
  for layer, own in ipairs(M.split(rows:detach(), config)) do
    local shape = own[1].shape
    shape[1] = cache.batch
    cache:append(layer, own[1]:expand(shape), own[2]:expand(shape))
  end
  cache:advance(rows.shape[1])
end

return M
