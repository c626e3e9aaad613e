--- peft.IA3Linear: a linear layer whose outputs, or inputs, are multiplied by a vector that is learned.
local accel = require "accel"
local check = require "accel.util.check"
local AdapterLayer = require "accel.peft.layer"
local Parameter = require "accel.nn.parameter"
local ParameterDict = require "accel.nn.parameter_dict"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

--- y = base(x) * l, or base(x * l) in a feed-forward layer. Of a convolution the vector is for its channels.
--- Made by get_peft_model in the place of its base.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.IA3Config { target_modules = { "0" } })
---   return m.base_model.model[1].ia3_l.default.shape --> { 3, 1 }
---@class accel.peft.IA3Linear : accel.peft.AdapterLayer
---@field ia3_l accel.nn.ParameterDict [out, 1], of feed-forward layers [1, in], of convolutions [1, channels, 1 ...]
---@field is_feedforward boolean
local IA3Linear = AdapterLayer:extend("accel.peft.IA3Linear")

---@param base accel.nn.Module
function IA3Linear:init(base)
  self:take(base)
  self.ia3_l = ParameterDict()
end

--- Adds an adapter: ones, so that nothing changes yet.
---@param name string
---@param config accel.peft.IA3Config
---@param full string the layer's name in the model
function IA3Linear:add(name, config, full)
  self.is_feedforward = targets.matches(full, config.feedforward_modules)
  local shape = self.is_feedforward and { 1, self.in_features } or { self.out_features, 1 }
  if self.base_layer.kernel_size then
    shape = { 1, self.is_feedforward and self.in_features or self.out_features }
    for _ in ipairs(self.base_layer.kernel_size) do shape[#shape + 1] = 1 end
  end
  local make = config.init_ia3_weights and accel.ones or accel.randn
  self.ia3_l:set(name, Parameter(make(shape, self:kind())))
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function IA3Linear:weights_of(name) return { self.ia3_l[name] } end

--- Deletes an adapter, if this layer has it.
---@param name string
function IA3Linear:delete(name)
  if self:forget(name) then self.ia3_l[name] = nil end
end

--- Multiplies the base's weight by the vector.
---@param name? string default the active one
function IA3Linear:merge(name, ...)
  check.surplus("IA3Linear:merge", ...)
  name = self:known(name or self.active)
  local l = self.ia3_l[name]:detach()
  l = l:to(AdapterLayer.wide(l))
  if self.base_layer.kernel_size then
    if self.is_feedforward and self.base_layer.groups > 1 then
      raise "IA3 of the inputs of a convolution with groups cannot be merged; leave it unmerged"
    end
    if not self.is_feedforward then l = l:transpose(1, 2) end
  elseif not self.is_feedforward then
    l = self:own_rows(l)
  end
  self:merge_with(name, function(w, b)
    if b and not self.is_feedforward then b = b * l:reshape(-1) end
    return w * l, b
  end)
end

function IA3Linear:forward(x)
  if self.disabled or self.merged or not self:has(self.active) then return self.base_layer(x) end
  local l, kernel = self.ia3_l[self.active], self.base_layer.kernel_size
  if not kernel then l = l:reshape(-1)
  elseif x.ndim == #kernel + 1 then l = l:squeeze(1) end -- an image without a batch
  if self.is_feedforward then return self.base_layer(x * (l.dtype ~= x.dtype and l:to(x.dtype) or l)) end
  local y = self.base_layer(x)
  return y * (l.dtype ~= y.dtype and l:to(y.dtype) or l)
end

return IA3Linear
