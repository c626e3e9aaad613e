--- Shared by the layers of a model during one forward pass: the cache, the positions of the new tokens, and their mask.
--- Also the masks themselves, for encoders.
---
--- A mask is bool and true for visible keys, [.., queries, keys], or a float that is added to the scores.
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"
local divided = require "accel.nn.divided"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local attention = accel.scaled_dot_product_attention

local M = {}

---@class accel.models.Context
---@field cache? accel.models.KVCache
---@field past integer tokens that the cache holds
---@field mask? accel.Tensor
---@field is_causal boolean mask is nil, and query i sees the keys 1 .. i
---@field position_ids? accel.Tensor [B, T] or [T]. nil: past, past + 1, ...

---@class accel.models.DecoderOptions
---@field cache? accel.models.KVCache
---@field attention_mask? accel.Tensor 1 for tokens, 0 for padding, [B, past + T]
---@field position_ids? accel.Tensor [B, T]
---@field labels? accel.Tensor [B, T], for models with a head
---@field logits_to_keep? integer logits of the last positions only, for models with a head

--- Which keys a query sees: those up to itself, and with a window only the last so many. [T, held + T]
---@param T integer
---@param held integer keys in front of the new ones
---@param window? integer
---@param device string
---@return accel.Tensor
function M.causal(T, held, window, device)
  local at = accel.arange(held, held + T, { device = device }):unsqueeze(2)
  local key = accel.arange(held + T, { device = device }):unsqueeze(1)
  local mask = key:le(at)
  if window then mask = mask * key:gt(at - window) end
  return mask
end

--- An attention_mask (1: a token, 0: padding) as it broadcasts to [B, heads, queries, keys]. Takes [B, keys],
--- [B, queries, keys], or four dimensions as they are (there also floats to add).
---@param who string
---@param mask? accel.Tensor
---@param B integer
---@param keys integer
---@return accel.Tensor?
function M.padding(who, mask, B, keys)
  if mask == nil then return nil end
  if not tensors.is_tensor(mask) then raise("%s: attention_mask must be a tensor, got %s", who, type(mask)) end
  local shape = mask.shape
  if #shape < 2 or #shape > 4 or (shape[1] ~= B and shape[1] ~= 1) or shape[#shape] ~= keys then
    raise("%s: attention_mask %s does not fit %d rows of %d tokens (expected [%d, %d])", who,
      tensors.shape_string(mask), B, keys, B, keys)
  end
  if #shape == 4 and tensors.is_floating(mask.dtype) then return mask end
  if mask.dtype ~= "bool" then mask = mask:ne(0) end
  if #shape == 2 then return mask:unsqueeze(2):unsqueeze(2) end
  return #shape == 3 and mask:unsqueeze(2) or mask
end

--- Both masks combined. Either may be nil.
---@param visible? accel.Tensor bool
---@param mask? accel.Tensor bool or float
---@return accel.Tensor?
function M.join(visible, mask)
  if not visible or not mask then return visible or mask end
  if mask.dtype == "bool" then return visible * mask end
  return mask:masked_fill(visible:eq(0), -math.huge)
end

--- The options of a decoder's forward: (ids, cache, opts), (ids, opts) or (ids).
---@param who string
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions and the declarations in `more`
---@param more? table
---@return table
function M.options(who, cache, opts, more)
  if cache ~= nil and not class.isinstance(cache, KVCache) then
    if opts ~= nil then raise("%s: expected a cache, got %s", who, type(cache)) end
    cache, opts = nil, cache
  end
  local declared = {
    cache = options.none, attention_mask = options.none, position_ids = options.none, labels = options.none,
  }
  for key, value in next, more or {} do declared[key] = value end
  local o = options(who, opts, declared)
  if o.labels ~= nil then raise("%s: labels are for a model with a head", who) end -- which takes them out before
  o.cache = cache or o.cache
  return o
end

--- Raises unless ids are a tensor [B, T].
---@param who string
---@param ids any
---@param what? string
function M.check_ids(who, ids, what)
  what = what or "ids"
  if not tensors.is_tensor(ids) then
    raise("%s: %s must be a tensor [batch, tokens], got %s", who, what, check.shown(ids))
  end
  if #ids.shape ~= 2 then raise("%s: %s must be [batch, tokens], got shape %s", who, what, tensors.shape_string(ids)) end
end

--- Positions of tokens if ranks have parts of the sequence (accel.parallel.context), otherwise nil.
---@param T integer
---@param device string
---@return accel.Tensor?
function M.positions(T, device)
  local parallel = divided.sequences
  return parallel and parallel.positions(T, device)
end

--- The length of the whole sequences where ranks have parts of T tokens; T elsewhere.
---@param T integer
---@return integer
function M.whole(T)
  local parallel = divided.sequences
  return parallel and parallel.whole(T) or T
end

--- Raises where a layer that sees less than whole sequences would run on parts of them.
---@param who string
---@param T integer tokens here
---@param reach? integer a window or chunk; nil: any part is too short
function M.check_whole(who, T, reach)
  local whole = M.whole(T)
  if whole == T or reach and whole <= reach then return end
  raise("%s: %s does not run on parts of a sequence (%d of %d tokens here); leave cp_size and sp_size at 1", who,
    reach and ("a window of %d"):format(reach) or "its state", T, whole)
end

--- The context of a decoder for new tokens [B, T].
---@param who string
---@param ids accel.Tensor
---@param o table as M.options returns it
---@param window? integer
---@return accel.models.Context
function M.decoder(who, ids, o, window)
  M.check_ids(who, ids)
  local shape = ids.shape
  local B, T = shape[1], shape[2]
  local past, held = o.cache and o.cache.past or 0, o.cache and o.cache:held() or 0
  local mask = M.padding(who, o.attention_mask, B, past + T)
  if mask and held < past then mask = mask:narrow(#mask.shape, past - held + 1, held + T) end
  if window then M.check_whole(who, T, window) end
  local far = window ~= nil and held + T > window
  if T == 1 and not far then -- one query, after all keys
  elseif far or mask or held > 0 then
    mask = M.join(M.causal(T, held, far and window or nil, ids.device), mask)
  end
  return {
    cache = o.cache, past = past, mask = mask, is_causal = mask == nil and T > 1,
    position_ids = o.position_ids or M.positions(T, ids.device),
  }
end

--- Attention of one layer: with a cache, to its keys and values after k and v are appended. A plan's replacement in the module's
--- field `attend` (accel.parallel) takes over if heads or positions are divided over ranks.
---@param module accel.nn.Module
---@param cache? accel.models.KVCache
---@param layer integer
---@param q accel.Tensor [B, heads, T, head_dim]
---@param k accel.Tensor
---@param v accel.Tensor
---@param opts table scaled_dot_product_attention's
---@return accel.Tensor
function M.attend(module, cache, layer, q, k, v, opts)
  if cache then return cache:attend(layer, q, k, v, opts) end
  local own = module.attend
  if own then return own(q, k, v, opts) end
  return attention(q, k, v, opts)
end

return M
