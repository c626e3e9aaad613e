-- Runs a test as if one option had never been given: every call of one class, function or method loses it. Used by
-- tests/options/elsewhere_test.lua, and by support/ranks.lua for the ranks of such a test.
--   ACCEL_TEST_DROP="NAME OPTION PLACE LOG" accel-run tests/support/option_drop.lua TEST [ARGUMENT...]
-- NAME: of the reference pages. PLACE: of the option among the positional arguments, 0 where it has none. A line goes into the file LOG for
-- each call that lost the option.
local accel = require "accel"
local class = require "accel.util.class"
local NAME <const>, OPTION <const>, PLACE <const>, LOG <const> = (os.getenv "ACCEL_TEST_DROP"):match "^(%S+) (%S+) (%d+) (.*)$"

--- Whether the first argument of a function is an object.
local function declared(f)
  f = require "accel.util.checked".original(f)
  return debug.getinfo(f, "u").nparams > 0 and debug.getlocal(f, 1) == "self"
end

--- What a name leads to: a class, or the function that is called, and whether its first argument is an object.
local function resolve(name)
  local object, method = name:match "^(.-):(.*)$"
  if object == "Tensor" then return accel.Tensor[method], 1 end
  local at = accel
  for key in (object or name):gsub("^accel%.", ""):gmatch "[^.]+" do at = at[key] end
  if method then return at[method], declared(at[method]) and 1 or 0 end
  return at, class.isclass(at) and 1 or 0
end

local target, lead = resolve(NAME)
local cls = class.isclass(target) and target or nil
local wanted = cls and cls.init or target
local place = tonumber(PLACE) + lead

--- A table of options without the one, also of those in a list; nil where it is not among them.
local function without(value, inner)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return nil end
  local copy, lost = {}, rawget(value, OPTION) ~= nil
  for key, x in next, value do
    local less = not inner and math.type(key) and without(x, true)
    lost = lost or less ~= nil and less ~= false
    if key ~= OPTION then copy[key] = less or x end
  end
  return lost and copy or nil
end

--- Calls the function with what is left of its arguments.
local function lossy(...)
  local self = ...
  if cls and not class.isinstance(self, cls) then return wanted(...) end
  local args, lost = table.pack(...), false
  for i = 1, args.n do
    local copy = without(args[i])
    if copy then
      args[i], lost = copy, true
    elseif i == place and place > lead and args[i] ~= nil then
      args[i], lost = nil, true
    end
  end
  if not lost then return wanted(...) end
  do
    local f <close> = assert(io.open(LOG, "a"))
    f:write(NAME, " ", OPTION, "\n")
  end
  return wanted(table.unpack(args, 1, args.n))
end

-- Whoever holds the function holds the other one from now on: tables, upvalues and metatables. A hook on all calls would
-- make tests eight times as slow.
local seen, stack = { [lossy] = true, [without] = true, [wanted] = true }, { package.loaded, accel.Tensor, debug.getmetatable(accel.ones(1)), _G }
local function visit(value)
  local kind = type(value)
  if (kind == "table" or kind == "function" or kind == "userdata") and not seen[value] then
    seen[value] = true
    stack[#stack + 1] = value
  end
end
while #stack > 0 do
  local object = table.remove(stack)
  local kind = type(object)
  if kind == "table" then
    for key, value in next, object do
      if value == wanted and type(value) == "function" then rawset(object, key, lossy) end
      visit(key)
      visit(value)
    end
  elseif kind == "function" then
    for i = 1, math.huge do
      local name, value = debug.getupvalue(object, i)
      if not name then break end
      if type(value) == "function" and value == wanted then debug.setupvalue(object, i, lossy) end
      visit(value)
    end
  else
    for i = 1, math.huge do
      local value, there = debug.getuservalue(object, i)
      if not there then break end
      visit(value)
    end
  end
  visit(debug.getmetatable(object))
end

-- Who reads the declaration of the function reads that of its own.
for _, name in ipairs { "getinfo", "getlocal" } do
  local read = debug[name]
  debug[name] = function(of, ...) -- luacheck: ignore 122
    if of == lossy then of = wanted elseif math.type(of) then of = of + 1 end
    return read(of, ...)
  end
end

local test = arg[1]
arg = table.move(arg, 2, #arg, 1, { [0] = test }) -- luacheck: ignore 121
dofile(test)
