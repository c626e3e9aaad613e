--- Which layers of a model an adapter is for.
local class = require "accel.util.class"
local listed = require "accel.util.listed"
local configs = require "accel.peft.config"
local names = require "accel.peft.names"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

local M = {}

--- Layers by the model's family (config.model_type), as PEFT has them.
local QV <const> = { "q_proj", "v_proj" }
local LORA <const> = { gpt2 = { "c_attn" }, t5 = { "q", "v" }, mt5 = { "q", "v" }, bert = { "query", "value" }, vit = { "query", "value" },
  roberta = { "query", "value" }, ["xlm-roberta"] = { "query", "value" }, electra = { "query", "value" }, bloom = { "query_key_value" },
  gpt_neox = { "query_key_value" }, falcon = { "query_key_value" }, gpt_bigcode = { "c_attn" }, ["deberta-v2"] = { "query_proj", "value_proj" },
  phi = { "q_proj", "v_proj", "fc1", "fc2" } }
for family in ("llama mixtral bart opt gptj gpt_neo mistral stablelm gemma gemma2 gemma3_text qwen2 qwen3"):gmatch "%S+" do LORA[family] = QV end
local IA3 <const> = { gpt2 = { { "c_attn", "mlp.c_proj" }, { "mlp.c_proj" } },
  llama = { { "k_proj", "v_proj", "down_proj" }, { "down_proj" } }, t5 = { { "k", "v", "wo" }, { "wo" } },
  bert = { { "key", "value", "output.dense" }, { "output.dense" } } }

--- Where a type has other layers than LoRA.
local LN <const> = { "input_layernorm", "post_attention_layernorm", "norm" }
local SANDWICH <const> = { "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "norm" }
local FIRST_MLP <const> = { gpt2 = { "mlp.c_proj" }, gpt_bigcode = { "mlp.c_proj" } }
local OTHERS <const> = {
  LN_TUNING = { llama = LN, mistral = LN, gemma = LN, gemma2 = SANDWICH, gemma3_text = SANDWICH, gpt2 = { "ln_1", "ln_2", "ln_f" },
    t5 = { "layer_norm", "final_layer_norm" }, mt5 = { "layer_norm", "final_layer_norm" }, gptj = { "ln_1", "ln_f" },
    bart = { "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm" }, phi = { "input_layernorm", "final_layernorm" },
    bloom = { "input_layernorm", "post_attention_layernorm", "ln_f" }, falcon = { "input_layernorm", "post_attention_layernorm", "ln_f" },
    qwen2 = { "post_attention_layernorm" }, qwen3 = { "post_attention_layernorm" } },
  FOURIERFT = FIRST_MLP, C3A = FIRST_MLP, WAVEFT = FIRST_MLP, VERA = { phi = QV }, SHIRA = { phi = QV },
  ADALORA = { t5 = { "q", "k", "v", "o", "wi", "wo" }, mt5 = { "q", "k", "v", "o", "wi_0", "wi_1", "wo" },
    bart = { "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2" }, opt = { "q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2" },
    roberta = { "query", "key", "value", "dense" }, ["deberta-v2"] = { "query_proj", "key_proj", "value_proj", "dense" } },
  ADAPTION_PROMPT = { llama = "self_attn", mistral = "self_attn", gpt2 = "attn" },
}
OTHERS.VBLORA = { t5 = OTHERS.ADALORA.t5, mt5 = OTHERS.ADALORA.mt5, bart = OTHERS.ADALORA.bart, opt = OTHERS.ADALORA.opt,
  ["deberta-v2"] = OTHERS.ADALORA["deberta-v2"] }

--- The default of a type and a family, nil if there is none.
local function family_default(peft_type, family)
  if peft_type == "IA3" then return IA3[family] and IA3[family][1] end
  local own = OTHERS[peft_type]
  if own and own[family] then return own[family] end
  if peft_type == "LN_TUNING" or peft_type == "ADAPTION_PROMPT" then return nil end
  return LORA[family]
end

local function fullmatch(name, pattern, what)
  local ok, found = pcall(require "accel.text.core".fullmatch, pattern, { name })
  if not ok then raise("get_peft_model: %s: %s", what, tostring(type(found) == "table" and found.message or found)) end
  return found[1]
end

--- Whether a name is one of these or ends with one, after a dot. A string is a regular expression for the whole name, as in PEFT's
--- configurations.
---@param name string
---@param list string|string[]
---@return boolean
function M.matches(name, list)
  if type(list) == "string" then return fullmatch(name, list, "a pattern of layers") end
  for _, end_of in ipairs(list) do
    if name == end_of or name:sub(-#end_of - 1) == "." .. end_of then return true end
  end
  return false
end

--- Whether a name ends with one of these, wherever a part of it begins: how PEFT finds modules_to_save, where "norm" also means
--- input_layernorm.
---@param name string
---@param list string[]
---@return boolean
function M.ends(name, list)
  for _, end_of in ipairs(list) do
    if end_of ~= "" and name:sub(-#end_of) == end_of then return true end
  end
  return false
end

--- The value of the first pattern that matches a layer's name, or the end of its name after a dot. Otherwise the
--- default.
function M.by_pattern(name, patterns, default)
  for key, value in require("accel").pairs(patterns) do
    if fullmatch(name, ("(?:.*\\.)?(?:%s)"):format(key), "rank_pattern or alpha_pattern") then return value end
  end
  return default
end

--- The number of a layer among its like: h.3.attn is in block 3.
local function block_of(name, patterns)
  for _, pattern in ipairs(patterns) do
    local n = name:match("%f[%w_]" .. pattern .. "%.(%d+)%f[^%d]")
    if n then return math.tointeger(tonumber(n)) end
  end
  return #patterns == 0 and math.tointeger(tonumber(name:match "[^.]+%.(%d+)%.")) or nil
end

local function in_blocks(name, config)
  local wanted = configs.get(config, "layers_to_transform")
  if wanted == nil then return true end
  local patterns = configs.get(config, "layers_pattern")
  patterns = type(patterns) == "string" and { patterns } or patterns or {}
  local n = block_of(name, patterns)
  if not n then return false end
  for _, i in ipairs(type(wanted) == "table" and wanted or { wanted }) do
    if i == n then return true end
  end
  return false
end

--- Completes target_modules (and feedforward_modules) from the model's family.
---@param model accel.nn.Module
---@param config table
function M.complete(model, config)
  local family = model.config and model.config.model_type
  if config.target_modules == nil and configs.get(config, "target_parameters") then
    config.target_modules = {}
  elseif config.target_modules == nil then
    local known = family_default(config.peft_type, family)
    if config.peft_type == "TRAINABLE_TOKENS" then
      local words = model.get_input_embeddings and model:get_input_embeddings()
      for name, module in pairs(model:named_modules()) do
        if module == words then known = { (name:gsub("%.base_layer$", "")) } end
      end
    end
    if not known then
      raise('get_peft_model: target_modules is missing, and there is no default for %s; give it, such as "all-linear"', family or "this model")
    end
    config.target_modules = type(known) == "table" and { table.unpack(known) } or known
  end
  if config.peft_type == "IA3" and config.feedforward_modules == nil then
    local known = IA3[family]
    config.feedforward_modules = known and { table.unpack(known[2]) } or {}
  end
end

--- The last parts of the names of the layers that can have an adapter, for messages.
local function candidates(model, base_kind)
  local out = {}
  for name, module in pairs(model:named_modules()) do
    local last = name:match "[^.]*$"
    if base_kind(module) and not out[last] then out[#out + 1], out[last] = ("'%s'"):format(last), true end
  end
  table.sort(out)
  return #out > 0 and "; there are " .. table.concat(out, ", ") or ""
end

--- Calls fn({ name, module, parent, field }) for all modules below a model, in its order. What fn puts in the place of one is not visited.
---@param model accel.nn.Module
---@param fn fun(at: table)
function M.visit(model, fn)
  local function visit(module, prefix)
    module = module:_itself()
    for key, child, kind, field in module:_fields() do
      if kind == "module" then
        local name = prefix .. key
        fn { name = name, module = child, parent = module, field = field }
        if module[field] == child then visit(child, name .. ".") end
      end
    end
  end
  visit(model, "")
end

--- Warns of names in a configuration that fit no layer.
---@param config table
---@param layers table[] with adapters
---@param seen string[] names as target_modules has them, with those that were left out again. excluded: exclude_modules left some out
local function warn_unused(config, layers, seen)
  local function once(name, what) no_effect.once("get_peft_model", name, ("on this model: %s; correct or remove it"):format(what)) end
  for _, key in ipairs(type(config.target_modules) == "table" and config.target_modules or {}) do
    local found = false
    for _, name in ipairs(seen) do found = found or M.matches(name, { key }) end
    if not found then once(("'%s' in target_modules"):format(key), "no layer has that name") end
  end
  if configs.get(config, "exclude_modules") and not seen.excluded then once("exclude_modules", "no layer of target_modules has such a name") end
  for _, option in ipairs { "rank_pattern", "alpha_pattern" } do
    for key in require("accel").pairs(configs.get(config, option) or {}) do
      local found = false
      for _, layer in ipairs(layers) do found = found or M.by_pattern(layer.name, { [key] = true }, false) end
      if not found then once(("'%s' in %s"):format(key, option), "no layer with an adapter has that name") end
    end
  end
end

--- The layers of a model that an adapter goes to: { name, module, parent, field } in the model's order.
---@param model accel.nn.Module
---@param config table
---@param base_kind fun(module: accel.nn.Module): string? the kind of a module that can have an adapter
---@return table[]
function M.find(model, config, base_kind)
  local targets = config.target_modules
  if config.peft_type == "ADAPTION_PROMPT" and type(targets) == "string" then targets = { targets } end -- a name, not an expression
  local exclude, to_save = configs.get(config, "exclude_modules"), configs.get(config, "modules_to_save")
  local all, out, refused, seen = config.target_modules == "all-linear", {}, nil, {}
  local head
  if all then
    for name in pairs(model:named_children()) do head = name end
  end
  local function visit(module, prefix)
    module = module:_itself()
    for key, child, kind, field in module:_fields() do
      if kind == "module" then
        local name = prefix .. key
        local wanted = all and base_kind(child) == "linear" and name ~= head or not all and M.matches(name, targets)
        local met = name
        if not wanted and not all then
          local today = names.today(model, name)
          wanted, met = today and M.matches(today, targets), today
          if wanted and base_kind(child) then config._today = true end -- so that files have these names
        end
        if wanted then seen[#seen + 1] = met end
        if wanted and exclude and M.matches(name, exclude) then wanted, seen.excluded = false, true end
        if wanted and to_save and M.ends(name, to_save) then wanted = false end
        if wanted and not in_blocks(name, config) then wanted = false end
        if wanted and base_kind(child) then
          out[#out + 1] = { name = name, module = child, parent = module, field = field }
        else
          if wanted and not next(child:named_children()) then refused = refused or { name, class.of(child).__name } end
          visit(child, name .. ".")
        end
      end
    end
  end
  visit(model, "")
  if #out > 0 then
    warn_unused(config, out, seen)
    return out
  end
  if #config.target_modules == 0 and configs.get(config, "target_parameters") then return out end
  if refused then
    raise("get_peft_model: '%s' is a %s; adapters support nn.Linear, models.Conv1D, nn.Linear4bit, nn.Linear8bitLt and, of some types, "
      .. "nn.Conv1d, nn.Conv2d, nn.Conv3d and nn.Embedding", refused[1], refused[2])
  end
  local wanted = type(config.target_modules) == "table" and listed(config.target_modules) or config.target_modules
  if #seen > 0 and configs.get(config, "layers_to_transform") ~= nil then
    raise("get_peft_model: no layer called %s, such as '%s', is in a block of layers_to_transform; blocks count from 0, and layers_pattern "
      .. "names their list", wanted, seen[1])
  end
  raise("get_peft_model: no layer of the model is called %s%s", wanted, candidates(model, base_kind))
end

return M
