--- The common part of nn.Linear4bit, nn.Linear8bitLt and the embeddings of quantized_embedding.lua: a quantised weight, as in
--- bitsandbytes' state dicts.
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

---@class accel.nn.Quantized : accel.nn.Module
---@field weight accel.Tensor quantised. weight.quant_state describes the format
---@field bias accel.Tensor?
local Quantized = Module:extend("accel.nn.Quantized")

--- Quantises values [out_features, in_features] as this layer keeps them.
---@param values accel.Tensor
---@return accel.Tensor
function Quantized:quantize(values) -- luacheck: ignore self values
  raise("%s does not define quantize", getmetatable(self).__name)
end

--- Makes weight and bias: drawn as nn.Linear's are, or without values on the meta device.
function Quantized:make(o, empty)
  if o.device == "meta" then
    self.weight = Parameter(empty, false)
    self:register_parameter("bias", o.bias and Parameter(accel.empty(self.out_features, { device = "meta" }), false) or nil)
    return
  end
  local drawn = require "accel.nn.linear"(self.in_features, self.out_features, { bias = o.bias, device = o.device })
  self:take(drawn.weight:detach(), drawn.bias)
end

--- Takes over the values of a linear layer: a float weight is quantised.
---@param weight accel.Tensor
---@param bias? accel.Tensor
function Quantized:take(weight, bias)
  local _ <close> = accel.no_grad()
  self.weight = Parameter(weight.quant_state and weight or self:quantize(weight), false)
  self:register_parameter("bias", bias and Parameter(bias:detach(), false) or nil)
end

--- The weight's values in a dtype (default: the original one).
---@param dtype? string
---@return accel.Tensor
function Quantized:dequantize(dtype) return self.weight:dequantize(dtype) end

--- state_dict: the entries of bitsandbytes in place of the one tensor.
function Quantized:_extend_state(out, prefix)
  local entries = require("accel.nn.quant_state").state_dict_of(prefix .. "weight", self.weight)
  for key, t in pairs(entries) do out[key] = t end
end

--- load_state_dict: entries of bitsandbytes, a quantised tensor, or values that are quantised now.
function Quantized:_collect_state(state, prefix)
  local name = prefix .. "weight"
  local own, given = self.weight, state[name]
  if not tensors.is_tensor(given) then return end
  local q, used = require("accel.nn.quant_state")._from(name, state, { device = own.device, dtype = own.quant_state.dtype })
  for _, key in ipairs(used or {}) do state[key] = nil end
  if not q then
    q = given
    if not given.quant_state and tensors.is_floating(given.dtype) then
      if given.shape ~= own.quant_state.shape then
        raise("load_state_dict: '%s' has shape %s, the module needs %s", name, tostring(given.shape), tostring(own.quant_state.shape))
      end
      q = self:quantize(given:to(own.device))
    end
  end
  state[name] = q
  local s = q.quant_state
  if s and s.shape ~= own.quant_state.shape then
    raise("load_state_dict: '%s' has values of shape %s, the module needs %s", name, tostring(s.shape), tostring(own.quant_state.shape))
  end
  if s then -- of another layout: the tensor itself takes the place
    for key, value in pairs(own.quant_state) do
      if key ~= "shape" and s[key] ~= value then
        self.weight = Parameter(accel.empty_quantized(s.quant_type, s.shape, {
          dtype = s.dtype, blocksize = s.blocksize, nested = s.nested, device = own.device,
        }), false)
        break
      end
    end
  end
end

function Quantized:extra_repr()
  local s = self.weight.quant_state
  return ("in_features=%d, out_features=%d, bias=%s, quant_type=%s"):format(self.in_features, self.out_features, self.bias ~= nil,
    s.quant_type)
end

return Quantized
