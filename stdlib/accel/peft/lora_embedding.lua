--- peft.LoraEmbedding: an embedding with low-rank updates beside it.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local Dora = require "accel.peft.dora"
local LoraLinear = require "accel.peft.lora"
local ModuleDict = require "accel.nn.module_dict"
local Parameter = require "accel.nn.parameter"
local ParameterDict = require "accel.nn.parameter_dict"
local check = require "accel.util.check"

--- Row i: base(i) + B A[:, i] * scaling; with use_dora each column of the sum has a learned magnitude (dora.lua). Made by get_peft_model in
--- the place of its base. lora_dropout has no part in it, as in PEFT.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Embedding(5, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return m.base_model.model[1].lora_embedding_A.default.shape --> { 8, 5 }
---@class accel.peft.LoraEmbedding : accel.peft.AdapterLayer
---@field lora_embedding_A accel.nn.ParameterDict [r, num_embeddings]
---@field lora_embedding_B accel.nn.ParameterDict [embedding_dim, r]
---@field lora_magnitude_vector accel.nn.ModuleDict of adapters with use_dora
---@field scaling table<string, number>
local LoraEmbedding = AdapterLayer:extend("accel.peft.LoraEmbedding")

---@param base accel.nn.Module
function LoraEmbedding:init(base)
  self:take(base)
  self.lora_embedding_A = ParameterDict()
  self.lora_embedding_B = ParameterDict()
  self.lora_magnitude_vector = ModuleDict()
  self.scaling = {}
end

--- Adds an adapter: A zero, B normal, so that nothing changes yet; with init_lora_weights = false both normal.
---@param name string
---@param config accel.peft.LoraConfig
---@param full string the layer's name in the model
function LoraEmbedding:add(name, config, full)
  local r, scaling = LoraLinear.sizes(config, full)
  local kind = self:kind()
  local begin = config.init_lora_weights and accel.zeros or accel.randn
  self.lora_embedding_A:set(name, Parameter(begin({ r, self.in_features }, kind)))
  self.lora_embedding_B:set(name, Parameter(accel.randn({ self.out_features, r }, kind)))
  self.scaling[name] = scaling
  if config.use_dora then
    local magnitudes = accel.empty(self.out_features, kind)
    if kind.device ~= "meta" then magnitudes:copy_(Dora.norms(self:base_values(), self:delta(name))) end
    self.lora_magnitude_vector:set(name, Dora(magnitudes))
  end
  self.names[#self.names + 1] = name
  self.active = self.active or name
end

--- The adapter's parameters.
---@param name string
---@return accel.Tensor[]
function LoraEmbedding:weights_of(name)
  local dora = self.lora_magnitude_vector[name]
  return self:has(name) and { self.lora_embedding_A[name], self.lora_embedding_B[name], dora and dora.weight } or {}
end

--- Deletes an adapter, if this layer has it.
---@param name string
function LoraEmbedding:delete(name)
  if not self:forget(name) then return end
  for _, dict in ipairs { self.lora_embedding_A, self.lora_embedding_B, self.lora_magnitude_vector } do dict[name] = nil end
  self.scaling[name] = nil
end

--- B A * scaling, [embedding_dim, num_embeddings].
---@param name string name of the adapter
function LoraEmbedding:delta(name)
  local a, b = self.lora_embedding_A[name]:detach(), self.lora_embedding_B[name]:detach()
  local dtype = AdapterLayer.wide(b)
  return b:to(dtype):matmul(a:to(dtype)) * self.scaling[name]
end

--- What the adapter adds to the weight, [num_embeddings, embedding_dim].
---@param name? string default the active one
---@return accel.Tensor
function LoraEmbedding:get_delta_weight(name, ...)
  check.surplus("LoraEmbedding:get_delta_weight", ...)
  return self:delta(self:known(name or self.active)):t()
end

--- Adds the adapter to the base's weight.
---@param name? string default the active one
function LoraEmbedding:merge(name, ...)
  check.surplus("LoraEmbedding:merge", ...)
  name = self:known(name or self.active)
  local delta, dora = self:delta(name), self.lora_magnitude_vector[name]
  self:merge_with(name, function(w)
    if dora then return (w + delta) * dora:factors(w, delta):detach():to "f32":unsqueeze(2) end
    return w + self:own_rows(delta)
  end)
end

function LoraEmbedding:forward(ids)
  local y = self.base_layer(ids)
  local name = self.active
  if self.disabled or self.merged or not self:has(name) then return y end
  local a, b = self.lora_embedding_A[name], self.lora_embedding_B[name]
  local update = accel.embedding(ids, a:t(), self.base_layer.padding_idx):matmul(b:t()) * self.scaling[name]
  local dora = self.lora_magnitude_vector[name]
  if dora then
    local factors = dora:factors(self:base_values(), self:delta(name))
    return y * factors + (factors * update):to(y.dtype)
  end
  return y + (update.dtype ~= y.dtype and update:to(y.dtype) or update)
end

return LoraEmbedding
