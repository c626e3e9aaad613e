--- The weights of an adapter by the names of PEFT's files: base_model.model.<layer>.lora_A.weight, without the adapter's own name.
--- save_pretrained and adapter_only of the Accelerator's saves write them.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configs = require "accel.peft.config"
local listed = require "accel.util.listed"
local names_of = require "accel.peft.names"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local function check_model(who, model)
  if not class.isinstance(model, require("accel.peft.model").PeftModel) then
    raise("%s: expected a PeftModel, got %s", who, check.shown(model))
  end
end

--- The name in files of a parameter of the model that no layer of a type in kinds/ has, nil if it does not belong to the adapter.
local function file_name(name, adapter, config, layers)
  local escaped = adapter:gsub("%p", "%%%0")
  if name:find("%.modules_to_save%." .. escaped .. "%.") then return (name:gsub("%.modules_to_save%." .. escaped .. "%.", ".", 1)) end
  if config.prompt or name:find "%.original_module%." then return nil end
  if config.peft_type == "IA3" then return name:find "%.ia3_l%." and name:gsub("%." .. escaped .. "$", "") or nil end
  if name:find "%.lora_embedding_[AB]%." then
    local plain, n = name:gsub("%." .. escaped .. "$", "")
    return n > 0 and plain or nil
  end
  local dora, m = name:gsub("%.lora_magnitude_vector%." .. escaped .. "%.weight$", ".lora_magnitude_vector")
  if m > 0 then return dora end
  if name:find "%.lora_[AB]%." then
    local plain, n = name:gsub("(%.lora_[AB])%." .. escaped .. "%.", "%1.", 1)
    return n > 0 and plain or nil
  end
  local bias = configs.get(config, "bias")
  if bias == "all" and name:find "bias$" then return name end
  if bias and bias:find "_only$" and name:find "bias$" and layers[name:match "^(.*)%.base_layer%.bias$"] then return name end
end

--- A key of a file with the names that its modules have in today's Transformers, nil if they are the same.
local function todays(model, key)
  local rest = key:match "^base_model%.model%.(.*)$"
  local new = rest and names_of.today(model, rest)
  return new and "base_model.model." .. new
end

--- The adapter's parameters, and their own names, by the names of files.
---@param model accel.peft.PeftModel
---@param adapter string
---@return table<string, accel.Tensor> ordered
---@return table<string, string> names
local function entries(model, adapter)
  local AdapterLayer, layers = require "accel.peft.layer", {}
  local config = model.peft_config[adapter] or raise("there is no adapter '%s'", tostring(adapter))
  local out, names, own, done = ordered(), {}, {}, {}
  for name, p in pairs(model:named_parameters()) do own[p] = name end
  local base = model:get_base_model()
  local function put(key, p)
    if config._today then key = todays(base, key) or key end
    out[key], names[key], done[p] = p, own[p], true
  end
  if config.prompt then
    for _, at in ipairs(model.prompt_encoder[adapter]:saved()) do put(at[2], model.prompt_encoder[adapter]:get_parameter(at[1])) end
  end
  for _, at in ipairs(require("accel.peft.inject").shared(model, adapter)) do
    if not at.unsaved then put("base_model." .. at.key, model.base_model[at.key][adapter]) end
  end
  for name, module in pairs(model:named_modules()) do
    if class.isinstance(module, AdapterLayer) then
      layers[name] = true
      local saved = module.saved and module:saved(adapter) or {}
      local path = saved.up and name:gsub("[^.]*$", saved.up) or name
      for _, at in ipairs(saved) do put(path .. "." .. at[2], at[3] or module:get_parameter(at[1])) end
    end
  end
  for name, p in pairs(model:named_parameters()) do
    local key = not done[p] and file_name(name, adapter, config, layers)
    if key then put(key, p) end
  end
  return out, names
end

--- Whether a model is one with adapters.
---@param model any
---@return boolean
function M.is(model)
  local made = package.loaded["accel.peft.model"] -- which every PeftModel comes from
  return made ~= nil and class.isinstance(model, made.PeftModel)
end

--- The parameters of an adapter and the names of files for them: parameter -> name.
---@param model accel.peft.PeftModel
---@param adapter? string default the active one, even if the model has no adapter of that name
---@return table<accel.Tensor, string>
function M.names(model, adapter)
  local of = {}
  for key, p in pairs((entries(model, adapter and model.peft_config[adapter] and adapter or model.active_adapter))) do of[p] = key end
  return of
end

--- What a file holds of a prompt that is computed from further parameters, which files do not have. nil for other adapters.
---@param model accel.peft.PeftModel
---@param adapter string
---@return table<string, accel.Tensor>? ordered
function M.computed(model, adapter)
  local config = model.peft_config[adapter]
  local encoder = config and config.prompt and model.prompt_encoder[adapter]
  if not encoder or encoder.flat then return nil end
  local _ <close> = accel.no_grad()
  local out = ordered()
  out.prompt_embeddings = encoder:rows():detach()
  for name, p in pairs(model:named_parameters()) do
    local key = file_name(name, adapter, config, {})
    if key then out[key] = p:detach() end
  end
  return out
end

--- The adapter's weights alone, in the form of its file. state_dict: take them from this state of the model, for example from
--- accelerator:get_state_dict(model) if parameters are sharded over ranks.
--- example: local m = accel.peft.get_peft_model(accel.nn.Sequential(accel.nn.Linear(4, 3)), accel.peft.LoraConfig { target_modules = { "0" } })
---   return accel.peft.get_peft_model_state_dict(m)["base_model.model.0.lora_A.weight"].shape --> { 8, 4 }
---@param model accel.peft.PeftModel
---@param adapter_name? string default "default"
---@param opts? {state_dict: table<string, accel.Tensor>?}
---@return table<string, accel.Tensor> ordered
function M.get_peft_model_state_dict(model, adapter_name, opts, ...)
  check_model("get_peft_model_state_dict", model)
  if type(adapter_name) == "table" and opts == nil then adapter_name, opts = nil, adapter_name end
  local o = options("get_peft_model_state_dict", opts, { state_dict = options.none }, ...)
  local config = model.peft_config[adapter_name or "default"]
  local out = config and M.computed(model, adapter_name or "default")
  if out then
    if o.state_dict then
      raise("get_peft_model_state_dict: the prompt of a %s adapter is computed from its parameters, not from a state_dict", config.peft_type)
    end
    return out
  end
  out = ordered()
  local own, names = entries(model, adapter_name or "default")
  for key, p in pairs(own) do
    local t = p
    if o.state_dict then
      t = o.state_dict[names[key]] or raise("get_peft_model_state_dict: state_dict has no '%s'", names[key])
    end
    out[key] = t:detach()
  end
  M.complete(model, adapter_name or "default", out)
  return out
end

--- Makes a state of parameters by their names in files that of a file: with the other names of tied parameters, and without ranks that are cut.
---@param model accel.peft.PeftModel
---@param adapter string
---@param out table<string, accel.Tensor> ordered
function M.complete(model, adapter, out)
  local by_parameter = {}
  local own = entries(model, adapter)
  for key, p in pairs(own) do by_parameter[p] = by_parameter[p] or out[key] end
  for key, p in pairs(own) do
    if out[key] == nil then out[key] = by_parameter[p] end
  end
  local config = model.peft_config[adapter]
  if config.trim then config:trim(out) end
end

--- Whether a file has a value twice: with bias = "all" PEFT also writes the biases of modules_to_save by the names of their copy and of
--- the original.
local function beside(key, own)
  local plain, n = key:gsub("%.modules_to_save%.", ".", 1)
  if n == 0 then plain, n = key:gsub("%.original_module%.", ".", 1) end
  return n > 0 and rawget(own, plain) ~= nil
end

--- Sets the adapter's weights. One error lists missing and unexpected names and different shapes, and then nothing
--- changes.
---@param model accel.peft.PeftModel
---@param state table<string, accel.Tensor>
---@param adapter_name? string default "default"
function M.set_peft_model_state_dict(model, state, adapter_name, ...)
  check.surplus("set_peft_model_state_dict", ...)
  check_model("set_peft_model_state_dict", model)
  local adapter = adapter_name or "default"
  if M.computed(model, adapter) then
    raise("set_peft_model_state_dict: files of %s hold computed prompts without what they are computed from; load the folder by load_adapter",
      model.peft_config[adapter].peft_type)
  end
  local own, missing, unexpected, wrong = (entries(model, adapter)), {}, {}, {}
  local base_model, values, used, given = model:get_base_model(), {}, {}, {}
  for key, p in pairs(own) do -- files may have today's names of modules, or those of before
    local other = todays(base_model, key)
    local from = rawget(state, key) ~= nil and key or other and rawget(state, other) ~= nil and other or key
    values[key], used[from] = state[from], true
    if values[key] ~= nil then given[p] = true end
  end
  if model.peft_config[adapter]._today then -- the entries have today's names; files may have accel's
    for key in ordered.iterate(state) do
      local new = not used[key] and todays(base_model, key)
      if new and rawget(own, new) and values[new] == nil then values[new], used[key], given[own[new]] = state[key], true, true end
    end
  end
  for key, p in pairs(own) do
    local value = values[key]
    if value == nil and given[p] then -- a tied parameter that the file has under its other name
    elseif value == nil then missing[#missing + 1] = key
    elseif value.shape ~= p.shape then
      wrong[#wrong + 1] = ("'%s' has shape %s, the adapter needs %s"):format(key, tostring(value.shape), tostring(p.shape))
    end
  end
  local base, all = {}, nil
  for key, value in ordered.iterate(state) do
    if not used[key] and rawget(own, key) == nil and not beside(key, own) then
      if key:find "%.base_layer%.weight$" then
        all = all or model:state_dict()
        base[key] = all[key]
      end
      if base[key] == nil then unexpected[#unexpected + 1] = key
      elseif base[key].shape ~= value.shape then
        wrong[#wrong + 1] = ("'%s' has shape %s, the model's has %s"):format(key, tostring(value.shape), tostring(base[key].shape))
      end
    end
  end
  if #missing > 0 then table.insert(wrong, 1, "missing " .. listed(missing)) end
  if #unexpected > 0 then table.insert(wrong, 1, "unexpected " .. listed(unexpected)) end
  if #wrong > 0 then raise("set_peft_model_state_dict: %s", table.concat(wrong, "; ")) end
  local _ <close> = accel.no_grad()
  for key, p in pairs(own) do
    if values[key] ~= nil then p:detach():copy_(values[key]) end
  end
  for key, p in next, base do p:detach():copy_(state[key]) end -- PEFT writes the embeddings that have adapters too
end

return M
