--- Members of tokenizer_config.json that change steps of a tokenizer.json: add_prefix_space, do_lower_case, strip_accents and
--- tokenize_chinese_chars. Transformers follows them for the classes that make their steps anew, and not for others: those warn. Used by
--- accel.text.tokenizer_folder.
local accel = require "accel"
local no_effect = require "accel.util.no_effect"

local M = {}

local BERT <const> = { do_lower_case = "lowercase", strip_accents = "strip_accents", tokenize_chinese_chars = "handle_chinese_chars" }
local LOWERS <const> = { bert = true, funnel = true, mpnet = true }
local PREFIXES <const> = {
  gpt2 = true, gpt_neox = true, roberta = true, qwen2 = true, whisper = true, llama = true, xlm_roberta = true, albert = true,
}

--- The steps of a part in a list: itself, or those of a Sequence.
local function steps_of(part, member, out)
  out = out or {}
  if type(part) ~= "table" then return out end
  if part.type ~= "Sequence" then
    out[#out + 1] = part
  elseif type(part[member]) == "table" then
    for _, step in ipairs(part[member]) do steps_of(step, member, out) end
  end
  return out
end

local function idle(name, why) no_effect.once("tokenizer_config.json", name, ("here: %s; remove it to avoid this message"):format(why)) end

--- One option of BertNormalizer. true: a step was changed.
local function bert(steps, name, wanted, family)
  local field, changed, found = BERT[name], false, false
  for _, step in ipairs(steps) do
    if step.type == "BertNormalizer" then
      found = true
      if step[field] ~= wanted then
        if LOWERS[family] then
          step[field], changed = wanted, true
        else
          idle(name, ("tokenizer.json's normalizer has %s = %s, and this class of tokenizer keeps it"):format(field, tostring(step[field])))
        end
      end
    elseif step.type == "Lowercase" and name == "do_lower_case" then
      found = found or wanted
    end
  end
  if not found and (wanted or name ~= "do_lower_case") and not (name == "tokenize_chinese_chars" and not wanted) then
    idle(name, "tokenizer.json has no step for it")
  end
  return changed
end

local function prefix_space(spec, wanted, family)
  local changed, found = false, false
  local steps = steps_of(spec.pre_tokenizer, "pretokenizers")
  for _, step in ipairs(steps_of(spec.post_processor, "processors")) do
    if step.type == "RobertaProcessing" and family == "roberta" then steps[#steps + 1] = step end
  end
  for _, step in ipairs(steps) do
    local has
    if step.type == "ByteLevel" or step.type == "RobertaProcessing" then
      has = step.add_prefix_space
    elseif step.type == "Metaspace" then
      has = step.prepend_scheme ~= nil and step.prepend_scheme ~= "never" or step.prepend_scheme == nil and step.add_prefix_space ~= false
    end
    if has ~= nil then
      found = true
      if has ~= wanted and PREFIXES[family] then
        changed = true
        if step.type == "Metaspace" then
          step.prepend_scheme, step.add_prefix_space = wanted and (family == "llama" and "first" or "always") or "never", nil
        else
          step.add_prefix_space = wanted
        end
      elseif has ~= wanted then
        idle("add_prefix_space", "tokenizer.json's pre_tokenizer decides, and this class of tokenizer keeps it")
      end
    end
  end
  if not found then
    local prepends
    for _, step in ipairs(steps_of(spec.normalizer, "normalizers")) do prepends = prepends or step.type == "Prepend" end
    if (prepends or false) ~= wanted then idle("add_prefix_space", "tokenizer.json has no pre_tokenizer that adds a space") end
  end
  return changed
end

--- Whether tokenizer_config.json has such a member.
---@param config table
---@return boolean
function M.given(config)
  if type(config.add_prefix_space) == "boolean" then return true end
  for name in next, BERT do
    if type(config[name]) == "boolean" then return true end
  end
  return false
end

--- The text of a tokenizer.json with the options of tokenizer_config.json, or nil where they change nothing.
---@param text string
---@param config table
---@param family string?
---@return string?
function M.apply(text, config, family)
  local ok, spec = pcall(accel.json.decode, text, { ordered = true, nulls = true })
  if not ok or type(spec) ~= "table" then return nil end -- its reader tells why
  local changed = false
  for name in accel.pairs(BERT) do
    if type(config[name]) == "boolean" then
      changed = bert(steps_of(spec.normalizer, "normalizers"), name, config[name], family) or changed
    end
  end
  if type(config.add_prefix_space) == "boolean" then changed = prefix_space(spec, config.add_prefix_space, family) or changed end
  return changed and accel.json.encode(spec) or nil
end

return M
