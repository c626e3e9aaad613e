--- peft.LoraConv: a convolution with low-rank updates.
local AdapterLayer = require "accel.peft.layer"
local LoraLinear = require "accel.peft.lora"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- y = base(x) + B(A(dropout(x))) * scaling: A a convolution as the base with r outputs, B one of single pixels. With use_dora the sum of
--- both weights has trained magnitudes, one for each output. Made by get_peft_model in the place of its base.
--- example: local c = accel.peft.LoraConfig { target_modules = { "0" } }
---   local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Conv2d(3, 4, 3)), c)
---   return m.base_model.model[1].lora_A.default.weight.shape --> { 8, 3, 3, 3 }
---@class accel.peft.LoraConv : accel.peft.LoraLinear
local LoraConv = LoraLinear:extend("accel.peft.LoraConv")

---@param base accel.nn.Module
function LoraConv:init(base) LoraLinear.init(self, base) end

--- A and B of a new adapter.
---@param r integer
---@param config accel.peft.LoraConfig
---@param kind table dtype and device
function LoraConv:factors(r, config, kind)
  local base, ones = self.base_layer, {}
  for i in ipairs(base.kernel_size) do ones[i] = 1 end
  if r % base.groups ~= 0 then raise("r = %d is not a multiple of the convolution's %d groups; choose another r", r, base.groups) end
  if type(config.init_lora_weights) == "string" and config.init_lora_weights ~= "gaussian" then
    raise("init_lora_weights = '%s' is not for convolutions; leave them out of target_modules", config.init_lora_weights)
  end
  local Conv, make = class.of(base), { bias = false, dtype = kind.dtype, device = kind.device, dilation = base.dilation,
    padding_mode = base.padding_mode }
  local a = Conv(base.in_channels, r, base.kernel_size, base.stride, base.padding, make)
  local b = Conv(r, base.out_channels, ones, { bias = config.lora_bias, dtype = kind.dtype, device = kind.device, groups = base.groups })
  return a, b
end

--- The shape of the magnitudes in files.
function LoraConv:magnitude_shape()
  local shape = { 1, self.out_features }
  for _ in ipairs(self.base_layer.kernel_size) do shape[#shape + 1] = 1 end
  return shape
end

--- B A * scaling as a matrix, [out, in * kernel].
---@param name string name of the adapter
function LoraConv:delta(name)
  local a, b = self.lora_A[name].weight:detach(), self.lora_B[name].weight:detach()
  local dtype, r = AdapterLayer.wide(b), a.shape[1]
  if self.base_layer.groups > 1 then
    raise "LoRA of a convolution with groups reads all inputs for each output, which its weight cannot hold; leave it unmerged"
  end
  return b:reshape(-1, r):to(dtype):matmul(a:reshape(r, -1):to(dtype)) * self.scaling[name]
end

--- The weight as a matrix, [out, in / groups * kernel].
function LoraConv:base_values()
  local w = LoraLinear.base_values(self)
  return w:reshape(w.shape[1], -1)
end

--- What the adapter adds to the weight, in its shape.
---@param name? string default the active one
---@return accel.Tensor
function LoraConv:get_delta_weight(name, ...)
  check.surplus("LoraConv:get_delta_weight", ...)
  return self:delta(self:known(name or self.active)):reshape(self.base_layer.weight.shape)
end

--- Adds the adapter to the base's weight.
---@param name? string default the active one
function LoraConv:merge(name, ...)
  check.surplus("LoraConv:merge", ...)
  name = self:known(name or self.active)
  local delta, bias, dora = self:delta(name), self.lora_B[name].bias, self.lora_magnitude_vector[name]
  if bias and not self.base_layer.bias then raise "the base has no bias, so that lora_bias cannot be merged; leave it unmerged" end
  self:merge_with(name, function(w, b)
    local shape, flat = w.shape, w:reshape(w.shape[1], -1)
    if dora then return ((flat + delta) * dora:factors(flat, delta):detach():to(w.dtype):reshape(-1, 1)):reshape(shape), b end
    if bias then b = b + bias:detach():to(b.dtype) * self.scaling[name] end
    return (flat + delta):reshape(shape), b
  end)
end

function LoraConv:forward(x)
  local y = self.base_layer(x)
  local name = self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local a, drop = self.lora_A[name], self.lora_dropout[name]
  local h = x.dtype ~= a.weight.dtype and not accel.is_autocast_enabled() and x:to(a.weight.dtype) or x
  local dropped = drop and drop.training
  if drop then h = drop(h) end
  local update, dora = self.lora_B[name](a(h)) * self.scaling[name], self.lora_magnitude_vector[name]
  if dora then -- as in lora.lua, by output channels
    local shape, product, bias = {}, y, self.base_layer.bias
    for i = 1, y.ndim do shape[i] = i == y.ndim - #self.base_layer.kernel_size and self.out_features or 1 end
    local factors = dora:factors(self:base_values(), self:delta(name)):reshape(shape)
    if dropped then product = self.base_layer(h) end
    if bias then product = product - bias:reshape(shape) end
    update = (factors - 1) * product + factors * update
  end
  return y + (update.dtype ~= y.dtype and update:to(y.dtype) or update)
end

return LoraConv
