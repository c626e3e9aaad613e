--- The call of a module, net(x): hooks, forward, and the collector's turn. The one place where arguments reach a forward, so that none is
--- lost there: Lua drops arguments beyond a function's parameters, and a misplaced option with them. A call that gives more than forward
--- takes raises with the names of its parameters, whether a script or another module calls. A forward with `...` takes any number and
--- checks them itself (check.surplus), or passes them on as containers do.
---
--- Each forward has a call of its own, made when it first runs and kept as __call of its class. It knows the number of forward's
--- parameters, so that a call looks nothing up. Modules with hooks, or with a forward in the instance, take the general one.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local gc_check = accel.gc_check
local debug, getmetatable, rawget, rawset, select, type = debug, getmetatable, rawget, rawset, select, type

local M = {}

local rooms = setmetatable({}, { __mode = "k" }) -- forward -> its number of parameters. false: any number
local calls = setmetatable({}, { __mode = "k" }) -- forward -> its call
local made = setmetatable({}, { __mode = "k" }) -- the calls made here
local factories = {} -- number of parameters, or false -> a function that makes calls

--- How many arguments a forward takes. false: any number.
local function room_of(forward)
  local room = rooms[forward]
  if room == nil then
    local info = type(forward) == "function" and debug.getinfo(forward, "u")
    room = info and not info.isvararg and math.max(info.nparams - 1, 0) or false
    if info then rooms[forward] = room end
  end
  return room
end

--- Raises for arguments after the last parameter.
local function refuse(self, forward, ...)
  local room = room_of(forward)
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if value ~= nil then
      local names = {}
      for k = 1, room do names[k] = debug.getlocal(forward, k + 1) end
      raise("%s: unexpected argument %d, %s; forward takes %s", class.of(self).__name:match "[^.]*$", room + i,
        require("accel.util.checked_faults").shown_value(value), room == 0 and "no arguments" or table.concat(names, ", "))
    end
  end
end

--- Raises for arguments that a module's forward would drop. A forward with `...` in the instance stands in front of the class's own and
--- passes on what it is given.
---@param self accel.nn.Module
---@param forward function the module's
---@param ... any
function M.check(self, forward, ...)
  local room = room_of(forward)
  if room == false and rawget(self, "forward") ~= nil then
    forward = class.of(self).forward
    room = room_of(forward)
  end
  if room and select("#", ...) > room then refuse(self, forward, select(room + 1, ...)) end
end

local function leave(...)
  gc_check()
  return ...
end

--- Makes calls of forwards with this number of parameters. Their code stands in this file in tracebacks.
local function factory_of(room)
  if not room then
    return function(forward)
      return function(self, ...)
        if self._hooks or self.forward ~= forward then return M.any(self, ...) end
        return leave(forward(self, ...))
      end
    end
  end
  local names = {}
  for i = 1, room do names[i] = "a" .. i end
  local list = table.concat(names, ", ") .. (room > 0 and ", " or "")
  return assert(load(([[
local any, check, leave = ...
return function(forward)
  return function(self, ...)
    if self._hooks or self.forward ~= forward then return any(self, ...) end
    local %sb, c, d = ...
    if b ~= nil or c ~= nil or d ~= nil then check(self, forward, ...) end
    return leave(forward(self%s))
  end
end]]):format(list, room > 0 and ", " .. table.concat(names, ", ") or ""), debug.getinfo(1, "S").source, "t"))(M.any, M.check, leave)
end

local function call_of(forward)
  local call, room = calls[forward], room_of(forward)
  if not call then
    factories[room] = factories[room] or factory_of(room)
    call = factories[room](forward)
    calls[forward], made[call] = call, true
  end
  return call
end

--- The call of any module. Gives the class its own where the module has nothing of its own.
---@param self accel.nn.Module
---@param ... any
---@return any ...
function M.any(self, ...)
  local hooks = self._hooks
  if hooks then return leave(hooks:run(self, ...)) end
  local forward = self.forward
  M.check(self, forward, ...)
  if rawget(self, "forward") == nil and type(forward) == "function" then
    local meta = getmetatable(self)
    if made[meta.__call] then rawset(meta, "__call", call_of(forward)) end
  end
  return leave(forward(self, ...))
end

made[M.any] = true

--- Whether a __call is the library's.
---@param call any
function M.is_own(call) return made[call] == true end

return M
