--- The weights of an adapter by the names of PEFT's files: base_model.model.<layer>.lora_A.weight, without the adapter's own name.
--- save_pretrained and adapter_only of the Accelerator's saves write them.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local listed = require "accel.util.listed"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local function check_model(who, model)
  if not class.isinstance(model, require("accel.peft.model").PeftModel) then
    raise("%s: expected a PeftModel, got %s", who, check.shown(model))
  end
end

--- The name in files of a parameter of the model, nil if it does not belong to the adapter.
local function file_name(name, adapter, config, layers)
  local escaped = adapter:gsub("%p", "%%%0")
  if config.peft_type == "PROMPT_TUNING" then return name == "prompt_encoder." .. adapter .. ".embedding.weight" and "prompt_embeddings" or nil end
  if name:find("%.modules_to_save%." .. escaped .. "%.") then return (name:gsub("%.modules_to_save%." .. escaped .. "%.", ".", 1)) end
  if name:find "%.original_module%." then return nil end
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
  local bias = require "accel.peft.config".get(config, "bias")
  if bias == "all" and name:find "bias$" then return name end
  if bias == "lora_only" and name:find "bias$" and layers[name:match "^(.*)%.base_layer%.bias$"] then return name end
end

--- The adapter's parameters, and their own names, by the names of files.
---@param model accel.peft.PeftModel
---@param adapter string
---@return table<string, accel.Tensor> ordered
---@return table<string, string> names
local function entries(model, adapter)
  local AdapterLayer, layers = require "accel.peft.layer", {}
  local config = model.peft_config[adapter] or raise("there is no adapter '%s'", tostring(adapter))
  for name, module in pairs(model:named_modules()) do
    if class.isinstance(module, AdapterLayer) then layers[name] = true end
  end
  local out, names = ordered(), {}
  for name, p in pairs(model:named_parameters()) do
    local key = file_name(name, adapter, config, layers)
    if key then out[key], names[key] = p, name end
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
  local out = ordered()
  local own, names = entries(model, adapter_name or "default")
  for key, p in pairs(own) do
    local t = p
    if o.state_dict then
      t = o.state_dict[names[key]] or raise("get_peft_model_state_dict: state_dict has no '%s'", names[key])
    end
    out[key] = t:detach()
  end
  return out
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
  local own, missing, unexpected, wrong = (entries(model, adapter_name or "default")), {}, {}, {}
  for key, p in pairs(own) do
    local value = state[key]
    if value == nil then missing[#missing + 1] = key
    elseif value.shape ~= p.shape then
      wrong[#wrong + 1] = ("'%s' has shape %s, the adapter needs %s"):format(key, tostring(value.shape), tostring(p.shape))
    end
  end
  local base, all = {}, nil
  for key, value in ordered.iterate(state) do
    if rawget(own, key) == nil and not beside(key, own) then
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
  for key, p in pairs(own) do p:detach():copy_(state[key]) end
  for key, p in next, base do p:detach():copy_(state[key]) end -- PEFT writes the embeddings that have adapters too
end

return M
