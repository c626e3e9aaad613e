--- The other files of a tokenizer.json in a model's folder: tokenizer_config.json and special_tokens_map.json. They name the
--- tokens for padding, beginnings and ends, and the longest text that the model takes. Templates for chats in them are
--- chat_template.lua's. Used by Tokenizer.from_pretrained and save_pretrained.
local accel = require "accel"
local no_effect = require "accel.util.no_effect"
local read_file = require "accel.util.read_file"

local M = {}

local MOST <const> = 64 << 20 -- bytes of a file

M.names = { "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token" }

-- Members of tokenizer_config.json that are read (those of single classes by accel.text.sources), names of files and programs.
local KNOWN <const> = {
  added_tokens_decoder = true, additional_special_tokens = true, extra_special_tokens = true, chat_template = true, padding_side = true,
  truncation_side = true, model_max_length = true, model_input_names = true, tokenizer_class = true, processor_class = true,
  name_or_path = true, _name_or_path = true, _commit_hash = true, tokenizer_file = true, vocab_file = true, merges_file = true,
  special_tokens_map_file = true, use_fast = true, from_slow = true, legacy = true, sp_model_kwargs = true, errors = true, backend = true,
  is_local = true, local_files_only = true, use_default_system_prompt = true, transformers_version = true, add_prefix_space = true,
  do_lower_case = true, strip_accents = true, tokenize_chinese_chars = true, keep_accents = true, remove_space = true, split_by_punct = true,
  extra_ids = true, full_tokenizer_file = true, trim_offsets = true, unk_id = true, spm_file = true, language = true, task = true,
}

-- Types of members that are read. null counts as left out.
local TYPES <const> = {
  added_tokens_decoder = "object", additional_special_tokens = "list", model_input_names = "list", model_max_length = "number",
  padding_side = "string", truncation_side = "string", tokenizer_class = "string", add_prefix_space = "boolean", do_lower_case = "boolean",
  strip_accents = "boolean", tokenize_chinese_chars = "boolean", keep_accents = "boolean", remove_space = "boolean", split_by_punct = "boolean",
  legacy = "boolean", add_bos_token = "boolean", add_eos_token = "boolean", extra_ids = "number", trim_offsets = "boolean",
}
local WORDS <const> = { boolean = "true or false", string = "a string", number = "a number", list = "a list", object = "an object",
  token = "a string, or an object with content" }

--- What is wrong with the types of a file's members, or nil.
local function wrong_type(path, config)
  local types = {}
  for name, want in next, TYPES do types[name] = want end
  for _, name in ipairs(M.names) do types[name] = "token" end
  for name, want in accel.pairs(types) do
    local value = config[name]
    local kind = type(value)
    local right = kind == want or kind == "table" and (want == "object" or want == "list" and (next(value) == nil or value[1] ~= nil))
    if want == "token" then right = kind == "string" or kind == "table" and type(value.content) == "string" end
    if value ~= nil and value ~= accel.json.null and not right then
      local shown = accel.json.encode(value)
      return ("%s: %s is %s; expected %s"):format(path, name, #shown > 60 and kind or shown, WORDS[want])
    end
  end
end

-- Members that change ids or texts in Transformers: these values are what accel does.
local FIXED <const> = {
  clean_up_tokenization_spaces = { [false] = true }, split_special_tokens = { [false] = true }, spaces_between_special_tokens = { [false] = true },
  add_bos_token = {}, add_eos_token = {}, do_basic_tokenize = { [true] = true }, never_split = {},
}

local WHY <const> = {
  clean_up_tokenization_spaces = "decode returns the text of tokenizer.json's decoder", add_bos_token = "tokenizer.json's post_processor adds tokens",
  add_eos_token = "tokenizer.json's post_processor adds tokens", split_special_tokens = "special tokens in a text are never split",
  spaces_between_special_tokens = "decode puts no spaces between them", do_basic_tokenize = "words are always cut before WordPiece",
  never_split = "as in Transformers' fast tokenizers; add_tokens keeps texts whole",
}

--- Whether tokenizer.json adds this token to each text.
local function adds(tok, token)
  for _, text in ipairs(token and tok:encode("a").tokens or {}) do
    if text == token then return true end
  end
  return false
end

--- Warns, once for each name, of members that Transformers follows and accel does not, and of those that neither knows.
---@param tok accel.text.Tokenizer
---@param config table
function M.warn_unread(tok, config)
  local names = {}
  for _, name in ipairs(M.names) do names[name] = true end
  for name, value in accel.pairs(config) do
    if value == accel.json.null or KNOWN[name] or names[name] then goto continue end
    local fixed = FIXED[name]
    if fixed and fixed[value] then goto continue end
    if name == "add_bos_token" and adds(tok, tok.bos_token) == value or name == "add_eos_token" and adds(tok, tok.eos_token) == value then
      goto continue
    end
    if type(name) == "string" and not name:find "_token$" and not name:find "_token_id$" or fixed then
      no_effect.once("tokenizer_config.json", tostring(name),
        ("here: %s; remove it to avoid this message"):format(WHY[name] or "accel does not know it"))
    end
    ::continue::
  end
  for _, side in ipairs { "padding_side", "truncation_side" } do
    local value = config[side]
    if value ~= nil and value ~= accel.json.null and value ~= "left" and value ~= "right" then
      no_effect.once("tokenizer_config.json", side, "as it is neither left nor right")
    end
  end
end

--- A file of JSON. nil and nothing if it does not exist, nil, message, code if it is wrong.
local function read(path)
  local text, message, code = read_file(path, MOST)
  if code == "not_found" then return nil end
  if not text then return nil, message, code end
  local ok, value = pcall(accel.json.decode, text, { wide_integers = true, ordered = true })
  if not ok then return nil, path .. ": " .. tostring(value.message or value), "parse" end
  if type(value) ~= "table" then return nil, path .. ": must hold an object", "parse" end
  return value
end

--- As read, of a file of which members have types.
local function read_typed(path)
  local value, message, code = read(path)
  message = message or value and wrong_type(path, value)
  if message then return nil, message, code or "parse" end
  return value
end

--- A token as configurations write it: its text, or an object with its content.
local function token_of(value)
  if type(value) == "string" then return { content = value, special = true } end
  if type(value) ~= "table" or type(value.content) ~= "string" then return nil end
  return {
    content = value.content, special = value.special ~= false, lstrip = value.lstrip == true,
    rstrip = value.rstrip == true, single_word = value.single_word == true, normalized = value.normalized == true,
  }
end

--- The tokens of added_tokens.json, as older versions wrote them, by id.
local function added_of(added, tokens, extra)
  local special, list = {}, {}
  for _, token in next, tokens do special[token.content] = true end
  for _, token in ipairs(extra) do special[token.content] = true end
  for content, id in next, added or {} do
    if type(content) == "string" and math.type(id) == "integer" then
      list[#list + 1] = { id = id, content = content, special = special[content] == true, normalized = not special[content] }
    end
  end
  table.sort(list, function(a, b) return a.id < b.id end)
  for _, token in ipairs(list) do token.id = nil end
  return list
end

--- Reads the files into {tokens = {pad_token = {content =, ...}, ...}, decoder = tokens by id, additional = further ones, extra = both,
--- config = table}.
---@param dir string
---@return table?
---@return string? message
---@return string? code
function M.read(dir)
  local config, message, code = read_typed(dir .. "/tokenizer_config.json")
  if message then return nil, message, code end
  local map
  map, message, code = read_typed(dir .. "/special_tokens_map.json")
  if message then return nil, message, code end
  config, map = config or {}, map or {}
  local out = { tokens = {}, decoder = {}, additional = {}, extra = {}, config = config }
  for _, name in ipairs(M.names) do out.tokens[name] = token_of(config[name]) or token_of(map[name]) end
  local decoder = type(config.added_tokens_decoder) == "table" and config.added_tokens_decoder or {}
  local ids = {}
  for id in next, decoder do
    if math.tointeger(tonumber(id)) then ids[#ids + 1] = math.tointeger(tonumber(id)) end
  end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local token = token_of(decoder[tostring(id)])
    if token then
      token.special = decoder[tostring(id)].special == true
      out.decoder[#out.decoder + 1] = token
    end
  end
  for _, source in ipairs { config, map } do
    local list = source.additional_special_tokens or source.extra_special_tokens
    for _, value in ipairs(type(list) == "table" and list or {}) do out.additional[#out.additional + 1] = token_of(value) end
  end
  if config.added_tokens_decoder == nil then
    local added
    added, message, code = read(dir .. "/added_tokens.json")
    if message then return nil, message, code end
    out.decoder = added_of(added, out.tokens, out.additional)
  end
  for _, list in ipairs { out.decoder, out.additional } do table.move(list, 1, #list, #out.extra + 1, out.extra) end
  return out
end

return M
