--- models.GenerationConfig: how a model continues text, in the names of Transformers' class, as generation_config.json
--- holds it. models/generate.lua uses it, and adds a call's options to those of the model's folder.
---
---   local g = assert(accel.models.GenerationConfig.from_pretrained(dir))
---   local ids = model:generate(prompt, { generation_config = g, max_new_tokens = 64 })
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local elsewhere = require "accel.models.generation.elsewhere"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local unwritten = require "accel.util.unwritten"

local FILE <const> = "generation_config.json"
local number, flag, word, token, tokens = configuration.number, configuration.flag, configuration.word,
  configuration.token, configuration.tokens

local function field(default, test) return { default = default, test = test } end

local function least(value, low)
  local n = type(value) == "number" and math.tointeger(value)
  if not n or n < low or n > 2 ^ 31 then
    return nil, ("must be an integer of at least %d, got %s"):format(low, check.shown(value))
  end
  return n
end

local function count(default) return field(default, function(v) return least(v, 0) end) end
local function positive(default) return field(default, function(v) return least(v, 1) end) end

--- A share that is not zero.
local function share(default)
  return field(default, function(v)
    if type(v) ~= "number" or not (v > 0 and v <= 1) then
      return nil, ("must lie in (0, 1], got %s"):format(check.shown(v))
    end
    return v + 0.0
  end)
end

local function is_id(v) return math.type(v) == "integer" and v >= 0 end

local function ids(v)
  if type(v) ~= "table" then return nil, "must be a list of ids, got " .. check.shown(v) end
  for i, id in ipairs(v) do
    if not is_id(id) then return nil, ("holds %s at place %d, not an id"):format(check.shown(id), i) end
  end
  return v
end

local function id_lists(v)
  if type(v) ~= "table" then return nil, "must be a list of lists of ids, got " .. check.shown(v) end
  for i, list in ipairs(v) do
    local _, problem = ids(list)
    if not problem and #list == 0 then problem = "is empty" end
    if problem then return nil, ("[%d] %s"):format(i, problem) end
  end
  return v
end

--- {{ids, bias}, ...}
local function biases(v)
  if type(v) ~= "table" then return nil, "must be a list of {ids, bias}, got " .. check.shown(v) end
  for i, pair in ipairs(v) do
    local _, problem
    if type(pair) ~= "table" or type(pair[2]) ~= "number" then
      problem = "must be {ids, bias}"
    else
      _, problem = ids(pair[1])
      if not problem and #pair[1] == 0 then problem = "has no ids" end
    end
    if problem then return nil, ("[%d] %s"):format(i, problem) end
  end
  return v
end

local function strings(v)
  if type(v) == "string" then v = { v } end
  if type(v) ~= "table" then return nil, "must be a string or a list of them, got " .. check.shown(v) end
  for i, s in ipairs(v) do
    if type(s) ~= "string" or s == "" then
      return nil, ("[%d] must be a string of at least one byte, got %s"):format(i, check.shown(s))
    end
  end
  return v
end

--- {first token that it counts from, factor}
local function decay(v)
  if type(v) ~= "table" or #v ~= 2 or math.type(v[1]) ~= "integer" or v[1] < 0 or type(v[2]) ~= "number" or not (v[2] > 0) then
    return nil, "must be {start, factor}: an integer from 0 on and a number above 0"
  end
  return v
end

local function early(v)
  if type(v) == "boolean" or v == "never" then return v end
  return nil, "must be true, false or 'never', got " .. check.shown(v)
end

local CACHES <const> = { "static", "dynamic", "sliding_window", "quantized" }
local SCHEDULES <const> = { "constant", "heuristic", "heuristic_transient" }

--- Every option of a file or a call, with its default.
local fields = {
  max_length = positive(), max_new_tokens = count(), min_length = count(0), min_new_tokens = count(),
  max_time = number(nil, 0), stop_strings = field(nil, strings), early_stopping = field(false, early),
  do_sample = flag(), num_beams = positive(1), use_cache = flag(true), cache_implementation = word(nil, CACHES),
  cache_config = configuration.table(), temperature = number(), top_k = count(), top_p = share(),
  min_p = number(nil, 0, 1), typical_p = share(), epsilon_cutoff = number(0.0, 0, 1), eta_cutoff = number(0.0, 0, 1),
  repetition_penalty = number(1.0, 1e-9), encoder_repetition_penalty = number(1.0, 1e-9),
  length_penalty = number(1.0, -1e9, 1e9), no_repeat_ngram_size = count(0), encoder_no_repeat_ngram_size = count(0),
  bad_words_ids = field(nil, id_lists), renormalize_logits = flag(false), forced_bos_token_id = token(),
  forced_eos_token_id = tokens(), remove_invalid_values = flag(false),
  exponential_decay_length_penalty = field(nil, decay), suppress_tokens = field(nil, ids),
  begin_suppress_tokens = field(nil, ids), sequence_bias = field(nil, biases), num_return_sequences = positive(1),
  output_scores = flag(false), output_logits = flag(false), return_dict_in_generate = flag(false),
  pad_token_id = token(), bos_token_id = token(), eos_token_id = tokens(), decoder_start_token_id = token(),
  num_assistant_tokens = positive(20), num_assistant_tokens_schedule = word("constant", SCHEDULES),
  assistant_confidence_threshold = number(0.4, 0, 1), prompt_lookup_num_tokens = positive(),
  max_matching_ngram_size = positive(2),
}

--- example: accel.models.GenerationConfig({ top_k = 5 }).top_k --> 5
---@class accel.models.GenerationConfig
local GenerationConfig = class("accel.models.GenerationConfig")

GenerationConfig._fields = fields -- for the sweep of options

--- A converted value, or nil and the error.
local function tested(key, value)
  if value == accel.json.null then return nil end
  local refused, why = elsewhere.of(key, value)
  if why then return nil, refused and ("%s is not supported: %s"):format(key, why) or nil end
  local v, problem = fields[key].test(value)
  if problem then return nil, key .. " " .. problem end
  return v
end

--- Raises for an option unknown to this class and the caller. Names the nearest one, or all.
---@param who string
---@param values table
---@param own? table<string, true> options of the caller
function GenerationConfig._known(who, values, own)
  for key in next, values do
    if not fields[key] and not (own and own[key]) and elsewhere.of(key, values[key]) == nil then
      local all = {}
      for _, names in ipairs { fields, own or {} } do
        for name in next, names do all[name] = true end
      end
      local near = type(key) == "string" and nearest(key, all)
      raise("%s: unknown option '%s'%s", who, tostring(key), near and ("; did you mean '%s'?"):format(near) or options.listed(all))
    end
  end
end

--- The given options, converted, without defaults. eos_token_id = false (there is no end) stays.
---@param who string
---@param values table
---@return table
function GenerationConfig.check(who, values)
  GenerationConfig._known(who, values)
  local out = {}
  for key, value in accel.pairs(values) do
    if key == "eos_token_id" and value == false then
      out[key] = false
    else
      local v, problem = tested(key, value)
      if problem then raise("%s: %s", who, problem) end
      if value ~= accel.json.null then elsewhere.say(who, key) end
      out[key] = v
    end
  end
  return out
end

---@param values? table
function GenerationConfig:init(values)
  for key, value in next, GenerationConfig.check("GenerationConfig", values or {}) do self[key] = value end
end

--- The configuration of a folder. Keys without meaning here are kept for save_pretrained. One with an unsupported value warns. If the
--- file is missing or wrong, returns nil, message, code.
---@param dir string
---@return accel.models.GenerationConfig?, string?, string?
function GenerationConfig.from_pretrained(dir)
  local path = dir .. "/" .. FILE
  local values, message, code = read_json(path)
  if not values then return nil, message, code end
  local self = GenerationConfig()
  self.others = {}
  for key, value in accel.pairs(values) do
    if fields[key] then
      local v, problem = tested(key, value)
      if problem then return nil, ("%s: %s"):format(path, problem), "format" end
      self[key] = v
    else
      local refused, why = elsewhere.of(key, value)
      if refused and value ~= accel.json.null then
        warn(("%s: %s is not supported: %s; generation ignores it"):format(path, key, why))
      end
      self.others[key] = value
    end
  end
  return self
end

--- The name of its file and the text in it.
---@return string, string
function GenerationConfig:_file()
  local out = {}
  for key, value in next, self.others or {} do out[key] = value end
  for key in next, fields do out[key] = self[key] end
  return FILE, accel.json.encode(out, { pretty = true }) .. "\n"
end

--- Writes generation_config.json into a folder. Returns true. On failure returns nil, message, code.
---@param dir string
---@return boolean?, string?, string?
function GenerationConfig:save_pretrained(dir)
  local name, text = self:_file()
  if unwritten.skips(dir) then return true end
  return accel.write_file(dir .. "/" .. name, text)
end

--- The generation settings in a model's own configuration.
---@param config? table
---@return accel.models.GenerationConfig
function GenerationConfig.from_model_config(config)
  local self = GenerationConfig()
  for _, key in ipairs { "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id",
    "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids" } do
    self[key] = configuration.get(config, key)
  end
  return self
end

--- Options of a call that only count with another one: an option given without it warns, once.
local NEEDS <const> = {
  { "do_sample = true", function(o) return o.do_sample end, "temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff" },
  { "num_beams above 1", function(o) return o.num_beams > 1 end, "early_stopping length_penalty" },
  { "num_beams above 1, or the scores that return_dict_in_generate and output_scores return",
    function(o) return o.num_beams > 1 or o.return_dict_in_generate and o.output_scores end, "renormalize_logits" },
  { "return_dict_in_generate = true", function(o) return o.return_dict_in_generate end, "output_scores output_logits" },
  { "assistant_model", function(_, assistant) return assistant end,
    "num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold" },
  { "prompt_lookup_num_tokens", function(o) return o.prompt_lookup_num_tokens end, "max_matching_ngram_size" },
  { "eos_token_id", function(o) return o.eos_token_id end, "exponential_decay_length_penalty" },
  { "a prompt that lacks it", function() return false end, "bos_token_id" },
  { "a call without max_new_tokens", function(o) return not o.max_new_tokens end, "max_length" },
  { "use_cache = true", function(o) return o.use_cache end, "cache_implementation cache_config" },
}
local told = {}

local function warn_unmet(who, asked, o, assistant)
  for _, need in ipairs(NEEDS) do
    for key in need[3]:gmatch "%S+" do
      local given = asked[key]
      if given ~= nil and given ~= fields[key].default and not told[key] and not need[2](o, assistant)
        and not (key == "temperature" and given == 0) then -- which disables sampling
        told[key] = true
        warn(("%s: %s has no effect here: it needs %s"):format(who, key, need[1]))
      end
    end
  end
end

--- Forgets past warnings, for tests.
function GenerationConfig._reset_warnings() told = {} end

--- The options of one generation: the call's, the model's, defaults. Sampling is on if do_sample is set, or if the call
--- names temperature, top_k, top_p, min_p or typical_p without it. temperature = 0 is greedy.
---@param who string
---@param values table options of the call
---@param base table
---@param assistant? boolean whether the call has an assistant_model
---@return table
function GenerationConfig.resolve(who, values, base, assistant)
  local o = {}
  local asked = GenerationConfig.check(who, values)
  for key, f in next, fields do
    local v = asked[key]
    if v == nil then v = base[key] end
    if v == nil then v = f.default end
    o[key] = v
  end
  if asked.max_length and not asked.max_new_tokens then o.max_new_tokens = nil end
  local implied = false
  for _, key in ipairs { "temperature", "top_k", "top_p", "min_p", "typical_p" } do
    implied = implied or asked[key] ~= nil
  end
  if asked.do_sample ~= nil then
    o.do_sample = asked.do_sample
    if o.do_sample and o.temperature == 0 then raise("%s: temperature must be above 0 with do_sample = true", who) end
  else
    o.do_sample = o.temperature ~= 0 and (base.do_sample or implied) or false
  end
  warn_unmet(who, asked, o, assistant)
  -- Transformers' defaults
  o.temperature, o.top_k, o.top_p = o.temperature or 1.0, o.top_k or 50, o.top_p or 1.0
  o.typical_p = o.typical_p or 1.0
  if o.num_return_sequences > o.num_beams and (o.num_beams > 1 or not o.do_sample) then
    raise("%s: num_return_sequences is %d, but %s", who, o.num_return_sequences, o.num_beams > 1
      and ("num_beams only %d"):format(o.num_beams) or "greedy search has one result (do_sample = true, or num_beams)")
  end
  return o
end

return GenerationConfig
