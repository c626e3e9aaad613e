--- Types and options as comments write them: the part of annotations that takes text apart. Used by the reference pages and the sweep
--- of options. Checks of arguments read single options by util/annotations.lua.
---
--- A comment lists options below the @param of their table, one a line and set in by two blanks, continued by four:
---
---   ---@param opts? table
---   ---  batch_size integer = 1: samples of a batch; false hands out
---   ---    samples as they are
---
--- "name type = default: meaning". Default and meaning are optional.
local M = {}

-- ---- text of Lua taken apart ----
-- The end of the bracket that opens at `from`. Strings are skipped.
function M.closing(text, from)
  local depth, i = 0, from
  while i <= #text do
    local c = text:sub(i, i)
    if c == '"' or c == "'" then
      i = i + 1
      while i <= #text and text:sub(i, i) ~= c do i = i + (text:sub(i, i) == "\\" and 2 or 1) end
    elseif c:find "[%(%[{]" then
      depth = depth + 1
    elseif c:find "[%)%]}]" then
      depth = depth - 1
      if depth == 0 then return i end
    end
    i = i + 1
  end
end

-- Parts between commas outside brackets. "<" counts as one if types are read.
function M.split(text, angles)
  local parts, depth, from, i = {}, 0, 1, 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == '"' or c == "'" then
      i = text:find(c, i + 1, true) or #text
    elseif c:find "[%(%[{]" or angles and c == "<" then
      depth = depth + 1
    elseif c:find "[%)%]}]" or angles and c == ">" then
      depth = depth - 1
    elseif c == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, i - 1)
      from = i + 1
    end
    i = i + 1
  end
  parts[#parts + 1] = text:sub(from)
  for k, part in ipairs(parts) do parts[k] = part:match "^%s*(.-)%s*$" end
  if parts[#parts] == "" then parts[#parts] = nil end
  return parts
end

--- Options of a type, "{name: type, ...}": a list of {name =, type =}.
local function of_type(text)
  local list = {}
  for _, part in ipairs(M.split(text:sub(2, -2), true)) do
    local name, kind = part:match "^([%a_][%w_]*):%s*(.*)$"
    if name then list[#list + 1] = { name = name, type = (kind:gsub("%?$", "")) } end
  end
  return list
end

local PLAIN = { string = true, integer = true, number = true, boolean = true, table = true }

-- "type = default: meaning" split into its parts. nil: it is another text.
local function told(text)
  local depth = 0
  for i = 1, #text do
    local c = text:sub(i, i)
    if c:find "[%(%[{]" then depth = depth + 1 end
    if c:find "[%)%]}]" then depth = depth - 1 end
    if depth == 0 and text:find("^: ?", i) and not text:find("^:%S", i) then
      local kind, default = text:sub(1, i - 1):match "^(.-) = (.*)$"
      kind = kind or text:sub(1, i - 1)
      if kind == "" or kind:find "%s%S+%s" and not kind:find "[%({|]" then return nil end -- a sentence
      return kind, default, text:sub(i + 2)
    end
  end
  local kind, default = text:match "^(%S+) = (%S+)$" -- without a meaning
  if kind or PLAIN[text] then return kind or text, default, "" end
end

-- Lines of the form above, less one blank: the list. Other lines are returned as text.
local function written(lines)
  local list, rest = {}, {}
  for _, line in ipairs(lines) do
    local indent, text = line:match "^(%s*)(.*)$"
    local name, rest_of = text:match "^([%a_][%w_]*) (.*)$"
    local kind, default, about
    if name and #indent <= 1 then kind, default, about = told(rest_of) end
    if kind and name ~= "default" then
      list[#list + 1] = { name = name, type = kind, default = default, about = about }
    elseif #list > 0 and #indent > 1 then
      list[#list].about = list[#list].about .. " " .. text
    else
      rest[#rest + 1] = text
    end
  end
  return list, table.concat(rest, " ")
end

--- The content after "@param NAME " (lines of a comment): the type, text, options. `aliases`: types by name.
---@param rest string
---@param aliases? table<string, string>
---@return string kind
---@return string about
---@return table[] options {name =, type =, default =, about =}
function M.parse(rest, aliases)
  local first, more = rest:match "^([^\n]*)\n?(.*)$"
  local lines = {}
  for line in more:gmatch "[^\n]+" do lines[#lines + 1] = line end
  -- a type in brackets may continue in the next line
  local from = first:find("{", 1, true)
  while from and not M.closing(first, from) and #lines > 0 do
    first = first .. " " .. table.remove(lines, 1):match "^%s*(.*)$"
  end
  local list, text = written(lines)
  local till = from and M.closing(first, from)
  local kind, about
  if till then
    local before = first:sub(1, from - 1)
    kind, about = before .. first:sub(from, till), first:sub(till + 1)
    local more_kind = about:match "^[^%s,]+"
    if more_kind then kind, about = kind .. more_kind, about:sub(#more_kind + 1) end
  else
    kind, about = first:match "^(%S+)%s*(.*)$"
  end
  about = (about .. " " .. text):match "^%s*(.-)%s*$"
  if #list > 0 then return "table", about, list end
  if till then
    local options = of_type(first:sub(from, till))
    for name in first:sub(1, from - 1):gmatch "[%w_.]+" do
      for _, o in ipairs(aliases and aliases[name] and of_type(aliases[name]) or {}) do options[#options + 1] = o end
    end
    if #options > 0 and not kind:find "^[^{]*|%s*{.*}.*|" and not kind:find "^table<" then
      return (kind:find "^{" and "table" or kind:match "^(.-)|?{" or "table"), about, options
    end
  end
  for name in (kind or ""):gmatch "[%w_.]+" do
    if aliases and aliases[name] then return "table", about, of_type(aliases[name]) end
  end
  if kind == "table" and about:find "^[%a_][%w_]*, " then -- names alone, not a sentence with commas
    for _, part in ipairs(M.split(about)) do
      if not part:find "^[%a_][%w_]*$" then return kind, about, {} end
      list[#list + 1] = { name = part }
    end
    return "table", "", list
  end
  return kind, about, list
end

return M
