--- peft.LoraLinear: a linear layer with low-rank updates beside it.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local Dora = require "accel.peft.dora"
local Dropout = require("accel.nn.dropout").Dropout
local Linear = require "accel.nn.linear"
local ModuleDict = require "accel.nn.module_dict"
local init = require "accel.nn.initialization"
local targets = require "accel.peft.targets"

--- y = base(x) + B A dropout(x) * scaling; with use_dora rows of the sum of both weights have learned magnitudes
--- (dora.lua). Made by get_peft_model in the place of its base.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return m.base_model.model[1].lora_A.default.weight.shape --> { 8, 4 }
---@class accel.peft.LoraLinear : accel.peft.AdapterLayer
---@field lora_A accel.nn.ModuleDict
---@field lora_B accel.nn.ModuleDict
---@field lora_magnitude_vector accel.nn.ModuleDict of adapters with use_dora
---@field scaling table<string, number>
local LoraLinear = AdapterLayer:extend("accel.peft.LoraLinear")

---@param base accel.nn.Module
function LoraLinear:init(base)
  self:take(base)
  self.lora_dropout = ModuleDict()
  self.lora_A = ModuleDict()
  self.lora_B = ModuleDict()
  self.lora_magnitude_vector = ModuleDict()
  self.scaling = {}
end

--- Adds an adapter: A as Linear begins, B zero, so that nothing changes yet.
---@param name string
---@param config accel.peft.LoraConfig
---@param full string the layer's name in the model
function LoraLinear:add(name, config, full)
  local r = targets.by_pattern(full, config.rank_pattern, config.r)
  local alpha = targets.by_pattern(full, config.alpha_pattern, config.lora_alpha)
  local kind = self:kind()
  local a = Linear(self.in_features, r, { bias = false, dtype = kind.dtype, device = kind.device })
  local b = Linear(r, self.out_features, { bias = config.lora_bias, dtype = kind.dtype, device = kind.device })
  if kind.device ~= "meta" then
    if config.init_lora_weights == "gaussian" then init.normal_(a.weight, 0, 1 / r) end
    if config.init_lora_weights then
      init.zeros_(b.weight)
      if b.bias then init.zeros_(b.bias) end
    end
  end
  self.lora_A:set(name, a)
  self.lora_B:set(name, b)
  if config.lora_dropout > 0 then
    local drop = Dropout(config.lora_dropout)
    drop.training = self.training -- models that were read from files are not being trained
    self.lora_dropout:set(name, drop)
  end
  self.scaling[name] = alpha / (config.use_rslora and math.sqrt(r) or r)
  if config.use_dora then -- rows begin with the norms that they have
    local magnitudes = accel.empty(self.out_features, kind)
    if kind.device ~= "meta" then magnitudes:copy_(Dora.norms(self:base_values(), self:delta(name))) end
    self.lora_magnitude_vector:set(name, Dora(magnitudes))
  end
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- What the adapter adds to the weight, [out, in].
---@param name? string default the active one
---@return accel.Tensor
function LoraLinear:get_delta_weight(name)
  return self:delta(self:known(name or self.active))
end

--- B A * scaling, [out, in].
function LoraLinear:delta(name)
  return self.lora_B[name].weight:detach():to "f32":matmul(self.lora_A[name].weight:detach():to "f32") * self.scaling[name]
end

--- Adds the adapter to the base's weight.
---@param name? string default the active one
function LoraLinear:merge(name)
  name = self:known(name or self.active)
  local delta, bias = self:get_delta_weight(name), self.lora_B[name].bias
  local dora = self.lora_magnitude_vector[name]
  self:merge_with(name, function(w, b)
    if dora then return (w + delta) * dora:factors(w, delta):detach():to "f32":unsqueeze(2), b end
    if bias and b then b = b + bias:detach():to "f32" * self.scaling[name] end
    return w + delta, b
  end)
end

function LoraLinear:forward(x)
  local y = self.base_layer(x)
  local name = self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local a, drop = self.lora_A[name], self.lora_dropout[name]
  local h = x.dtype ~= a.weight.dtype and not accel.is_autocast_enabled() and x:to(a.weight.dtype) or x
  local dropped = drop and drop.training
  if drop then h = drop(h) end
  local update = self.lora_B[name](a(h)) * self.scaling[name]
  local dora = self.lora_magnitude_vector[name]
  if dora then -- y + (m / norm - 1) W x + m / norm * update, x as the adapter's dropout leaves it
    local values = self:base_values()
    local factors, product = dora:factors(values, self:delta(name)), nil
    if dropped then product = accel.linear(h, values:to(h.dtype))
    elseif self.base_layer.bias then product = y - self.base_layer.bias
    else product = y end
    update = (factors - 1) * product + factors * update
  end
  return y + (update.dtype ~= y.dtype and update:to(y.dtype) or update)
end

return LoraLinear
