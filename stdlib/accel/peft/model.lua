--- get_peft_model and PeftModel: a model with adapters, of which alone the weights learn.
local accel = require "accel"
local AdapterLayer = require "accel.peft.layer"
local Module = require "accel.nn.module"
local Wrapper = require "accel.peft.modules_to_save"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configs = require "accel.peft.config"
local files = require "accel.peft.files"
local inject = require "accel.peft.inject"
local listed = require "accel.util.listed"
local means = require "accel.autograd.means"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local states = require "accel.peft.state"
local M = {}

--- The wrapper between a PeftModel and the model, so that names are PEFT's: base_model.model.<name>.
---@class accel.peft.Tuner : accel.nn.Module
local Tuner = Module:extend("accel.peft.Tuner")

---@param model accel.nn.Module
function Tuner:init(model) self.model = model end
function Tuner:forward(...) return self.model(...) end

--- One step of AdaLoRA's schedule, which cuts the least important ranks. Call it after backward and before zero_grad.
---@param global_step integer counted from 0
function Tuner:update_and_allocate(global_step, ...)
  check.surplus("update_and_allocate", ...)
  check.count("update_and_allocate", "global_step", global_step)
  local name, config, layers = nil, nil, {}
  for _, layer in pairs(self:named_modules()) do
    local at = layer.places and layer.places[layer.active]
    if at and at.config.allocate then name, config, layers[#layers + 1] = layer.active, at.config, layer end
  end
  if not config then raise "update_and_allocate: the active adapter is not of type ADALORA" end
  config:allocate(layers, name, global_step)
end

--- A model with adapters by name. Calls, fields and methods that it lacks are the model's.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return m:get_nb_trainable_parameters() --> 56, 71
---@class accel.peft.PeftModel : accel.nn.Module
---@field peft_config table<string, table> configurations by the adapters' names
---@field active_adapter string
local PeftModel = Module:extend("accel.peft.PeftModel")

---@param model accel.nn.Module
function PeftModel:init(model)
  rawset(self, "peft_config", {})
  self.base_model = model
end

--- The model without its wrappers.
---@return accel.nn.Module
function PeftModel:get_base_model()
  local base = self.base_model
  return class.isinstance(base, Tuner) and base.model or base
end

--- The configuration of the active adapter. nil once the last one is deleted.
local function active(self) return self.active_adapter and self.peft_config[self.active_adapter] or nil end

--- The results of a call, with an adapter's own loss added to the first.
local function penalised(self, config, loss, ...)
  local layers = {}
  for _, layer in pairs(self:named_modules()) do
    if layer.places and layer:has(self.active_adapter) then layers[#layers + 1] = layer end
  end
  local more = config:penalty(layers, self.active_adapter)
  if not more then return loss, ... end
  local terms, sum = means.of(loss), loss + more:to(loss.dtype)
  if terms then
    local all = { table.unpack(terms) }
    all[#all + 1] = { loss = more, count = terms[1].count }
    means.mark(sum, all)
  end
  return sum, ...
end

function PeftModel:forward(...)
  local config = active(self)
  if not config or self.disabled then return self.base_model(...) end
  if config.prompt then return require("accel.peft.prompt").call(self, config, ...) end
  if config.penalty and self.training then
    for i = 1, select("#", ...) do
      local o = select(i, ...)
      if type(o) == "table" and not class.of(o) and (o.labels or o.shift_labels) then return penalised(self, config, self.base_model(...)) end
    end
  end
  return self.base_model(...)
end

--- Text by the model's generate, with the adapter.
function PeftModel:generate(...) return require "accel.models.generate"(self, ...) end

--- The model for generation: the model itself, or with a tuned prompt a module that prepends the prompt.
function PeftModel:_for_generation()
  local config = active(self)
  if not config or not config.prompt or self.disabled then return self:get_base_model() end
  return require("accel.peft.prompt").for_generation(self, config)
end

local function each_layer(self, fn)
  for _, module in pairs(self:named_modules()) do
    if class.isinstance(module, AdapterLayer) or class.isinstance(module, Wrapper) then fn(module) end
  end
end

--- Calls fn(weight) for the weights of one adapter.
local function each_weight(self, name, fn)
  if self.peft_config[name].prompt then
    for _, p in ipairs(self.prompt_encoder[name] and self.prompt_encoder[name]:parameters() or {}) do fn(p) end
  end
  for _, p in ipairs(inject.shared_weights(self, name)) do fn(p) end
  each_layer(self, function(layer)
    for _, p in ipairs(layer:weights_of(name)) do fn(p) end
  end)
end

--- The layers' compute dtype: the dtype of the model's first floating parameter, its embedding. Quantised weights have none.
local function activation_dtype(self)
  local own = {}
  for name in accel.pairs(self.peft_config) do each_weight(self, name, function(p) own[p] = true end) end
  for _, p in ipairs(self:get_base_model():parameters()) do
    if not own[p] and not p.quant_state and p:is_floating_point() then return p.dtype end
  end
end

--- All layers use the active adapter.
local function use(self)
  each_layer(self, function(layer) layer.active = self.active_adapter end)
end

--- Whether the weights of one adapter learn.
local function learn(self, name, on)
  each_weight(self, name, function(p)
    if not p.quant_state and p.requires_grad ~= on then p.requires_grad = on end
  end)
end

--- At the first adapter the model's own weights stop learning, except for the biases that its configuration names. Later adapters leave
--- them as the script has set them, as in PEFT.
local function freeze(self, config)
  local learns, bias = {}, configs.get(config, "bias")
  if bias and bias:find "_only$" then
    each_layer(self, function(layer)
      if class.isinstance(layer, AdapterLayer) and layer.base_layer.bias then learns[layer.base_layer.bias] = true end
    end)
  elseif bias == "all" then
    for name, p in pairs(self:named_parameters()) do learns[p] = name:find "bias$" ~= nil end
  end
  for _, p in ipairs(self:parameters()) do
    if not p.quant_state then p.requires_grad = learns[p] and not config.inference_mode or false end
  end
end

--- The model alone, with the adapter in its weights (merge) or without it. If an adapter is merged into a layer with quantised
--- weights, it becomes a linear layer of their values.
local function unload(self, merge)
  if merge then self:merge_adapter() else self:unmerge_adapter() end
  local model = self:get_base_model()
  local function visit(module)
    module = module:_itself()
    for _, child, kind, field in module:_fields() do
      if kind == "module" then
        if class.isinstance(child, AdapterLayer) then module[field] = not child.own_module and child.base_layer or nil
        elseif class.isinstance(child, Wrapper) then
          module[field] = merge and child.modules_to_save[self.active_adapter] or child.original_module
        else visit(child) end
      end
    end
  end
  visit(model)
  local config = merge and rawget(model, "config")
  if config and config.tie_word_embeddings and model.is_tied and not model:is_tied() then config.tie_word_embeddings = false end
  return model
end

local function add(self, name, config)
  if not config.prompt then return inject.layers(self, name, config) end
  require("accel.peft.prompt").add(self, name, config)
  inject.modules_to_save(self:get_base_model(), name, config, {})
end

-- Takes the weights of one adapter out of the layers, also of an adapter that could not be added to all of them.
local function forget(self, name)
  if self.prompt_encoder then self.prompt_encoder[name] = nil end
  each_layer(self, function(layer) layer:delete(name) end)
  inject.delete_shared(self, name)
end

--- Adds an adapter. Its weights are frozen until set_adapter makes it the active one.
---@param adapter_name string
---@param config table
function PeftModel:add_adapter(adapter_name, config)
  if type(adapter_name) ~= "string" or not adapter_name:find "^[%w_-]+$" then
    raise("add_adapter: a name has letters, digits, '_' and '-' alone, got %s", check.shown(adapter_name))
  end
  if not configs.is(config) then raise("add_adapter: expected a configuration of accel.peft, got %s", check.shown(config)) end
  if self.peft_config[adapter_name] then raise("add_adapter: there is an adapter '%s' already", adapter_name) end
  local first = select(2, next(self.peft_config))
  if first and first.peft_type ~= config.peft_type then
    raise("add_adapter: the model has adapters of type %s, which cannot be combined with %s", first.peft_type, config.peft_type)
  elseif first and (configs.get(config, "bias") or "none") ~= "none" then
    raise('add_adapter: bias is "%s", but biases belong to the model, so its other adapters would get them as well; set bias = "none"', config.bias)
  end
  local ok, message = pcall(add, self, adapter_name, config)
  if not ok then
    if first then forget(self, adapter_name) else unload(self, false) end
    error(message, 0)
  end
  self.peft_config[adapter_name] = config
  if not first then return freeze(self, config) end
  learn(self, adapter_name, false)
  use(self)
end

--- Uses an adapter. Its weights are trained, even after `inference_mode`, and the other adapters' weights are frozen. Other parameters
--- stay as they are.
---@param adapter_name string
function PeftModel:set_adapter(adapter_name)
  if not self.peft_config[adapter_name] then raise("set_adapter: there is no adapter '%s'", tostring(adapter_name)) end
  self.active_adapter = adapter_name
  each_layer(self, function(layer)
    if class.isinstance(layer, AdapterLayer) and layer.merged then layer:unmerge() end
  end)
  use(self)
  for name in accel.pairs(self.peft_config) do learn(self, name, name == adapter_name) end
end

--- Deletes an adapter with its weights. If it is the active one, a warning names the adapter that becomes active: the first of the others
--- in the order of names. The next active adapter is the first of the others in the order of names. Without another one the model behaves
--- as before it had adapters.
---@param adapter_name string
function PeftModel:delete_adapter(adapter_name, ...)
  check.surplus("PeftModel:delete_adapter", ...)
  local config = self.peft_config[adapter_name]
  if not config then raise("delete_adapter: there is no adapter '%s'", tostring(adapter_name)) end
  each_layer(self, function(layer)
    if layer.merged == adapter_name then
      raise("delete_adapter: '%s' is merged into the model's weights; call unmerge_adapter first", adapter_name)
    end
  end)
  forget(self, adapter_name)
  self.peft_config[adapter_name] = nil
  if self.active_adapter ~= adapter_name then return end
  local following
  for name in accel.pairs(self.peft_config) do
    if not following or name < following then following = name end
  end
  if following then
    warn(("delete_adapter: the deleted adapter '%s' was the active one; '%s' is active now"):format(adapter_name, following))
    return self:set_adapter(following)
  end
  self.active_adapter = nil
  use(self)
end

--- A new adapter from a weighted combination of others of type LORA or IA3. It is frozen and inactive until set_adapter. "svd" and "cat"
--- approximate or hold the weighted sum of the adapters' changes of the weights, the others work on A and B. IA3: the sum of the vectors.
--- example: local c = accel.peft.LoraConfig { r = 2, target_modules = { "0" }, init_lora_weights = false }
---   local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), c)
---   m:add_adapter("b", c)
---   m:add_weighted_adapter({ "default", "b" }, { 0.7, 0.3 }, "both", { combination_type = "cat" })
---   return m.peft_config.both.r --> 4
---@param adapters string[]
---@param weights number[] one an adapter, negative ones as well
---@param adapter_name string of the new adapter
---@param opts? table
---  combination_type string = "svd": "svd", "cat", "linear", "ties", "ties_svd", "magnitude_prune", "magnitude_prune_svd"
---  svd_rank integer: rank of the new adapter with svd (default: the largest of the adapters)
---  density number: share of the values with the largest magnitudes that count, for ties and magnitude_prune
---  majority_sign_method string = "total": the sign for ties: of the "total" of the values, or by "frequency"
function PeftModel:add_weighted_adapter(adapters, weights, adapter_name, opts, ...)
  check.surplus("PeftModel:add_weighted_adapter", ...)
  require "accel.peft.weighted"(self, adapters, weights, adapter_name, opts)
end

--- A block in which the adapters have no effect. Also with a function.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return m:disable_adapter(function() return m(accel.ones(1, 4)).shape end) --> { 1, 3 }
---@param fn? function
---@return any
function PeftModel:disable_adapter(fn, ...)
  check.surplus("PeftModel:disable_adapter", ...)
  local function set(value)
    self.disabled = value
    each_layer(self, function(layer) layer.disabled = value end)
  end
  set(true)
  local block = setmetatable({}, { __close = function() set(false) end })
  if not fn then return block end
  local _ <close> = block
  return fn()
end

--- The numbers of weights that learn and of all (values of quantised ones).
---@return integer trainable
---@return integer all
function PeftModel:get_nb_trainable_parameters()
  local learning, all = 0, 0
  for _, p in ipairs(self:parameters()) do
    local n = p:numel()
    if p.quant_state then
      n = 1
      for _, extent in ipairs(p.quant_state.shape) do n = n * extent end
    end
    all = all + n
    if p.requires_grad then learning = learning + n end
  end
  return learning, all
end

--- Prints these numbers, as PEFT does.
function PeftModel:print_trainable_parameters()
  local learning, all = self:get_nb_trainable_parameters()
  local function grouped(n)
    local text, k = ("%d"):format(n), 1
    while k > 0 do text, k = text:gsub("^(%d+)(%d%d%d)", "%1,%2") end
    return text
  end
  print(("trainable params: %s || all params: %s || trainable%%: %.4f"):format(grouped(learning), grouped(all), 100 * learning / all))
end

--- Adds the active adapter to the weights of the layers, for the speed of a model without adapters. unmerge_adapter reverts it.
function PeftModel:merge_adapter()
  local config = active(self)
  if not config then raise "merge_adapter: the model has no adapter; add one" end
  if config.prompt then raise "merge_adapter: a prompt cannot be merged" end
  local dtype = activation_dtype(self)
  each_layer(self, function(layer)
    if class.isinstance(layer, AdapterLayer) and layer:has(self.active_adapter) then
      rawset(layer, "plain_dtype", dtype)
      layer:merge(self.active_adapter)
    end
  end)
end

--- Takes the merged adapter out of the weights again, which are bit for bit those before.
function PeftModel:unmerge_adapter()
  each_layer(self, function(layer)
    if class.isinstance(layer, AdapterLayer) then layer:unmerge() end
  end)
end

--- The model with the active adapter in its weights, without adapters.
---@return accel.nn.Module
function PeftModel:merge_and_unload() return unload(self, true) end

--- The model as it was before it got adapters.
---@return accel.nn.Module
function PeftModel:unload() return unload(self, false) end

--- Writes adapter_config.json and adapter_model.safetensors, which PEFT reads. Further adapters go to folders of their names.
---@param dir string
---@param opts? {selected_adapters: string[]?, state_dict: table<string, accel.Tensor>?, safe_serialization: boolean?} state_dict: of the
---  whole model, from accelerator:get_state_dict if ranks have shards. safe_serialization = false writes PyTorch's adapter_model.bin
---@return true?, string?, string?
function PeftModel:save_pretrained(dir, opts, ...)
  check.surplus("save_pretrained", ...)
  local o = options("save_pretrained", opts, { selected_adapters = options.none, state_dict = options.none, safe_serialization = true })
  local names = {}
  for name in accel.pairs(self.peft_config) do names[#names + 1] = name end
  for _, selected in ipairs(o.selected_adapters or {}) do
    if not self.peft_config[selected] then
      raise("save_pretrained: selected_adapters: there is no adapter '%s'; there are %s", tostring(selected), listed(names))
    end
  end
  for name, config in accel.pairs(self.peft_config) do
    local wanted = o.selected_adapters == nil
    for _, selected in ipairs(o.selected_adapters or {}) do wanted = wanted or selected == name end
    if wanted then
      local folder = name == "default" and dir or dir .. "/" .. name
      local state = states.get_peft_model_state_dict(self, name, { state_dict = o.state_dict })
      local made, message, code = files.write(folder, config, state, o.safe_serialization)
      if not made then return nil, message, code end
    end
  end
  return true
end

--- Reads another adapter from a folder of PEFT's.
---@param dir string
---@param adapter_name? string default "default"
---@param opts? {is_trainable: boolean?}
---@return accel.peft.PeftModel? self
---@return string? message
---@return string? code
function PeftModel:load_adapter(dir, adapter_name, opts, ...)
  check.surplus("load_adapter", ...)
  local o = options("load_adapter", opts, { is_trainable = false })
  local config, state, code = files.read(dir)
  if not config then return nil, state, code end
  config.inference_mode = not o.is_trainable
  if config.fit then config:fit(state) end
  self:add_adapter(adapter_name or "default", config)
  states.set_peft_model_state_dict(self, state, adapter_name or "default")
  if not o.is_trainable then self:eval() end -- as PEFT does
  return self
end

--- A model with the adapter of a folder that PEFT or save_pretrained wrote. For a faulty folder returns nil, message, code.
---@param model accel.nn.Module
---@param dir string
---@param opts? {adapter_name: string?, is_trainable: boolean?} "default". false: nothing is trained
---@return accel.peft.PeftModel?
---@return string? message
---@return string? code
function PeftModel.from_pretrained(model, dir, opts, ...)
  check.surplus("from_pretrained", ...)
  if not Module.is_module(model) then raise("PeftModel.from_pretrained: %s", Module.not_a_module(model)) end
  if type(dir) ~= "string" then raise("PeftModel.from_pretrained: dir must be a string, got %s", check.shown(dir)) end
  local o = options("PeftModel.from_pretrained", opts, { adapter_name = "default", is_trainable = false })
  local config, state, code = files.read(dir)
  if not config then return nil, state, code end
  config.inference_mode = not o.is_trainable
  if config.fit then config:fit(state) end
  local peft = M.get_peft_model(model, config, { adapter_name = o.adapter_name })
  states.set_peft_model_state_dict(peft, state, o.adapter_name)
  if not o.is_trainable then peft:eval() end
  return peft
end

--- A model whose weights stay, with an adapter that learns. Layers of the model are replaced by layers with adapters. The given model
--- is part of the result.
--- example: local m = accel.peft.get_peft_model(accel.models.GPT2(accel.models.tiny.gpt2), accel.peft.LoraConfig { r = 2 })
---   local layer = m.base_model.model.transformer.h[1].attn.c_attn
---   return layer.lora_A.default.weight.shape[1] --> 2
---@param model accel.nn.Module
---@param peft_config table
---@param opts? {adapter_name: string?} "default"
---@return accel.peft.PeftModel
function M.get_peft_model(model, peft_config, opts, ...)
  check.surplus("get_peft_model", ...)
  if not Module.is_module(model) then raise("get_peft_model: %s", Module.not_a_module(model)) end
  if not configs.is(peft_config) then raise("get_peft_model: expected a configuration of accel.peft, got %s", check.shown(peft_config)) end
  if class.isinstance(model, PeftModel) then
    raise("get_peft_model: the model has adapters already; add another one by model:add_adapter(name, configuration)")
  end
  local o = options("get_peft_model", opts, { adapter_name = "default" })
  local peft = PeftModel(peft_config.prompt and model or Tuner(model))
  peft.config = model.config
  peft.training = model.training
  peft:add_adapter(o.adapter_name, peft_config)
  peft:set_adapter(o.adapter_name)
  if peft_config.inference_mode then learn(peft, o.adapter_name, false) end
  return peft
end

--- Makes a quantised model ready for training with adapters: freezes it, and converts norms and heads to f32. use_gradient_checkpointing
--- keeps only the inputs of layers, if the model supports it.
---@param model accel.nn.Module
---@param opts? {use_gradient_checkpointing: boolean?} true
---@return accel.nn.Module
function M.prepare_model_for_kbit_training(model, opts, ...)
  check.surplus("prepare_model_for_kbit_training", ...)
  local o = options("prepare_model_for_kbit_training", opts, { use_gradient_checkpointing = true })
  model:_map_tensors(function(t)
    if t.quant_state or (t.dtype ~= "f16" and t.dtype ~= "bf16") then return t end
    return t:to "f32"
  end)
  for _, p in ipairs(model:parameters()) do
    if not p.quant_state then p.requires_grad = false end
  end
  if o.use_gradient_checkpointing and model.gradient_checkpointing_enable then model:gradient_checkpointing_enable()
  elseif opts and opts.use_gradient_checkpointing then
    no_effect.once("prepare_model_for_kbit_training", "use_gradient_checkpointing",
      "on a model without gradient_checkpointing_enable; let its blocks call accel.checkpoint")
  end
  return model
end

M.PeftModel = PeftModel
return M
