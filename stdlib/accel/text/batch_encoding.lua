--- The common part of encode_batch and a call of a tokenizer: options in Transformers' names, padding, tables of lists or
--- tensors. Used by text.Tokenizer.
local Encoding = require "accel.text.encoding"
local check = require "accel.util.check"
local core = require "accel.text.core"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local declared = {
  text_pair = options.none, add_special_tokens = true, padding = options.none, truncation = options.none,
  max_length = options.none, stride = 0, pad_to_multiple_of = options.none, padding_side = options.none,
  return_tensors = options.none, return_token_type_ids = options.none, return_attention_mask = true,
  return_special_tokens_mask = false, return_offsets_mapping = false, return_overflowing_tokens = false,
  return_length = false, split_special_tokens = false,
}

local function one_of(who, name, value, words)
  for _, word in ipairs(words) do
    if value == word then return word end
  end
  local shown = {}
  for i, word in ipairs(words) do shown[i] = tostring(word) end
  raise("%s: %s must be one of %s, got %s", who, name, table.concat(shown, ", "), check.shown(value))
end

local strategies = { longest_first = 0, only_first = 1, only_second = 2 }

--- The requested truncation, or nil.
local function truncation_of(who, tok, o)
  local t = one_of(who, "truncation", o.truncation or false,
    { false, true, "longest_first", "only_first", "only_second", "do_not_truncate" })
  if not t or t == "do_not_truncate" then return nil end
  local most = o.max_length or tok.model_max_length
  if not most then
    if t == true then -- no maximum length is known
      no_effect.once(who, "truncation", "without max_length, because the tokenizer has no maximum length; give one")
      return nil
    end
    raise("%s: truncation needs max_length, because the tokenizer has none", who)
  end
  return {
    max_length = check.count(who, "max_length", most), stride = check.count(who, "stride", o.stride),
    strategy = strategies[t == true and "longest_first" or t], left = tok.truncation_side == "left",
  }
end

--- The requested padding, or nil.
local function padding_of(who, tok, o)
  local p = one_of(who, "padding", o.padding or false, { false, true, "longest", "max_length", "do_not_pad" })
  if not p or p == "do_not_pad" then return nil end
  local length
  if p == "max_length" then
    length = o.max_length or tok.model_max_length or raise("%s: padding = \"max_length\" needs max_length", who)
    check.count(who, "max_length", length)
  end
  local set = tok.native:padding() or {}
  local token = rawget(tok, "pad_token") or (set.token ~= "" and set.token) or nil
  for _, name in ipairs { "[PAD]", "<pad>" } do
    if not token and tok.native:token_to_id(name) then token = name end
  end
  local id = token and tok.native:token_to_id(token) or set.id
  if not id then
    raise("%s: padding needs a token for it: set tok.pad_token (often tok.pad_token = tok.eos_token)", who)
  end
  local side = o.padding_side or tok.padding_side
  return {
    length = length, multiple = o.pad_to_multiple_of or 0, id = id, type_id = set.type_id or 0, token = token,
    left = check.word(who, "padding_side", side, { "left", "right" }) == "left",
  }
end

local function native_options(o, truncation, seed)
  return {
    add_special_tokens = o.add_special_tokens, split_special_tokens = o.split_special_tokens,
    offsets = o.return_offsets_mapping, overflowing = o.return_overflowing_tokens, truncation = truncation, seed = seed,
  }
end

--- Encodings of a list, each followed by its overflowing parts, and the text of each (0-based).
local function flattened(list)
  local out, from = {}, {}
  for i, x in ipairs(list) do
    out[#out + 1], from[#from + 1] = x, i - 1
    for _, part in ipairs(x:overflowing()) do out[#out + 1], from[#from + 1] = part, i - 1 end
  end
  return out, from
end

local function wants_types(tok, o)
  if o.return_token_type_ids ~= nil then return o.return_token_type_ids end
  if not tok.model_input_names then return true end
  for _, name in ipairs(tok.model_input_names) do
    if name == "token_type_ids" then return true end
  end
  return false
end

--- A table in Transformers' names. `single`: for one text, whose lists are not nested.
local function table_of(tok, list, o, single)
  local from
  if o.return_overflowing_tokens then list, from = flattened(list) end
  local out = {}
  local function put(name, field)
    if o.return_tensors then
      out[name] = core.stack(list, field)
    elseif single and not from then
      out[name] = list[1]:field(field)
    else
      out[name] = {}
      for i, x in ipairs(list) do out[name][i] = x:field(field) end
    end
  end
  put("input_ids", "ids")
  if o.return_attention_mask then put("attention_mask", "attention_mask") end
  if wants_types(tok, o) then put("token_type_ids", "type_ids") end
  if o.return_special_tokens_mask then put("special_tokens_mask", "special_tokens_mask") end
  if o.return_offsets_mapping or o.return_length then
    local offsets, lengths = {}, {}
    for i, x in ipairs(list) do offsets[i], lengths[i] = x:offsets(), x:len() end
    if o.return_offsets_mapping then out.offset_mapping = single and not from and offsets[1] or offsets end
    if o.return_length then out.length = single and not from and lengths[1] or lengths end
  end
  if from then out.overflow_to_sample_mapping = from end
  return out
end

--- The first and, for pairs {text, text}, the second texts of a list.
local function apart(who, texts)
  local first, second, n = {}, {}, 0
  for i, text in ipairs(texts) do
    if type(text) == "table" then
      if #text ~= 2 then raise("%s: entry %d: a pair has two texts, not %d", who, i, #text) end
      first[i], second[i], n = text[1], text[2], n + 1
    else
      first[i] = text
    end
  end
  if n > 0 and n ~= #first then raise("%s: either all entries are pairs {text, text}, or none", who) end
  return first, n > 0 and second or nil
end

--- Options that the others make meaningless.
local function warn_idle(who, o, truncation, padding)
  if o.max_length and not truncation and not (padding and padding.length) then
    no_effect.once(who, "max_length", "without truncation or padding = \"max_length\"; set one of them")
  end
  if o.stride ~= 0 and not (truncation and o.return_overflowing_tokens) then
    no_effect.once(who, "stride", "without truncation and return_overflowing_tokens; set both")
  end
  for _, name in ipairs { "pad_to_multiple_of", "padding_side" } do
    if o[name] and not padding then no_effect.once(who, name, "without padding; set padding = true") end
  end
end

--- tok(text, pair, opts).
function M.call(tok, text, pair, opts, seed, ...)
  if type(pair) == "table" and opts == nil and #pair == 0 then pair, opts = nil, pair end
  local o = options("tokenizer", opts, declared, ...)
  pair = pair or o.text_pair
  local single = type(text) == "string"
  if not single and type(text) ~= "table" then
    raise("tokenizer: expected a text or a list of texts, got %s", check.shown(text))
  end
  if single and pair ~= nil and type(pair) ~= "string" then
    raise("tokenizer: the second text must be a string as the first is, got %s", check.shown(pair))
  end
  if not single then
    local first, second = apart("tokenizer", text)
    if second and pair ~= nil then raise "tokenizer: second texts are given twice: as pairs, and apart" end
    if second then text, pair = first, second end
  end
  local truncation, padding = truncation_of("tokenizer", tok, o), padding_of("tokenizer", tok, o)
  warn_idle("tokenizer", o, truncation, padding)
  local list = tok.native:encode_batch(single and { text } or text, single and pair and { pair } or pair,
    native_options(o, truncation, seed))
  if padding then core.pad(list, padding) end
  return table_of(tok, list, o, single)
end

--- tok:encode_batch(texts, opts).
function M.encode_batch(tok, texts, opts, seed, ...)
  local o = options("encode_batch", opts, declared, ...)
  if type(texts) ~= "table" then raise("encode_batch: expected a list of texts, got %s", check.shown(texts)) end
  local first, second = apart("encode_batch", texts)
  local native = tok.native
  local truncation, padding = native:truncation(), native:padding()
  if o.truncation ~= nil then truncation = truncation_of("encode_batch", tok, o) end
  if o.padding ~= nil then padding = padding_of("encode_batch", tok, o) end
  warn_idle("encode_batch", o, truncation, padding)
  if not o.return_tensors then
    for name, value in next, opts or {} do
      if name:find "^return_" and value then
        no_effect.once("encode_batch", name, "without return_tensors: an Encoding holds all of them; set return_tensors, or call tok(texts, ...)")
      end
    end
  end
  if o.text_pair ~= nil then raise "encode_batch: text_pair is not supported; give pairs {text, text}, or call tok(texts, pairs)" end
  local given = native_options(o, truncation, seed)
  if not o.return_tensors then given.offsets, given.overflowing = true, true end
  local list = native:encode_batch(first, second, given)
  if padding then core.pad(list, padding) end
  if o.return_tensors then return table_of(tok, list, o, false) end
  for i, x in ipairs(list) do list[i] = Encoding(x) end
  return list
end

return M
