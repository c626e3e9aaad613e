--- Linear layers of a model made quantised ones, for load_and_quantize_model.
local class = require "accel.util.class"
local module_sizes = require "accel.accelerator.module_sizes"

local M = {}

--- Names of modules that are better left as they are: those whose weights are tied, and the last one, the head; none of a model
--- without a head and ties.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(2, 2), accel.nn.Linear(2, 2)) return accel.quant.get_keys_to_not_convert(m) --> { "1" }
---@param model accel.nn.Module
---@return string[]
function M.get_keys_to_not_convert(model)
  local out, seen = {}, {}
  local function add(name)
    if not seen[name] then out[#out + 1], seen[name] = name, true end
  end
  for _, group in ipairs(module_sizes.find_tied_parameters(model)) do
    for _, name in ipairs(group) do add((name:gsub("%.weight", ""):gsub("%.bias", ""))) end
  end
  local is_base = model.is_base or model.base_model_prefix and not model[model.base_model_prefix]
  if #out == 0 and is_base then return {} end
  local last
  for name in pairs(model:named_children()) do last = name end
  if last then add(last) end
  return out
end

local function skipped(name, full, keys)
  for _, key in ipairs(keys) do
    if key == name or key == full or full:find(key .. ".", 1, true) then return true end
  end
  return false
end

--- The quantised layer for a linear one, on the meta device.
local function layer_for(module, config, transposed)
  local nn = require "accel.nn"
  local new
  if config.load_in_8bit then
    new = nn.Linear8bitLt(module.in_features, module.out_features, {
      bias = module.bias ~= nil, threshold = config.llm_int8_threshold, device = "meta",
    })
  else
    new = nn.Linear4bit(module.in_features, module.out_features, {
      bias = module.bias ~= nil, compute_dtype = config.bnb_4bit_compute_dtype, quant_type = config.bnb_4bit_quant_type,
      compress_statistics = config.bnb_4bit_use_double_quant, device = "meta",
    })
  end
  new.transposed = transposed or nil
  new.training = module.training
  return new
end

--- Puts nn.Linear4bit or nn.Linear8bitLt in the place of every nn.Linear, and of GPT-2's Conv1D, whose weight is quantised as the linear
--- layer's that computes the same. What has values keeps them, quantised; layers on the meta device stay there. Returns the model.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(64, 2), accel.nn.Linear(2, 2))
---   accel.quant.replace_with_bnb_layers(m, accel.quant.BnbQuantizationConfig { load_in_8bit = true }, { "1" })
---   return m[1].weight.quant_state.quant_type, m[2].weight.quant_state --> "int8", nil
---@param model accel.nn.Module
---@param config accel.quant.BnbQuantizationConfig
---@param modules_to_not_convert? string[]
---@return accel.nn.Module
function M.replace_with_bnb_layers(model, config, modules_to_not_convert)
  local Linear, Conv1D = require "accel.nn.linear", require "accel.models.conv1d"
  local keys, replaced = modules_to_not_convert or {}, 0
  local function visit(module, prefix)
    module = module:_itself()
    local found = {}
    for key, child, kind, field in module:_fields() do
      if kind == "module" then found[#found + 1] = { key, child, field } end
    end
    for _, entry in ipairs(found) do
      local name, child, field = entry[1], entry[2], entry[3]
      local full, kind = prefix .. name, class.of(child)
      if (kind == Linear or kind == Conv1D) and not skipped(name, full, keys) then
        local new = layer_for(child, config, kind == Conv1D)
        if child.weight.device ~= "meta" then
          local weight = child.weight:detach()
          new:take(kind == Conv1D and weight:t():contiguous() or weight, child.bias)
        end
        module[field] = new
        replaced = replaced + 1
      else
        visit(child, full .. ".")
      end
    end
  end
  visit(model, "")
  if replaced == 0 then
    warn "load_and_quantize_model: no linear modules were found in the model that may be quantised; nothing becomes smaller"
  end
  return model
end

return M
