--- The common part of layers with adapters: a frozen base layer, adapters by name, merging into the base and back.
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
local conv = require "accel.nn.conv"
local Embedding = require "accel.nn.embedding"
local divided = require "accel.nn.divided"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local Quantized = require "accel.nn.quantized"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.peft.AdapterLayer : accel.nn.Module
---@field base_layer accel.nn.Module
---@field active string name of the adapter that is used
---@field disabled boolean no adapter is used
---@field merged string? the adapter that the base layer holds
---@field plain_dtype string? of the model's activations, which a quantised base takes in any dtype
local AdapterLayer = Module:extend("accel.peft.AdapterLayer")

--- Whether a weight is kept as [in, out].
local function turned(base)
  local kind = class.of(base)
  return kind == Conv1D or kind == Embedding
end

local CONVS <const> = { [conv.Conv1d] = "conv1d", [conv.Conv2d] = "conv2d", [conv.Conv3d] = "conv3d" }

--- What a layer is as the base of one: "linear", "embedding", "conv1d", "conv2d" or "conv3d"; nil: it cannot be one.
---@param module accel.nn.Module
---@return string?
function AdapterLayer.base_kind(module)
  local kind = class.of(module)
  if CONVS[kind] then return CONVS[kind] end
  if kind == Embedding then return not module.norms and "embedding" or nil end -- max_norm changes the weight in forward
  local linear = kind == Linear or kind == Conv1D or class.isinstance(module, Quantized) and module.in_features ~= nil
  return linear and "linear" or nil
end

function AdapterLayer:take(base)
  self.base_layer = base
  self.in_features = base.in_features or base.num_embeddings or base.in_channels
  self.out_features = base.out_features or base.embedding_dim or base.out_channels
  self.disabled, self.names = false, {}
  rawset(self, "kept", nil)
end

--- The dtype and device of new adapters: the base's, f32 for quantised weights.
function AdapterLayer:kind()
  local w = self.base_layer.weight
  return { dtype = w.quant_state and "f32" or w.dtype, device = w.device }
end

--- The values of a layer's weight, [out, in]: in its dtype, f32 of quantised ones.
local function weight_of(base)
  local w = base.weight
  local values = w.quant_state and base:dequantize "f32" or w:detach()
  return turned(base) and values:t() or values
end

--- The values of the base's weight, [out, in]: in its dtype, f32 of quantised ones.
---@return accel.Tensor
function AdapterLayer:base_values() return weight_of(self.base_layer) end

--- From a tensor with a row for each output, the base's rows, if tensor parallelism shards its outputs and gathers them.
---@param t accel.Tensor
---@return accel.Tensor
function AdapterLayer:own_rows(t)
  local placements = divided.placements
  local p = placements and placements.of[self.base_layer.weight]
  local outputs = turned(self.base_layer) and 2 or 1
  if not p or p.dim ~= outputs or t.shape[1] ~= p.whole then return t end
  local first, count = placements.range(p, p.axis.rank)
  return t:narrow(1, first + 1, count)
end

--- A parameter in the place of one that a layer has: other layers that share that one (a tied embedding) keep it.
local function put(base, field, values)
  local old = base[field]
  local new = Parameter(accel.unscoped(values.to, values, old.dtype), old.requires_grad)
  base[field] = new
  local placements = divided.placements
  if placements then placements.of[new] = placements.of[old] end -- of the same part
  return { old = old, new = new }
end

--- Puts the old one back, in the dtype and on the device that the layer has by now.
local function put_back(base, field, change)
  local now, old = base[field], change.old
  if now.dtype == old.dtype and now.device == old.device then
    base[field] = old
  else
    base[field] = Parameter(accel.unscoped(old.to, old:detach(), { dtype = now.dtype, device = now.device }), now.requires_grad)
  end
end

--- The dtype in which sums of a weight and an adapter are made.
---@param t accel.Tensor
---@return string
function AdapterLayer.wide(t) return t.dtype == "f64" and "f64" or "f32" end

--- Merges an adapter into the base: change(weight [out, in], bias) returns the new values of both. Meanwhile a quantised base is
--- replaced by a linear layer of its values, in the dtype plain_dtype, and another base gets new parameters.
function AdapterLayer:merge_with(name, change)
  if self.merged == name then return end
  if self.merged then self:unmerge() end
  local base = self.base_layer
  if not base.weight.quant_state and not Parameter.is(base.weight) then
    raise("merge: the base layer computes its weight (prune, parametrize, weight_norm), so that the sum would be lost; make it a parameter "
      .. "first, by prune.remove, parametrize.remove_parametrizations or remove_weight_norm")
  end
  local _ <close> = accel.no_grad()
  if base.weight.quant_state then
    local plain = Linear(base.in_features, base.out_features, { bias = base.bias ~= nil, device = base.weight.device })
    local w, b = change(weight_of(base), base.bias and base.bias:detach():to "f32")
    local dtype = self.plain_dtype or "f32"
    plain.weight = Parameter(w:to(dtype), false)
    if b then plain.bias = Parameter(b:to(dtype), false) end
    rawset(self, "kept", base)
    self.base_layer = plain
  else
    local dtype = AdapterLayer.wide(base.weight)
    local bias = base.bias and base.bias:detach():to(dtype)
    local w, b = change(weight_of(base):to(dtype), bias)
    local kept = { weight = put(base, "weight", turned(base) and w:t():contiguous() or w) }
    kept.bias = b and b ~= bias and put(base, "bias", b)
    rawset(self, "kept", kept)
  end
  self.merged = name
end

--- Unmerges the adapter. The base's weights are the original ones again, even if other layers share them.
function AdapterLayer:unmerge()
  if not self.merged then return end
  local kept = self.kept
  local _ <close> = accel.no_grad()
  if Module.is_module(kept) then
    self.base_layer = kept
  else
    put_back(self.base_layer, "weight", kept.weight)
    if kept.bias then put_back(self.base_layer, "bias", kept.bias) end
  end
  rawset(self, "kept", nil)
  self.merged = nil
end

--- Whether this layer has an adapter of that name: the model's other adapters may be elsewhere.
function AdapterLayer:has(name)
  for _, own in ipairs(self.names) do
    if own == name then return true end
  end
  return false
end

--- Removes a name from the layer's adapters. Returns whether it was among them.
---@param name string
---@return boolean
function AdapterLayer:forget(name)
  for i, own in ipairs(self.names) do
    if own == name then
      table.remove(self.names, i)
      return true
    end
  end
  return false
end

--- The adapter's name, or an error.
function AdapterLayer:known(name)
  if self:has(name) then return name end
  raise("there is no adapter '%s'; choose from %s", tostring(name), table.concat(self.names, ", "))
end

return AdapterLayer
