--- Options of functions and arguments of layers for the reference pages: their names and types from comments, their
--- defaults from the code itself. Used by reference.lua and its test.
---
--- A comment lists options below the @param of their table, one a line and set in by two blanks, continued by four:
---
---   ---@param opts? table
---   ---  batch_size integer = 1: samples of a batch; false hands out
---   ---    samples as they are
---
--- "name type = default: meaning". The default is optional.
local text_of = require "accel.util.option_text"

local M = { parse = text_of.parse }
local closing, split = text_of.closing, text_of.split

--- Types of options by name: "---@class NAME: {...}", including inherited ones, in these files.
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
-- A value as a page shows it. nil: it is not a literal.
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

-- "{ key = expression, ... }": name -> text of the default, or false if it is not a literal.
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

--- Arguments that a function passes to accel.nn.arguments: a list of {name, default}. nil: it does not.
---@param f function
---@return table[]?
function M.arguments(f)
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then return nil end
    if type(value) == "function" and debug.getinfo(value, "S").source:find("util/arguments.lua", 1, true) then
      for k = 1, 255 do
        local inner, order = debug.getupvalue(value, k)
        if not inner then break end
        if inner == "order" then return order end
      end
    end
  end
end

--- Defaults of the options that the lines of a function declare in a call of accel.util.options: name -> text, false
--- for one without. nil: they declare none.
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
