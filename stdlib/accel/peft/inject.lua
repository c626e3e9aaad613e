--- Puts an adapter into a model: its layers in the place of the model's, the parameters that all layers share, the copies of
--- modules_to_save. Used by model.lua.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local Conv1D = require "accel.models.conv1d"
local ParameterDict = require "accel.nn.parameter_dict"
local WeightLayer = require "accel.peft.weight_layer"
local Wrapper = require "accel.peft.modules_to_save"
local class = require "accel.util.class"
local check = require "accel.util.check"
local configs = require "accel.peft.config"
local raise = require "accel.util.raise"
local targets = require "accel.peft.targets"

local M = {}

--- The layer around a base of each kind, by the type of the adapter: files. Other types have WeightLayer.
local LAYERS <const> = {
  LORA = { linear = "lora", embedding = "lora_embedding", conv1d = "lora_conv", conv2d = "lora_conv", conv3d = "lora_conv" },
  IA3 = { linear = "ia3", conv1d = "ia3", conv2d = "ia3", conv3d = "ia3" },
  TRAINABLE_TOKENS = { linear = "tokens_layer", embedding = "tokens_layer" },
}

--- The function that tells the kind of a base, and the one that gives the class of its layer.
local function layers_of(config)
  if config.peft_type == "LN_TUNING" then
    local Layer = require "accel.peft.ln_tuning_layer"
    return function(module) return #module:parameters() > 0 and "module" or nil end, function() return Layer end
  elseif config.peft_type == "ADAPTION_PROMPT" then
    local Layer = require "accel.peft.adaption_layer"
    return function(module) return Layer.projections(module) and "attention" or nil end, function() return Layer end
  end
  local files = LAYERS[config.peft_type]
  return function(module)
    local kind = AdapterLayer.base_kind(module)
    return (files or config.bases)[kind] and kind or nil
  end, function(kind) return files and require("accel.peft." .. files[kind]) or WeightLayer end
end

--- Makes the parameters that the model has once for an adapter. Returns their dictionaries by name.
local function shared(self, name, config, found)
  if not config._shared then return nil end
  local places, tuner, kind = {}, self.base_model, nil
  for _, at in ipairs(found) do
    local layer = class.isinstance(at.module, AdapterLayer) and at.module or WeightLayer(at.module)
    places[#places + 1], kind = layer:place(config, at.name), kind or layer:kind()
  end
  local dicts, own = {}, {}
  local _ <close> = accel.no_grad()
  for _, spec in ipairs(config:_shared(places)) do
    local dict = tuner[spec[1]]
    if not dict then
      dict = ParameterDict()
      tuner[spec[1]] = dict
    end
    dict:set(name, WeightLayer._made({ shape = spec[2], init = spec.init, frozen = spec.frozen, dtype = spec.dtype }, kind))
    dicts[spec[1]] = dict
    own[#own + 1] = { key = spec[1], frozen = spec.frozen, unsaved = spec.unsaved }
  end
  local all = rawget(self, "_shared") or {}
  all[name] = own
  rawset(self, "_shared", all)
  return dicts
end

--- The parameters that the model has once for an adapter: { key, frozen, unsaved }, keys being fields of base_model.
---@param self accel.peft.PeftModel
---@param name string
---@return table[]
function M.shared(self, name)
  local all = rawget(self, "_shared")
  return all and all[name] or {}
end

--- Those of them that learn.
---@param self accel.peft.PeftModel
---@param name string
---@return accel.Tensor[]
function M.shared_weights(self, name)
  local out = {}
  for _, at in ipairs(M.shared(self, name)) do
    if not at.frozen then out[#out + 1] = self.base_model[at.key][name] end
  end
  return out
end

--- Deletes them.
---@param self accel.peft.PeftModel
---@param name string
function M.delete_shared(self, name)
  for _, at in ipairs(M.shared(self, name)) do self.base_model[at.key][name] = nil end
  local all = rawget(self, "_shared")
  if all then all[name] = nil end
end

--- Rows of embeddings that learn, in the layers `found` and in those that are tied to them.
local function tokens(model, name, found, indices_of, opts)
  local Layer = require "accel.peft.tokens_layer"
  local layers = {} -- weight -> the first layer that has it
  local function put(at)
    local layer = at.module
    if not class.isinstance(layer, AdapterLayer) then
      layer = Layer(layer)
      layer.training = at.module.training
      at.parent[at.field] = layer
    elseif not class.isinstance(layer, Layer) then
      raise("get_peft_model: '%s' has an adapter of another kind, so that its rows cannot learn by themselves", at.name)
    end
    if layer:has(name) then return end
    local weight = layer.base_layer.weight
    layer:add(name, indices_of(at), { init_weights = opts.init_weights, prefix = opts.prefix, of = layers[weight] })
    layers[weight] = layers[weight] or layer
  end
  for _, at in ipairs(found) do put(at) end
  targets.visit(model, function(at)
    local base = class.isinstance(at.module, AdapterLayer) and at.module.base_layer or at.module
    local weight = AdapterLayer.base_kind(base) and base.weight
    if weight and layers[weight] and not class.isinstance(at.parent, AdapterLayer) then
      local first = layers[weight]
      indices_of = function() return first.token_indices[name] end
      put(at)
    end
  end)
end

--- trainable_token_indices of LoRA: a list for the input embedding, or lists by the names of embeddings.
local function lora_tokens(model, name, config)
  local given = config.trainable_token_indices
  if type(given) ~= "table" then
    raise("get_peft_model: trainable_token_indices must be a list of rows of the embedding, got %s; write { %s }", check.shown(given),
      check.shown(given))
  end
  local words = model.get_input_embeddings and model:get_input_embeddings()
  local found, indices = {}, {}
  targets.visit(model, function(at)
    if class.isinstance(at.parent, AdapterLayer) then return end
    local base, wanted = class.isinstance(at.module, AdapterLayer) and at.module.base_layer or at.module, nil
    if given[1] ~= nil then
      wanted = base == words and given
    else
      for key, list in accel.pairs(given) do
        if targets.matches(at.name, { key }) then wanted = list end
      end
    end
    if wanted and AdapterLayer.base_kind(base) then found[#found + 1], indices[at.module] = at, wanted end
  end)
  if #found == 0 then raise "get_peft_model: trainable_token_indices names no embedding of the model; give its name: { embed_tokens = { 1, 2 } }" end
  tokens(model, name, found, function(at) return indices[at.module] end, { init_weights = true, prefix = "token_adapter." })
end

--- Puts the adapter's layers in the place of the model's.
---@param self accel.peft.PeftModel
---@param name string the adapter
---@param config table
function M.layers(self, name, config)
  local model = self:get_base_model()
  if configs.get(config, "layer_replication") then require "accel.peft.replication"(model, config.layer_replication) end
  targets.complete(model, config)
  local kind_of, class_of = layers_of(config)
  local function base_kind(module) -- of what would be the base of this layer, or is it already
    if class.isinstance(module, AdapterLayer) then module = module.base_layer end
    return kind_of(module)
  end
  local made = {} -- a layer that has several names gets one adapter
  local found = targets.find(model, config, base_kind)
  if config.peft_type == "ADAPTION_PROMPT" then
    if config.adapter_layers > #found then
      raise("get_peft_model: adapter_layers = %d, but the model has %d layers called %s", config.adapter_layers, #found, config.target_modules)
    end
    table.move(found, #found - config.adapter_layers + 1, #found + config.adapter_layers, 1)
  elseif config.peft_type == "TRAINABLE_TOKENS" then
    return tokens(model, name, found, function() return config.token_indices end, { init_weights = config.init_weights, prefix = "" })
  end
  local turned, dicts = false, shared(self, name, config, found)
  for _, at in ipairs(found) do
    local layer = at.module
    if made[layer] then
      at.parent[at.field] = made[layer]
    else
      if not class.isinstance(layer, AdapterLayer) then
        layer = class_of(base_kind(layer))(layer)
        layer.training = at.module.training
        at.parent[at.field] = layer
      end
      made[at.module], made[layer] = layer, layer
      turned = turned or class.of(layer.base_layer) == Conv1D
      layer:add(name, config, at.name, dicts)
    end
  end
  if configs.get(config, "fan_in_fan_out") ~= nil then
    if config.fan_in_fan_out and not turned then
      warn "get_peft_model: fan_in_fan_out is true, but no target is a Conv1D; it is set to false"
    end
    config.fan_in_fan_out = turned
  end
  if configs.get(config, "target_parameters") then require "accel.peft.experts_layer".add(model, name, config) end
  if configs.get(config, "trainable_token_indices") then lora_tokens(model, name, config) end
  M.modules_to_save(model, name, config, made)
end

--- Puts copies in the place of the modules that learn as a whole.
---@param model accel.nn.Module
---@param name string the adapter
---@param config table
---@param made table<accel.nn.Module, accel.nn.Module> layers by the modules that they replace
function M.modules_to_save(model, name, config, made)
  local wanted = configs.get(config, "modules_to_save")
  if not wanted then return end
  local found
  local function visit(module, prefix)
    for key, child, kind, field in module:_itself():_fields() do
      if kind == "module" then
        local full = prefix .. key
        if made[child] then
          module[field] = made[child]
        elseif class.isinstance(child, Wrapper) and targets.ends(full, wanted) then
          child:add(name)
          made[child], found = child, true
        elseif targets.ends(full, wanted) then
          local wrapper = Wrapper(child, name)
          made[child], made[wrapper] = wrapper, wrapper
          module[field], found = wrapper, true
        elseif not class.isinstance(child, AdapterLayer) then
          visit(child, full .. ".")
        end
      end
    end
  end
  visit(model, "")
  if not found then raise("get_peft_model: no module is called %s", table.concat(wanted, ", ")) end
end

return M
