--- new_cache(model, batch, length, opts): the cache of keys and values that a model and a kind ask for.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local kinds = {
  static = "kv_cache", dynamic = "dynamic_cache", sliding_window = "sliding_window_cache", quantized = "quantized_cache",
}

--- The first parameter, floating if possible: keys and values have its dtype.
local function float_parameter(model)
  local all = model:parameters()
  for _, p in ipairs(all) do
    if tensors.is_floating(p.dtype) then return p end
  end
  return all[1]
end

local function name_of(model) return class.of(model).__name end

---@param model accel.models.PreTrainedModel
---@param batch integer
---@param length? integer
---@param opts? {implementation: string?, config: table?}
---@return accel.models.KVCache
return function(model, batch, length, opts, ...)
  if type(length) == "table" and opts == nil then length, opts = nil, length end
  local o = options("new_cache", opts, { implementation = options.none, config = {} }, ...)
  batch = check.positive("new_cache", "batch", batch)
  if length ~= nil and length ~= math.huge then length = check.positive("new_cache", "length", length) end
  local c = options("cache_config", o.config, { dtype = options.none, nbits = 8 })
  local layers, heads, width = model:cache_shape()
  heads = heads // (model.tp_size or 1) -- this rank's (accel.parallel)
  local weight = float_parameter(model)
  local window = model:cache_window()
  local kind = o.implementation or (window and "sliding_window" or "static")
  local home = kinds[kind] or raise("new_cache: unknown cache '%s'; use static, dynamic, sliding_window or quantized",
    tostring(kind))
  length = length or model:context_length()
  if length == math.huge and kind ~= "dynamic" then
    raise("new_cache: %s knows no longest text, give a length", name_of(model))
  end
  local dtype = weight.dtype
  if c.dtype == "int8" or c.dtype == "i8" then
    if kind == "dynamic" or kind == "sliding_window" then raise("new_cache: a cache '%s' holds no int8", kind) end
    home = "quantized_cache"
  elseif c.dtype then
    dtype = accel.empty(0, { dtype = c.dtype, device = "meta" }).dtype
    if not tensors.is_floating(dtype) then raise("new_cache: dtype '%s' is not a floating one, nor int8", c.dtype) end
  end
  if c.nbits ~= 8 then raise("new_cache: nbits %s is not supported, only 8", tostring(c.nbits)) end
  if home == "sliding_window_cache" and not window then
    raise("new_cache: %s has no sliding_window, so that no token may be forgotten", name_of(model))
  end
  return require("accel.models." .. home)(layers, { batch, heads, length, width },
    { dtype = dtype, device = weight.device, window = home == "sliding_window_cache" and window or nil })
end
