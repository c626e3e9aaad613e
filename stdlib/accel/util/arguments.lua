--- The arguments of a layer or function: positional ones in PyTorch's order, then at most one table of named ones, in
--- which an unknown key is an error that names the nearest. Any parameter may be given either way.
---
---   local parse = arguments("MaxPool2d", { "kernel_size", list = true }, { "stride", list = true },
---     { "ceil_mode", false })
---   local o = parse(...)         -- MaxPool2d(2), MaxPool2d(2, { stride = 1 }), MaxPool2d({ 2, 3 }, 1)
---
--- A parameter is {name, default}. Its value has the type of the default. Without a default it may be absent and have
--- any type, so that the layer checks it. `list = true`: a number or a list, `any = true`: any type.
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- Whether a last argument is the table of options: string keys, no class. An empty table is a list if the parameter is
--- a list.
local function is_options(value, entry)
  if type(value) ~= "table" or getmetatable(value) ~= nil or rawlen(value) > 0 then return false end
  return next(value) ~= nil or not (entry and entry.list)
end

---@param who string the name of the layer or function, for messages
---@param ... table parameters in order
---@return fun(...): table
function M.declare(who, ...)
  local order, declared, defaults = { ... }, nil, nil
  return function(...)
    if not declared then -- by the first call: most functions that are loaded are never called
      declared, defaults = {}, {}
      for _, entry in ipairs(order) do
        local name, default = entry[1], entry[2]
        local loose = default == nil or entry.list or entry.any
        declared[name] = loose and options.none or default
        if loose then defaults[name] = default end
      end
    end
    local args, given = table.pack(...), {}
    local n = args.n
    while n > 0 and args[n] == nil do n = n - 1 end -- parameters of the caller that were not given
    local named = is_options(args[n], order[n]) and args[n] or nil
    if named then n = n - 1 end
    for i = 1, n do
      local entry, value = order[i], args[i]
      if not entry then
        raise("%s: takes at most %d arguments, then options; argument %d is %s", who, #order, i, check.shown(value))
      end
      if value ~= nil then given[entry[1]] = value end
    end
    for key, value in next, named or {} do
      if given[key] ~= nil then raise("%s: '%s' is given by position and as an option", who, tostring(key)) end
      given[key] = value
    end
    local o = options(who, given, declared)
    for name, default in next, defaults do
      if o[name] == nil then o[name] = default end
    end
    return o
  end
end

--- One number for each of n spatial dimensions: from a number, or a list of n.
---@param low integer smallest allowed
---@return integer[]
function M.tuple(who, name, value, n, low)
  local list = {}
  if type(value) ~= "table" then
    for i = 1, n do list[i] = value end
  elseif #value == n then
    table.move(value, 1, n, 1, list)
  else
    raise("%s: %s must be a number or a list of %d, got a list of %d", who, name, n, #value)
  end
  for i = 1, n do
    local whole = math.type(list[i]) and math.tointeger(list[i])
    if not whole or whole < low then
      raise("%s: %s must be an integer of at least %d%s, got %s", who, name, low,
        n > 1 and (", or a list of %d"):format(n) or "", check.shown(list[i]))
    end
    list[i] = whole
  end
  return list
end

--- "(3, 3)" or "(3,)", as tuples are printed.
---@param list integer[]
function M.text(list)
  local parts = {}
  for i, value in ipairs(list) do parts[i] = tostring(value) end
  return ("(%s%s)"):format(table.concat(parts, ", "), #parts == 1 and "," or "")
end

return setmetatable(M, { __call = function(_, ...) return M.declare(...) end })
