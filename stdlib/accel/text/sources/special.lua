--- Special tokens of a tokenizer that is made from its vocabulary: those of tokenizer_config.json and special_tokens_map.json, of
--- added_tokens.json, and the defaults of the tokenizer's class. They are added in the order of Transformers, on which new ids depend. Used
--- by the other files of this folder.
local names = require("accel.text.special_tokens").names

local M = {}

local function token_of(value)
  if type(value) == "string" then return { content = value, special = true } end
  return value
end

--- Adds them to a description and returns the texts of the named ones.
---@param d table accel.text.sources.description
---@param beside table of special_tokens.read
---@param defaults table<string, string|table> by name: "unk_token"
---@param more? (string|table)[] further tokens, added last
---@return table<string, string>
function M.add(d, beside, defaults, more)
  local named, is_named = {}, {}
  for _, name in ipairs(names) do
    local token = beside.tokens[name] or token_of(defaults[name])
    if token then named[name], is_named[token.content] = token, true end
  end
  for _, token in ipairs(beside.decoder) do
    if is_named[token.content] then token.special = true end
    d:add(token)
  end
  for _, name in ipairs(names) do
    local token = named[name]
    if token then
      token.special = true
      d:add(token)
      named[name] = token.content
    end
  end
  for _, token in ipairs(beside.additional) do d:add(token) end
  for _, token in ipairs(more or {}) do d:add(token_of(token)) end
  return named
end

return M
