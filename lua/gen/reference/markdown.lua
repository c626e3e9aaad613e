--- Converts comments to the text of a reference page: indented lines become a separate block, parameters and their
--- options become lists, examples keep their lines. Used by reference.lua and stubs.lua.
local options = require "reference.options"

local M = {}

--- Types by name that stand for a table of options.
M.aliases = {}

local function looks_like_lua(lines)
  local text = table.concat(lines, "\n")
  if load(text) or load("return " .. text) then return true end
  for _, word in ipairs { "^local ", "^for .* do", "^function ", "^return ", "^if .* then", "\n?end$" } do
    if text:find(word) then return true end
  end
  return text:find "^[%w_.:]+%b() *%-%-" ~= nil or text:find "^[%w_., ]+ = .*[%w%)%]}\"]$" ~= nil
end

-- Lines indented by two blanks or more that do not continue a list item: a block.
local function blocks(text)
  local out, i, item = {}, 1, false
  while i <= #text do
    local line = text[i]
    if line:find "^%s%s+%S" and not item then
      local from, last = i, i
      while text[i] and (text[i] == "" or text[i]:find "^%s%s+%S") do
        if text[i] ~= "" then last = i end
        i = i + 1
      end
      local indent = math.huge
      for k = from, last do
        if text[k] ~= "" then indent = math.min(indent, #text[k]:match "^%s*") end
      end
      local block = {}
      for k = from, last do block[#block + 1] = text[k]:sub(indent + 1) end
      if out[#out] ~= "" and #out > 0 then out[#out + 1] = "" end
      out[#out + 1] = looks_like_lua(block) and "```lua" or "```text"
      table.move(block, 1, #block, #out + 1, out)
      out[#out + 1] = "```"
      if text[last + 1] ~= "" and text[last + 1] then out[#out + 1] = "" end
      i = last + 1
    else
      item = line:find "^%s*[-*] " ~= nil or item and line:find "^%s+%S" ~= nil
      out[#out + 1] = line
      i = i + 1
    end
  end
  return out
end

--- Lines of a comment as one text.
---@param text string[]
---@return string
function M.text(text) return table.concat(blocks(text), "\n") end

--- Examples as a block of code. Several lines are surrounded by empty ones.
---@param list string[]
---@return string
function M.examples(list)
  local parts = {}
  for i, example in ipairs(list) do
    local long = example:find "\n" or i > 1 and list[i - 1]:find "\n"
    parts[i] = (i > 1 and long and "\n" or "") .. example
  end
  return "```lua\n" .. table.concat(parts, "\n") .. "\n```"
end

local function words(kind) return (kind:gsub("%s*|%s*", " or "):gsub("^%((.*)%)$", "%1")) end

--- "- `name`: type about", with the options below it. The declaration provides defaults and names that a comment lacks.
local function put_param(put, name, rest, declared)
  local kind, about, list = options.parse(rest, M.aliases)
  local known, missing = {}, {}
  for _, o in ipairs(list) do known[o.name] = true end
  for key in pairs(declared and (#list > 0 or kind == "table" and about == "") and declared or {}) do
    if not known[key] then missing[#missing + 1] = key end
  end
  table.sort(missing)
  put(("- `%s`: %s%s"):format(name, words(kind or "any"), about ~= "" and " " .. about or ""))
  for _, o in ipairs(list) do
    local default = o.default or declared and declared[o.name] or nil
    put(("  - `%s`%s%s%s"):format(o.name, o.type and " " .. words(o.type) or "", default and " = " .. default or "",
      o.about and ": " .. o.about or ""))
  end
  for _, key in ipairs(missing) do
    put(("  - `%s`%s"):format(key, declared[key] and " = " .. declared[key] or ""))
  end
end

--- Parameters (tag "param") or fields of an entry. declared: see options.declared.
---@param put fun(line: string)
---@param annotations string[]
---@param tag string
---@param heading? string above the first
---@param declared? table<string, string|false>
function M.annotations(put, annotations, tag, heading, declared)
  for _, a in ipairs(annotations) do
    local name, rest = a:match("^" .. tag .. "%s+(%S+)%s+(.*)$")
    if name then
      if heading then put("\n" .. heading .. "\n") end
      heading = nil
      if tag == "param" then
        local is_options = name:find "^opts" or name:find "^options" or name == "dataset?"
        put_param(put, name, rest, is_options and declared or nil)
      else
        put(("- `%s`: %s"):format(name, words((rest:gsub("\n%s*", " ")))))
      end
    end
  end
end

--- The results, as a line. Nothing if no comment describes them.
function M.returns(put, annotations)
  local parts = {}
  for _, a in ipairs(annotations) do
    local kind, about = a:match "^return%s+(%S+)%s*(.*)$"
    if kind then parts[#parts + 1] = words(kind) .. (about ~= "" and " " .. about:gsub("\n%s*", " ") or "") end
  end
  if #parts > 0 then put("- returns " .. table.concat(parts, "; ")) end
end

return M
