--- Which layers of a model an adapter is for.
local class = require "accel.util.class"
local listed = require "accel.util.listed"
local configs = require "accel.peft.config"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

local M = {}

--- Layers by the model's family (config.model_type), as PEFT has them.
local LORA <const> = { gpt2 = { "c_attn" }, llama = { "q_proj", "v_proj" }, mixtral = { "q_proj", "v_proj" }, t5 = { "q", "v" },
  bert = { "query", "value" }, vit = { "query", "value" } }
local IA3 <const> = { gpt2 = { { "c_attn", "mlp.c_proj" }, { "mlp.c_proj" } },
  llama = { { "k_proj", "v_proj", "down_proj" }, { "down_proj" } }, t5 = { { "k", "v", "wo" }, { "wo" } },
  bert = { { "key", "value", "output.dense" }, { "output.dense" } } }

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
  if config.target_modules == nil then
    local known = config.peft_type == "LORA" and LORA[family] or config.peft_type == "IA3" and IA3[family] and IA3[family][1]
    if not known then raise("get_peft_model: target_modules is missing, and there is no default for %s; give it", family or "this model") end
    config.target_modules = { table.unpack(known) }
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

--- Warns of names in a configuration that fit no layer.
---@param config table
---@param layers table[] with adapters
---@param seen string[] names that target_modules has, with those that were left out again. excluded: exclude_modules left some out
local function warn_unused(config, layers, seen)
  local function once(name, what) no_effect.once("get_peft_model", name, ("on this model: %s; correct or remove it"):format(what)) end
  for _, key in ipairs(type(config.target_modules) == "table" and config.target_modules or {}) do
    local found = false
    for _, name in ipairs(seen) do found = found or M.matches(name, { key }) end
    if not found then once(("'%s' in target_modules"):format(key), "no layer has that name") end
  end
  if config.exclude_modules and not seen.excluded then once("exclude_modules", "no layer of target_modules has such a name") end
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
---@param base_kind fun(module: accel.nn.Module): string? "linear" or "embedding", where this can have an adapter
---@return table[]
function M.find(model, config, base_kind)
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
        local wanted = all and base_kind(child) == "linear" and name ~= head or not all and M.matches(name, config.target_modules)
        if wanted then seen[#seen + 1] = name end
        if wanted and config.exclude_modules and M.matches(name, config.exclude_modules) then wanted, seen.excluded = false, true end
        if wanted and config.modules_to_save and M.ends(name, config.modules_to_save) then wanted = false end
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
  if refused then
    raise("get_peft_model: '%s' is a %s; adapters support nn.Linear, models.Conv1D, nn.Linear4bit, nn.Linear8bitLt and, of LoRA, nn.Embedding",
      refused[1],
      refused[2])
  end
  local wanted = type(config.target_modules) == "table" and listed(config.target_modules) or config.target_modules
  if #seen > 0 and configs.get(config, "layers_to_transform") ~= nil then
    raise("get_peft_model: no layer called %s, such as '%s', is in a block of layers_to_transform; blocks count from 0, and layers_pattern "
      .. "names their list", wanted, seen[1])
  end
  raise("get_peft_model: no layer of the model is called %s%s", wanted, candidates(model, base_kind))
end

return M
