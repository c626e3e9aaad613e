--- An argument without its declared type: arguments by name, messages, and the function's own message. The part of util/checked.lua
--- that correct calls never load.
local annotations = require "accel.util.annotations"
local check = require "accel.util.check"
local checked = require "accel.util.checked"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local M = {}

--- Parameters that are the table of options.
local TABLES <const> = { opts = true, o = true, options = true, given = true, kwargs = true }

-- A type in messages: "list" and "table" for structured types.
local function shown(kind)
  local words, listed = {}, {}
  for _, one in ipairs((checked.alternatives(kind))) do
    local word = one
    if one:find "%[%]$" then word = "list"
    elseif one:find "^table" or one:find "^{" then word = "table"
    elseif one:find "^fun%(" then word = "function"
    elseif one == "accel.Tensor" then word = "tensor"
    end
    if not listed[word] then words[#words + 1] = word end
    listed[word] = true
  end
  return table.concat(words, " or ")
end

--- A value in messages: what kind it is, and for a table of options a name in it.
---@param value any
---@return string
function M.shown_value(value)
  local text = check.shown(value)
  if math.type(value) == "integer" then return "integer " .. text end
  if type(value) == "string" then return "string " .. text end
  local key = type(value) == "table" and not getmetatable(value) and next(value)
  if type(key) == "string" then return ("a table with '%s'"):format(key) end
  return text
end

local got = M.shown_value

--- The message about an option.
function M.option(who, key, kind, value)
  return ("bad option '%s' to '%s' (expected %s, got %s)"):format(key, who, shown(kind), got(value))
end

local function fault(who, names, params, i, value)
  local name = names[i]
  if name == "self" then return ("%s: call it with a colon, on an object; the object is %s"):format(who, got(value)) end
  return ("bad argument #%d '%s' to '%s' (expected %s, got %s)"):format(names[1] == "self" and i - 1 or i, name, who,
    shown(annotations.kind(params[name])), got(value))
end

local library <const> = debug.getinfo(1, "S").source:match "^(.*)util/[^/]*$" or "@"

-- Whether the function that called a checked one is the library's own; pcall and the like pass on what they are given.
local function from_library(level)
  while true do
    local info = debug.getinfo(level, "S")
    if not info then return true end -- the first function of a thread
    if info.what ~= "C" then return info.source:sub(1, #library) == library end
    level = level + 1
  end
end

--- Raises for arguments that have no parameter, if a script gave them.
---@param who string
---@param names string[] parameters
---@param base any the method that this one overrides, or nil: a script may give as many as that takes
---@param ... any what was given after the last parameter
function M.surplus(who, names, base, ...)
  if from_library(5) then return end
  local room = type(base) == "function" and debug.getinfo(checked.original(base), "u").nparams - #names or 0
  for i = math.max(1, room + 1), 3 do
    local value = select(i, ...)
    if value ~= nil then
      local most = math.max(#names, #names + room) - ((names[1] == "self" or names[1] == "_") and 1 or 0)
      raise("%s: unexpected argument, %s; %s", who, check.shown(value), most == 0 and "it takes none" or ("it takes at most %d"):format(most))
    end
  end
end

-- Whether an error is one that Lua itself raised, or that points into the library.
local function is_raw(err)
  if type(err) ~= "string" then return false end
  for _, pattern in ipairs { "^[^\n:]*/lua/5%.4/accel/[%w_/]+%.lua:%d+:", "attempt to ",
    "bad argument #%d+ to '", "has no integer representation" } do
    if err:find(pattern) then return true end
  end
  return false
end

local function settle(message, certain, ok, ...)
  if ok then return ... end
  if is_raw((...)) or certain and not tostring((...)):find(", with a colon", 1, true) then raise("%s", message) end
  error((...), 0)
end

-- The arguments, completed from the last one, a table with string keys. nil: it cannot stand at position i.
local function spread(names, i, args, who, optional)
  local last = args.n
  while last > i and args[last] == nil do last = last - 1 end
  local table_of = args[last]
  if last ~= i or type(table_of) ~= "table" or getmetatable(table_of) or rawlen(table_of) > 0
    or table_of[names[i]] == nil and not (optional and next(table_of) ~= nil) then
    return nil
  end
  local rest, any = {}, false
  local place = {}
  for k = i, #names do place[names[k]] = k end
  args[i] = nil
  for key, value in next, table_of do
    local k = place[key]
    if k then
      args[k] = value
      args.n = math.max(args.n, k)
    else
      rest[key], any = value, true
    end
  end
  if any then
    for k = i, #names do
      if TABLES[names[k]] and args[k] == nil then
        args[k], args.n = rest, math.max(args.n, k)
        return args
      end
    end
    return nil -- options that it does not have: the function's to refuse
  end
  return args
end

--- Calls the function with possibly wrong arguments: named ones in their positions, others unchanged. An error of Lua becomes the
--- message about the argument.
---@param whole function the function with its check
---@param f function
---@param who string
---@param names string[] of parameters
---@param params table<string, table> the declarations
---@param what integer|string the position of the argument, or the message about an option
---@param ... any arguments
function M.handle(whole, f, who, names, params, what, ...)
  local certain = false
  if math.type(what) then
    local value, param = select(what, ...), params[names[what]]
    -- in a script, a plain table or a number in the place of self is a dot for a colon, whatever the function says of its other arguments
    certain = names[what] == "self" and not class.of_metatable(getmetatable(value)) and not from_library(3)
    local args = not certain and type(value) == "table" and spread(names, what, table.pack(...), who, param and param.optional)
    if args then return whole(table.unpack(args, 1, args.n)) end
    if type(value) == "table" and not getmetatable(value) then
      for key in next, value do require("accel.util.absent").refuse_option(who, key) end
    end
    what = fault(who, names, params, what, value)
  end
  return settle(what, certain, pcall(f, ...))
end

return M
