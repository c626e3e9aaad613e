--- Python's formatting by %, for the filter format and the operator % of templates: '%-5s|%5.2f|%(name)d'. Widths and precisions are
--- bounded, and a `*` in their place is refused.
local limits = require "accel.text.jinja.limits"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local kind = values.kind

local WIDTH <const>, PRECISION <const> = 1000, 60

--- A text with blanks to `width` characters.
local function padded(s, flags, width)
  local missing = width - utf8.len(s)
  if missing <= 0 then return s end
  if flags:find("-", 1, true) then return s .. (" "):rep(missing) end
  return (" "):rep(missing) .. s
end

local function integer_of(v, conversion, line)
  local n = values.number(v)
  if n and math.type(n) == "float" and conversion:find "[diu]" and n == n and math.abs(n) ~= math.huge then
    n = math.tointeger(n < 0 and math.ceil(n) or math.floor(n))
  end
  if math.type(n) ~= "integer" then problem(line, "%%%s needs an integer, got %s", conversion, values.type_name(v)) end
  return n
end

--- Digits of an integer in base 8, 10 or 16, with sign, prefix, precision and zeros.
local function whole(v, flags, width, precision, conversion, line)
  local n = integer_of(v, conversion, line)
  local base = ({ o = "%o", x = "%x", X = "%X" })[conversion]
  local digits
  if base then
    if n == math.mininteger then problem(line, "the integer is too large") end
    digits = base:format(math.abs(n))
  else
    digits = ("%d"):format(n):gsub("^-", "")
  end
  if precision and #digits < precision then digits = ("0"):rep(precision - #digits) .. digits end
  local sign = n < 0 and "-" or flags:find("+", 1, true) and "+" or flags:find(" ", 1, true) and " " or ""
  if base and flags:find("#", 1, true) then sign = sign .. "0" .. conversion end
  if flags:find("0", 1, true) and not flags:find("-", 1, true) then
    digits = ("0"):rep(width - #sign - #digits) .. digits
  end
  return padded(sign .. digits, flags, width)
end

local function real(v, flags, width, precision, conversion, line)
  local n = values.number(v)
  if not n then problem(line, "%%%s needs a number, got %s", conversion, values.type_name(v)) end
  if n ~= n or math.abs(n) == math.huge then flags = flags:gsub("0", "") end
  local text = ("%%%s.%d%s"):format(flags:gsub("[-0]", ""), precision or 6, conversion):format(n)
  if #text < width and flags:find("0", 1, true) and not flags:find("-", 1, true) then
    local sign, rest = text:match "^([-+ ]?)(.*)$"
    text = sign .. ("0"):rep(width - #text) .. rest
  end
  return padded(text, flags, width)
end

local function character(v, line)
  if type(v) == "string" and utf8.len(v) == 1 then return v end
  if math.type(v) == "integer" and v >= 0 and v <= 0x10FFFF and (v < 0xD800 or v > 0xDFFF) then return utf8.char(v) end
  problem(line, "%%c needs a character or its number, got %s", values.type_name(v))
end

--- One value by one conversion.
local function converted(v, flags, width, precision, conversion, budget, line)
  if kind(v) == "undefined" and not conversion:find "[sr]" then problem(line, "%s is undefined", limits.quoted(v.name)) end
  if conversion:find "[diuoxX]" then
    if kind(v) == "big" and conversion:find "[diu]" then return padded(v.text, flags, width) end
    return whole(v, flags, width, precision, conversion, line)
  end
  if conversion:find "[eEfFgG]" then return real(v, flags, width, precision, conversion, line) end
  local s
  if conversion == "c" then
    s = character(v, line)
  else
    s = conversion == "s" and values.text(v, budget) or values.repr(v, budget)
    if precision then
      budget:work(#s // 16)
      s = values.characters(s, 1, math.min(precision, utf8.len(s)))
    end
  end
  return padded(s, flags, width)
end

--- The text of a format with its values: a list, or a dictionary for %(name)s.
---@param source string
---@param args any[] values in order
---@param named table<string, any>? values by name
---@param budget accel.text.jinja.Budget
---@param line integer?
---@return string
return function(source, args, named, budget, line)
  local parts, at, used = {}, 1, 0
  budget:work(#source // 2)
  while true do
    local mark = source:find("%", at, true)
    if not mark then break end
    parts[#parts + 1] = source:sub(at, mark - 1)
    local name, rest = source:match("^%((.-)%)()", mark + 1)
    local flags, width, point, precision, conversion, stop = source:match("^([-+ #0]*)(%d*)(%.?)(%d*)[hlL]?(.)()", rest or mark + 1)
    if not conversion then problem(line, "format: a conversion after %% is missing in %s", limits.quoted(source)) end
    if conversion == "%" then
      parts[#parts + 1] = "%"
    else
      if not conversion:find "[diuoxXeEfFgGcrs]" then
        problem(line, "format: unknown conversion %s in %s", limits.quoted("%" .. conversion), limits.quoted(source))
      end
      width, precision = tonumber(width) or 0, point ~= "" and (tonumber(precision) or 0) or nil
      if width > WIDTH or (precision or 0) > (conversion:find "[sr]" and WIDTH or PRECISION) then
        problem(line, "format: a width or precision that is too large in %s", limits.quoted(source))
      end
      local v
      if name then
        v = named and named[name]
        if v == nil then problem(line, "format: there is no value for %s", limits.quoted("%(" .. name .. ")")) end
      else
        used = used + 1
        v = args[used]
        if v == nil then problem(line, "format: %d values are not enough for %s", #args, limits.quoted(source)) end
      end
      budget:work(40 + width // 16)
      parts[#parts + 1] = converted(v, flags, width, precision, conversion, budget, line)
    end
    at = stop
  end
  if (not named or next(named) == nil) and used < #args then
    problem(line, "format: %d values, but %s takes %d", #args, limits.quoted(source), used)
  end
  parts[#parts + 1] = source:sub(at)
  return budget:joined(parts, "", line)
end
