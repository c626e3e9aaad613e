--- What layers with adapters share: a base layer whose weights stay, adapters by name, merging into the base and out of it again.
local accel = require "accel"
local Conv1D = require "accel.models.conv1d"
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
local AdapterLayer = Module:extend("accel.peft.AdapterLayer")

--- Whether a layer can be the base of one.
function AdapterLayer.can(module)
  local kind = class.of(module)
  return kind == Linear or kind == Conv1D or class.isinstance(module, Quantized) and module.in_features ~= nil -- no embedding
end

function AdapterLayer:take(base)
  self.base_layer = base
  self.in_features, self.out_features = base.in_features, base.out_features
  self.disabled, self.names = false, {}
  rawset(self, "kept", nil)
end

--- The dtype and device that new adapters take: the base's, f32 beside quantised weights.
function AdapterLayer:kind()
  local w = self.base_layer.weight
  return { dtype = w.quant_state and "f32" or w.dtype, device = w.device }
end

--- The values of a layer's weight, [out, in]: in its dtype, f32 of quantised ones.
local function weight_of(base)
  local w = base.weight
  local values = w.quant_state and base:dequantize "f32" or w:detach()
  return class.of(base) == Conv1D and values:t() or values
end

--- The values of the base's weight, [out, in]: in its dtype, f32 of quantised ones.
---@return accel.Tensor
function AdapterLayer:base_values() return weight_of(self.base_layer) end

--- Makes the base hold an adapter: change(weight [out, in], bias) gives what both become. A quantised base is replaced by a linear layer
--- of its values meanwhile.
function AdapterLayer:merge_with(name, change)
  if self.merged == name then return end
  if self.merged then self:unmerge() end
  local base = self.base_layer
  local _ <close> = accel.no_grad()
  if base.weight.quant_state then
    local plain = Linear(base.in_features, base.out_features, { bias = base.bias ~= nil, device = base.weight.device })
    local w, b = change(weight_of(base), base.bias and base.bias:detach():to "f32")
    plain.weight = Parameter(w, false)
    if b then plain.bias = Parameter(b, false) end
    rawset(self, "kept", base)
    self.base_layer = plain
  else
    local old = { base.weight:detach():clone(), base.bias and base.bias:detach():clone() }
    local w, b = change(weight_of(base):to "f32", base.bias and base.bias:detach():to "f32")
    base.weight:detach():copy_(class.of(base) == Conv1D and w:t() or w)
    if b then base.bias:detach():copy_(b) end
    rawset(self, "kept", old)
  end
  self.merged = name
end

--- Takes the adapter out of the base again; the base's weights are bit for bit those before.
function AdapterLayer:unmerge()
  if not self.merged then return end
  local kept = self.kept
  local _ <close> = accel.no_grad()
  if Module.is_module(kept) then
    self.base_layer = kept
  else
    self.base_layer.weight:detach():copy_(kept[1])
    if kept[2] then self.base_layer.bias:detach():copy_(kept[2]) end
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

--- The adapter's name, or an error.
function AdapterLayer:known(name)
  if self:has(name) then return name end
  raise("there is no adapter '%s'; there are %s", tostring(name), table.concat(self.names, ", "))
end

return AdapterLayer
