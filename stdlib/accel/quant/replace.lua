--- Linear layers of a model made quantised ones, for load_and_quantize_model.
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local class = require "accel.util.class"
local module_sizes = require "accel.nn.module_sizes"
local no_effect = require "accel.util.no_effect"

local M = {}

--- Names of modules that should not be quantised: those with tied weights, and the last one, the head. None for a model without
--- a head and ties.
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

--- The quantised layer for a linear one or an embedding, on the meta device.
local function layer_for(module, config, kind)
  local nn, bits8 = require "accel.nn", kind == "int8"
  local new
  if module.num_embeddings then
    local rows, width = module.num_embeddings, module.embedding_dim
    if bits8 then new = nn.Embedding8bit(rows, width, { dtype = config.torch_dtype, device = "meta" })
    else
      new = nn.Embedding4bit(rows, width, {
        dtype = config.torch_dtype, quant_type = kind, compress_statistics = config.bnb_4bit_use_double_quant, device = "meta",
      })
    end
  elseif bits8 then
    new = nn.Linear8bitLt(module.in_features, module.out_features, {
      bias = module.bias ~= nil, threshold = config.llm_int8_threshold, device = "meta",
    })
  else
    new = nn.Linear4bit(module.in_features, module.out_features, {
      bias = module.bias ~= nil, compute_dtype = config.bnb_4bit_compute_dtype, quant_type = kind,
      compress_statistics = config.bnb_4bit_use_double_quant, device = "meta",
    })
  end
  new.training = module.training
  return new
end

--- The places of layers that become quantised: { parent, field, module, name }, in the model's order, and how many hold each weight. A
--- weight that several modules share is quantised if all of them support it: embeddings only together with a linear layer.
local function places(model, keys)
  local Linear, Conv1D, Embedding = require "accel.nn.linear", require "accel.models.conv1d", require "accel.nn.embedding"
  local list, holders, able, linear = {}, {}, {}, {}
  local function visit(module, prefix)
    module = module:_itself()
    for key, child, kind, field in module:_fields() do
      if kind == "parameter" then holders[child] = (holders[child] or 0) + 1 end
      if kind == "module" then
        local name, of = prefix .. key, class.of(child)
        local plain = of == Linear or of == Conv1D
        if (plain or of == Embedding and not child.max_norm) and not skipped(key, name, keys) then
          list[#list + 1] = { parent = module, field = field, module = child, name = name, key = key, transposed = of == Conv1D or nil }
          able[child.weight] = (able[child.weight] or 0) + 1
          linear[child.weight] = linear[child.weight] or plain
        end
        visit(child, name .. ".")
      end
    end
  end
  visit(model, "")
  local out = {}
  for _, place in ipairs(list) do
    local w = place.module.weight
    if linear[w] and able[w] == holders[w] then out[#out + 1] = place end
  end
  return out, holders
end

--- Replaces every nn.Linear by nn.Linear4bit or nn.Linear8bitLt, and GPT-2's Conv1D, whose weight is quantised as in the equivalent linear
--- layer. An nn.Embedding that shares the weight, as with a tied head, is replaced by nn.Embedding4bit or nn.Embedding8bit, which shares
--- the quantised one. Values are kept, quantised. Layers on the meta device stay there. Returns the model.
--- example: local m = accel.nn.Sequential(accel.nn.Linear(64, 2), accel.nn.Linear(2, 2))
---   accel.quant.replace_with_bnb_layers(m, accel.quant.BnbQuantizationConfig { load_in_8bit = true }, { "1" })
---   return m[1].weight.quant_state.quant_type, m[2].weight.quant_state --> "int8", nil
---@param model accel.nn.Module
---@param config accel.quant.BnbQuantizationConfig
---@param modules_to_not_convert? string[]
---@param heads? string[] modules that take config.head_quant_type
---@return accel.nn.Module
function M.replace_with_bnb_layers(model, config, modules_to_not_convert, heads, ...)
  check.surplus("replace_with_bnb_layers", ...)
  if heads and not config.head_quant_type then
    no_effect.once("replace_with_bnb_layers", "heads", "without head_quant_type in the configuration")
  end
  local usual = config.load_in_8bit and "int8" or config.bnb_4bit_quant_type
  local list, holders = places(model, modules_to_not_convert or {})
  local shared = {}
  for _, place in ipairs(list) do
    local old = place.module
    local w = old.weight
    local new = layer_for(old, config, heads and skipped(place.key, place.name, heads) and config.head_quant_type or usual)
    new.transposed = place.transposed
    if shared[w] then
      new.weight = shared[w]
      if old.bias and old.bias.device ~= "meta" then new.bias = Parameter(old.bias:detach(), false) end
    elseif w.device ~= "meta" then
      local values = w:detach()
      new:take(place.transposed and values:t():contiguous() or values, old.bias)
    end
    if holders[w] > 1 then shared[w] = new.weight end
    place.parent[place.field] = new
  end
  if #list == 0 then
    warn "load_and_quantize_model: no linear modules of the model can be quantised; nothing becomes smaller"
  end
  return model
end

return M
