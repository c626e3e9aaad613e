--- Options of functions and arguments of layers for the reference pages: their names and types from comments, their
--- defaults from the code itself. Used by reference.lua and its test.
---
--- A comment lists options below the @param of their table, one a line and set in by two blanks, continued by four:
---
---   ---@param opts? table
---   ---  batch_size integer = 1: samples of a batch; false hands out
---   ---    samples as they are
---
--- "name type = default: meaning"; the default may be left out where there is none.
local M = {}

-- ---- text of Lua taken apart ----
-- Where the bracket that opens at `from` ends; strings are skipped.
local function closing(text, from)
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

-- Parts between commas that stand in no bracket; "<" counts as one where types are read.
local function split(text, angles)
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
  for _, part in ipairs(split(text:sub(2, -2), true)) do
    local name, kind = part:match "^([%a_][%w_]*):%s*(.*)$"
    if name then list[#list + 1] = { name = name, type = (kind:gsub("%?$", "")) } end
  end
  return list
end

-- "type = default: meaning" in its parts; nil: it is no such text.
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
end

-- Lines of the form above, less one blank: the list, and what is no such line, as text.
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

--- What follows "@param NAME " (lines of a comment): the type, text, options. `aliases`: types by name.
---@param rest string
---@param aliases? table<string, string>
---@return string kind
---@return string about
---@return table[] options {name =, type =, default =, about =}
function M.parse(rest, aliases)
  local first, more = rest:match "^([^\n]*)\n?(.*)$"
  local lines = {}
  for line in more:gmatch "[^\n]+" do lines[#lines + 1] = line end
  -- a type in brackets may go on in the next line
  local from = first:find("{", 1, true)
  while from and not closing(first, from) and #lines > 0 do
    first = first .. " " .. table.remove(lines, 1):match "^%s*(.*)$"
  end
  local list, text = written(lines)
  local till = from and closing(first, from)
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
  if kind == "table" and about:find "^[%a_][%w_]*, " then -- names alone; a sentence with commas is none
    for _, part in ipairs(split(about)) do
      if not part:find "^[%a_][%w_]*$" then return kind, about, {} end
      list[#list + 1] = { name = part }
    end
    return "table", "", list
  end
  return kind, about, list
end

--- Types of options by name: "---@class NAME: {...}", with those of the classes it builds on, in these files.
---@param paths string[]
---@return table<string, string>
function M.aliases(paths)
  local found = {}
  for _, path in ipairs(paths) do
    for line in io.lines(path) do
      local name, rest = line:match "^%-%-%-@class ([%w_.]+)%s*:%s*(.*{.*})$"
      if name then
        local own, base = rest:match "{(.*)}", rest:match "^([%w_.]+)"
        found[name] = base and found[base] and ("{%s, %s}"):format(found[base]:sub(2, -2), own) or "{" .. own .. "}"
      end
    end
  end
  return found
end

-- ---- defaults ----
-- A value as a page shows it; nil: it is none of the literals.
local function shown(v)
  if type(v) == "string" then return ("%q"):format(v) end
  if math.type(v) == "integer" then
    return v == math.maxinteger and "math.maxinteger" or v == math.mininteger and "math.mininteger" or tostring(v)
  end
  if type(v) == "number" then
    if v == math.huge then return "inf" end
    local text = ("%.14g"):format(v):gsub("e([+-])0*", function(sign) return "e" .. (sign == "-" and "-" or "") end)
    return text:find "[.e]" and text or text .. ".0"
  end
  if type(v) == "boolean" then return tostring(v) end
  if type(v) ~= "table" or getmetatable(v) then return nil end
  local parts = {}
  for i, x in ipairs(v) do
    parts[i] = shown(x)
    if not parts[i] then return nil end
  end
  if #parts == 0 and next(v) == nil then return "{}" end
  return #parts > 0 and "{ " .. table.concat(parts, ", ") .. " }" or nil
end

M.shown = shown

local function value_of(text)
  local f = load("return " .. text, "=default", "t", { math = math, inf = math.huge })
  local ok, v = pcall(f or error)
  if ok and v ~= nil then return shown(v) end
end

--- Whether two texts of defaults are one value.
function M.same(a, b) return a == b or value_of(a) ~= nil and value_of(a) == value_of(b) end

-- "{ key = expression, ... }": name -> text of the default, or false where it is no literal.
local function of_literal(text)
  local found = {}
  for _, part in ipairs(split(text:sub(2, -2))) do
    local name, expression = part:match "^([%a_][%w_]*)%s*=%s*(.*)$"
    if name then found[name] = expression ~= "options.none" and value_of(expression) or false end
  end
  return found
end

-- Code without comments.
local function bare(text) return (text:gsub("%-%-[^\n]*", "")) end

--- Arguments that a function hands to accel.nn.arguments: a list of {name, default}; nil: it does not.
---@param f function
---@return table[]?
function M.arguments(f)
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then return nil end
    if type(value) == "function" and debug.getinfo(value, "S").source:find("nn/arguments.lua", 1, true) then
      for k = 1, 255 do
        local inner, order = debug.getupvalue(value, k)
        if not inner then break end
        if inner == "order" then return order end
      end
    end
  end
end

--- Defaults of the options that the lines of a function declare in a call of accel.util.options: name -> text, false
--- for one without; nil: they declare none.
---@param lines string[] of the file
---@param from integer
---@param till integer
---@return table<string, string|false>?
function M.declared(lines, from, till)
  local body = bare(table.concat(lines, "\n", from, math.min(till, #lines)))
  local at, stop = body:find "%f[%w]options%s*%(%s*\"[^\"]*\"%s*,%s*[%w_.]+%s*,%s*"
  if not at then return nil end
  local rest = body:sub(stop + 1)
  if rest:find "^{" then
    local last = closing(rest, 1)
    return last and of_literal(rest:sub(1, last)) or nil
  end
  local name = rest:match "^([%a_][%w_]*)%s*%)"
  if not name then return nil end
  local all = bare(table.concat(lines, "\n"))
  local start = select(2, all:find("%f[%w_]local " .. name .. "%s*<?%a*>?%s*=%s*%f[{]"))
  local last = start and closing(all, start + 1)
  return last and of_literal(all:sub(start + 1, last)) or nil
end

--- Of the defaults that a class keeps in a field, as optimizers do.
function M.of_class(class)
  local defaults = type(class.defaults) == "table" and class.defaults
  if not defaults or next(defaults) == nil then return nil end
  local found = {}
  for name, value in next, defaults do
    if type(name) ~= "string" then return nil end
    found[name] = shown(value) or false
  end
  return found
end

return M
