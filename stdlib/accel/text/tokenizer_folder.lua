--- How a tokenizer is made from a model's folder: its tokenizer.json, or the files of its class (accel.text.sources), with names and
--- options of tokenizer_config.json and special_tokens_map.json. Used by accel.text.Tokenizer.
local chat_template = require "accel.text.chat_template"
local core = require "accel.text.core"
local model_folder = require "accel.util.model_folder"
local options = require "accel.text.sources.options"
local read_file = require "accel.util.read_file"
local special_tokens = require "accel.text.special_tokens"

local M = {}

local MOST <const> = 512 << 20 -- bytes of a tokenizer.json

--- The object of C for a description. nil, message, code if it is wrong.
---@param json string
---@param where string a file, for messages
---@return userdata?
---@return string? message
---@return string? code
function M.parse(json, where)
  local ok, native = pcall(core.parse, json)
  if ok then return native end
  if type(native) ~= "table" or native.code == "out_of_memory" then error(native, 0) end
  return nil, ("%s: %s"):format(where, tostring(native.message)), "parse"
end

--- The object of C, and what the class of a tokenizer without tokenizer.json adds.
local function open(dir, beside)
  local path = dir .. "/tokenizer.json"
  local native, message, code
  if options.given(beside.config) then
    local text
    text, message, code = read_file(path, MOST)
    local changed = text and options.apply(text, beside.config, require("accel.text.sources").family(dir, beside.config))
    if changed then
      native, message, code = M.parse(changed, path)
      return native, message, code
    end
  end
  native, message, code = core.open(path)
  if native or code ~= "not_found" then return native, message and model_folder.missing(dir, message), code end
  local json, made, kind = require("accel.text.sources").read(dir, beside) -- files of many kinds: their readers are large
  if not json then
    if kind == "not_found" then return nil, model_folder.missing(dir, message), code end
    return nil, made, kind == "incomplete" and "not_found" or kind
  end
  native, message, code = M.parse(json, dir)
  return native, message, code, made
end

--- Fills a tokenizer from a folder. Returns the object of C and the fields.
---@param dir string
---@return userdata?
---@return table|string fields or message
---@return string? code
function M.read(dir)
  local beside, message, code = special_tokens.read(dir)
  if not beside then return nil, model_folder.missing(dir, message), code end
  local native, made
  native, message, code, made = open(dir, beside)
  if not native then return nil, message, code end
  local config, extra, fields = beside.config, beside.extra, {}
  made = made or { named = {} }
  for _, name in ipairs(special_tokens.names) do
    local token = beside.tokens[name]
    fields[name] = token and token.content or made.named[name]
    if token then extra[#extra + 1] = token end
  end
  local new = {}
  for _, token in ipairs(extra) do
    if token.content ~= "" and not native:token_to_id(token.content) then new[#new + 1] = token end
  end
  if #new > 0 then native:add_tokens(new) end
  fields.padding_side = made.padding_side
  for _, side in ipairs { "padding_side", "truncation_side" } do
    if config[side] == "left" or config[side] == "right" then fields[side] = config[side] end
  end
  local most = math.tointeger(config.model_max_length)
  if most and most < 2 ^ 31 then fields.model_max_length = most end
  fields.model_input_names = type(config.model_input_names) == "table" and config.model_input_names or made.inputs
  local templates
  templates, message, code = chat_template.find(dir, config)
  if message then return nil, message, code end
  fields.config, fields.chat_template = config, templates
  return native, fields
end

return M
