--- Values of templates with Python's meaning: none, undefined, lists, dictionaries that keep their order, and how they compare,
--- print and convert. Strings, booleans, integers and floats are Lua's own. Lengths and positions of strings count characters.
local accel = require "accel"
local limits = require "accel.text.jinja.limits"
local ordered = require "accel.util.ordered"

local problem = limits.problem

local M = {}

M.NONE = setmetatable({ kind = "none" }, { __tostring = function() return "none" end })

---@param name string its name, for messages
function M.undefined(name) return { kind = "undefined", name = name } end

--- n is counted by hand: entries are never nil.
function M.list(items, is_tuple) return { kind = "list", n = #items, items = items, tuple = is_tuple or false } end

function M.dict() return { kind = "dict", keys = {}, map = {} } end

function M.set(dict, key, value)
  if dict.map[key] == nil then dict.keys[#dict.keys + 1] = key end
  dict.map[key] = value
end

--- An integer that 64 bits may not hold: it can be written and compared, and is no operand.
---@param digits string
function M.big(digits)
  local text = digits:gsub("^0+(%d)", "%1")
  return math.type(tonumber(text)) == "integer" and math.tointeger(tonumber(text)) or { kind = "big", text = text }
end

function M.fn(name, call) return { kind = "function", name = name, call = call } end

--- The kind of a value: string integer float boolean big none undefined list dict namespace function.
function M.kind(v)
  local t = type(v)
  if t == "table" then return v.kind end
  if t == "number" then return math.type(v) end
  return t
end

local kind = M.kind
local names = {
  string = "str", integer = "int", float = "float", boolean = "bool", big = "int", none = "NoneType", undefined = "Undefined", list = "list",
  dict = "dict", namespace = "Namespace", ["function"] = "function",
}

--- Python's name of a value's type.
function M.type_name(v) return kind(v) == "list" and v.tuple and "tuple" or names[kind(v)] end

--- Converts a Lua value to a template's: tables with entries 1 .. n are lists, others dictionaries, in sorted order or
--- accel.util.ordered's. Functions are called with Lua values.
function M.import(v, depth)
  depth = depth or 0
  local t = type(v)
  if v == nil or v == accel.json.null then return M.NONE end
  if t == "string" then
    if not utf8.len(v) then problem(nil, "a string that was given is not UTF-8") end
    return v
  end
  if t == "number" or t == "boolean" then return v end
  if t == "function" then
    return M.fn("function", function(_, args)
      local plain = {}
      for i, a in ipairs(args) do plain[i] = M.export(a) end
      return M.import(v(table.unpack(plain, 1, #args)))
    end)
  end
  if t ~= "table" then problem(nil, "a %s was given, which templates do not know", t) end
  if depth >= limits.INPUT_DEPTH then problem(nil, "the input is nested more than %d deep", limits.INPUT_DEPTH) end
  local meta = getmetatable(v)
  if #v > 0 or (next(v) == nil and not ordered.is(v)) or (type(meta) == "table" and meta.__name == "accel.json.array") then
    local items = {}
    for i = 1, #v do items[i] = M.import(v[i], depth + 1) end
    return M.list(items)
  end
  local out = M.dict()
  for key, value in ordered.iterate(v) do
    if type(key) ~= "string" and math.type(key) ~= "integer" then problem(nil, "a dictionary was given with a %s for a key", type(key)) end
    M.set(out, key, M.import(value, depth + 1))
  end
  return out
end

--- Converts a value to Lua's. none and undefined are nil.
function M.export(v)
  local k = kind(v)
  if k == "none" or k == "undefined" then return nil end
  if k == "big" then return tonumber(v.text) + 0.0 end
  if k == "list" then
    local out = {}
    for i = 1, v.n do out[i] = M.export(v.items[i]) end
    return out
  elseif k == "dict" or k == "namespace" then
    local out = ordered()
    for _, key in ipairs(v.keys) do out[key] = M.export(v.map[key]) end
    return out
  end
  return v
end

--- Whether a condition takes it for true.
function M.truth(v)
  local k = kind(v)
  if k == "boolean" then return v end
  if k == "none" or k == "undefined" then return false end
  if k == "string" then return v ~= "" end
  if k == "integer" or k == "float" then return v ~= 0 end
  if k == "list" then return v.n > 0 end
  if k == "dict" then return #v.keys > 0 end
  return true
end

--- The shortest text that reads back as the float, as Python writes it.
function M.float_text(v)
  if v ~= v then return "nan" end
  if v == math.huge then return "inf" end
  if v == -math.huge then return "-inf" end
  local text
  for digits = 1, 17 do
    text = ("%." .. digits - 1 .. "e"):format(v)
    if tonumber(text) == v then break end
  end
  local sign, lead, rest, exponent = text:match "^(-?)(%d)%.?(%d*)e([-+]%d+)$"
  local digits, e = lead .. rest, math.tointeger(tonumber(exponent))
  if e < -4 or e >= 16 then
    return ("%s%s%se%s%02d"):format(sign, lead, rest ~= "" and "." .. rest or "", e < 0 and "-" or "+", math.abs(e))
  end
  if e < 0 then return sign .. "0." .. ("0"):rep(-e - 1) .. digits end
  digits = digits .. ("0"):rep(e + 1 - #digits)
  local fraction = digits:sub(e + 2)
  return sign .. digits:sub(1, e + 1) .. "." .. (fraction ~= "" and fraction or "0")
end

local plain_escapes = { ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ["\\"] = "\\\\" }

local function string_repr(s)
  local quote = s:find("'", 1, true) and not s:find('"', 1, true) and '"' or "'"
  s = s:gsub("[%c\\\127" .. quote .. "]", function(c)
    return plain_escapes[c] or (c == quote and "\\" .. c) or ("\\x%02x"):format(c:byte())
  end)
  return quote .. s .. quote
end

--- Python's repr.
function M.repr(v, budget, depth)
  depth = depth or 0
  if depth > limits.DEPTH then problem(nil, "a value is nested more than %d deep", limits.DEPTH) end
  local k = kind(v)
  if k == "string" then
    local _, n = v:gsub("%c", "")
    budget:work(#v // 4 + 2 * n)
    budget:bytes(#v + 3 * n)
    return string_repr(v)
  end
  if k == "list" then
    local parts = {}
    budget:work(20 + v.n)
    for i = 1, v.n do parts[i] = M.repr(v.items[i], budget, depth + 1) end
    local inside = budget:joined(parts, ", ")
    if v.tuple then return "(" .. inside .. (v.n == 1 and "," or "") .. ")" end
    return "[" .. inside .. "]"
  elseif k == "dict" then
    local parts = {}
    for i, key in ipairs(v.keys) do
      parts[i] = M.repr(key, budget, depth + 1) .. ": " .. M.repr(v.map[key], budget, depth + 1)
    end
    budget:work(#parts)
    return "{" .. budget:joined(parts, ", ") .. "}"
  elseif k == "undefined" then
    return "Undefined"
  end
  return M.text(v, budget)
end

--- Python's str: the output of {{ }}.
function M.text(v, budget)
  local k = kind(v)
  if k == "string" then return v end
  if k == "undefined" then return "" end
  if k == "none" then return "None" end
  if k == "boolean" then return v and "True" or "False" end
  if k == "integer" then return ("%d"):format(v) end
  if k == "big" then return v.text end
  if k == "float" then
    budget:work(40)
    return M.float_text(v)
  end
  if k == "list" or k == "dict" then return M.repr(v, budget) end
  return "<" .. M.type_name(v) .. ">"
end

local function number(v)
  if type(v) == "boolean" then return v and 1 or 0 end
  return type(v) == "number" and v or nil
end
M.number = number

--- Python's ==.
function M.equal(a, b, budget, depth)
  depth = depth or 0
  if depth > limits.DEPTH then problem(nil, "a value is nested more than %d deep", limits.DEPTH) end
  local x, y = number(a), number(b)
  if x and y then return x == y end
  if type(a) == "string" and type(b) == "string" then budget:work(math.min(#a, #b) // 64) end
  if type(a) == "string" or type(b) == "string" then return a == b end
  local k = kind(a)
  if k ~= kind(b) then return false end
  if k == "none" or k == "undefined" then return true end
  if k == "big" then return a.text == b.text end
  if k == "list" then
    if a.n ~= b.n or a.tuple ~= b.tuple then return false end
    for i = 1, a.n do
      budget:work(1)
      if not M.equal(a.items[i], b.items[i], budget, depth + 1) then return false end
    end
    return true
  elseif k == "dict" then
    if #a.keys ~= #b.keys then return false end
    for _, key in ipairs(a.keys) do
      budget:work(1)
      if b.map[key] == nil or not M.equal(a.map[key], b.map[key], budget, depth + 1) then return false end
    end
    return true
  end
  return a == b
end

--- Python's <, of numbers, of strings, and of lists.
function M.less(a, b, budget, line)
  local x, y = number(a), number(b)
  if x and y then return x < y end
  if type(a) == "string" and type(b) == "string" then
    budget:work(math.min(#a, #b) // 8)
    return a < b
  end -- UTF-8 keeps the order of code points
  if kind(a) == "list" and kind(b) == "list" and a.tuple == b.tuple then
    for i = 1, math.min(a.n, b.n) do
      budget:work(1)
      if not M.equal(a.items[i], b.items[i], budget) then return M.less(a.items[i], b.items[i], budget, line) end
    end
    return a.n < b.n
  end
  problem(line, "cannot order %s and %s", M.type_name(a), M.type_name(b))
end

--- The number of characters, entries or keys. nil for values without a length.
function M.length(v, budget)
  local k = kind(v)
  if k == "string" then
    budget:work(#v // 16)
    return utf8.len(v)
  end
  if k == "list" then return v.n end
  if k == "dict" then return #v.keys end
  if k == "undefined" then return 0 end
  return nil
end

--- The items of a loop, as a Lua list. Empty for undefined.
function M.sequence(v, budget, line)
  local k = kind(v)
  if k == "list" then
    budget:work(v.n)
    return v.items
  end
  if k == "dict" then
    budget:work(#v.keys)
    return table.move(v.keys, 1, #v.keys, 1, {})
  end
  if k == "undefined" then return {} end
  if k == "string" then
    local out = {}
    budget:work(2 * #v)
    for _, code in utf8.codes(v) do out[#out + 1] = utf8.char(code) end
    return out
  end
  problem(line, "%s is not iterable", M.type_name(v))
end

--- Whether `item` is in a value.
function M.contains(v, item, budget, line)
  local k = kind(v)
  if k == "string" then
    if type(item) ~= "string" then problem(line, "'in' of a string needs a string, got %s", M.type_name(item)) end
    budget:search(v, item)
    return v:find(item, 1, true) ~= nil
  elseif k == "list" then
    for i = 1, v.n do
      budget:work(1)
      if M.equal(v.items[i], item, budget) then return true end
    end
    return false
  elseif k == "dict" then
    return M.is_key(item) and v.map[item] ~= nil
  elseif k == "undefined" then
    return false
  end
  problem(line, "%s is not iterable", M.type_name(v))
end

function M.is_key(v) return type(v) == "string" or type(v) == "number" and v == v or type(v) == "boolean" end

--- The part of a string between characters a and b (1-based).
function M.characters(s, a, b)
  if b < a then return "" end
  if not s:find "[\128-\255]" then return s:sub(a, b) end
  local first = utf8.offset(s, a)
  local last = utf8.offset(s, b + 1)
  return s:sub(first, last - 1)
end

return M
