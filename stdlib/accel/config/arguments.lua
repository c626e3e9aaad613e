--- The flags of a launch, by the schema: with - or _ inside, with = or a word after, up to the script's name. The words after it are the
--- script's.
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"

local M = {}

---@class accel.config.Arguments
---@field values table<string, any> by key, the given values
---@field given table<string, boolean>
---@field script string?
---@field args string[] of the script

local function spelt(name) return "--" .. name:gsub("_", "-") end

local letters = {}
for _, row in ipairs(schema.list) do
  if row.letter then letters[row.letter] = row end
end

local function find(word)
  if word:find "^%-%a$" then
    return letters[word:sub(2)] or (word == "-t" and schema.by_flag.tee) or nil, word
  end
  local name, value = word:match "^%-%-([^=]+)=?(.*)$"
  if not name then return nil, word end
  name = name:gsub("-", "_")
  return schema.by_flag[name], name, word:find "=" and value or nil
end

local function unknown(word)
  local name = word:gsub("^%-+", ""):gsub("=.*$", ""):gsub("-", "_")
  local near = require "accel.util.nearest"(name, schema.by_flag)
  local use = require "accel.util.absent".flag((word:gsub("=.*$", "")))
  if use then return ("flag '%s' is not in accel; %s"):format(word:gsub("=.*$", ""), use) end
  return ("unknown flag '%s'%s"):format(word:gsub("=.*$", ""), near and ("; did you mean '%s'?"):format(spelt(near)) or "")
end

local function take(out, row, text)
  local flag = spelt(row.flag_names and row.flag_names[1] or row.key)
  local value, expected = scalar.typed(row, text)
  if value == nil then return nil, ("%s: '%s' is not %s"):format(flag, text, expected) end
  local allowed
  value, allowed = scalar.allowed(row, value)
  if value == nil then return nil, ("%s: '%s' is not %s"):format(flag, text, allowed) end
  if row.type == "texts" and out.given[row.key] then
    table.move(value, 1, #value, #out.values[row.key] + 1, out.values[row.key])
    return true
  end
  out.values[row.key], out.given[row.key] = value, true
  return true
end

--- Reads the flags. Returns nil and the reason if one is wrong.
---@param argv string[]
---@return accel.config.Arguments?
---@return string? message
function M.read(argv)
  local out, i = { values = {}, given = {}, args = {} }, 1
  while argv[i] and argv[i]:find "^%-." and argv[i] ~= "--" do
    local row, _, value = find(argv[i])
    if not row then return nil, unknown(argv[i]) end
    if row.type == "switch" then
      if value then return nil, ("%s takes no value"):format(spelt(row.key)) end
      out.values[row.key], out.given[row.key] = not row.negates, true
    else
      if not value then
        i = i + 1
        value = argv[i]
        if not value then return nil, ("%s needs a value"):format(argv[i - 1]) end
      end
      local ok, why = take(out, row, value)
      if not ok then return nil, why end
    end
    i = i + 1
  end
  if argv[i] == "--" then i = i + 1 end
  out.script = argv[i]
  out.args = table.move(argv, i + 1, #argv, 1, {})
  return out
end

return M
