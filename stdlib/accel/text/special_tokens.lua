--- What stands beside a tokenizer.json in a model's folder: tokenizer_config.json and special_tokens_map.json. They name the
--- tokens for padding, beginnings and ends, and the longest text that the model takes. Templates for chats in them are
--- chat_template.lua's. Used by Tokenizer.from_pretrained and save_pretrained.
local accel = require "accel"

local M = {}

M.names = { "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token" }

--- A file of JSON; nil and nothing when it is not there, nil, message, code when it is wrong.
local function read(path)
  local f = io.open(path, "rb")
  if not f then return nil end
  local text = f:read "a"
  f:close()
  local ok, value = pcall(accel.json.decode, text or "", { wide_integers = true })
  if not ok then return nil, path .. ": " .. tostring(value.message or value), "parse" end
  if type(value) ~= "table" then return nil, path .. ": must hold an object", "parse" end
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

--- Reads both files into {tokens = {pad_token = {content =, ...}, ...}, extra = list of tokens, config = table}.
---@param dir string
---@return table?
---@return string? message
---@return string? code
function M.read(dir)
  local config, message, code = read(dir .. "/tokenizer_config.json")
  if message then return nil, message, code end
  local map
  map, message, code = read(dir .. "/special_tokens_map.json")
  if message then return nil, message, code end
  config, map = config or {}, map or {}
  local out = { tokens = {}, extra = {}, config = config }
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
      out.extra[#out.extra + 1] = token
    end
  end
  for _, source in ipairs { config, map } do
    local list = source.additional_special_tokens or source.extra_special_tokens
    for _, value in ipairs(type(list) == "table" and list or {}) do out.extra[#out.extra + 1] = token_of(value) end
  end
  return out
end

return M
