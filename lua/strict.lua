-- Strict globals: reading one that was never assigned is an error that names the nearest. A main chunk declares by
-- assigning. An assignment from inside a function is a warning for scripts, and an error in the library and its tests,
-- since it is nearly always a forgotten `local`. rawset(_G, ...) and accel.global(name, value) declare explicitly.
local accel = ...

local declared = {}

-- The level of the function that touched the global: 2 is this file's metamethod, 3 its caller.
local LEVEL = 3

local function nearest(name)
  local names = {}
  for _, known in ipairs { _G, declared } do
    for key in next, known do
      if type(key) == "string" then names[#names + 1] = key end
    end
  end
  return accel.nearest(name, names)
end

-- Installed modules of others may probe for globals of other Lua versions, as may modules in C for their own.
local function is_foreign(source)
  return source:find("^@.*/share/lua/5%.%d/") and not source:find("/share/lua/5%.%d/accel/")
end

local function is_library(source)
  return source:find("^@.*/share/lua/5%.4/accel/") or source:find("^@.*/stdlib/accel/")
    or source:find("_test%.lua$")
end

local warned = {}

local function undeclared_write(name, info)
  local place = ("%s:%d"):format(info.short_src, info.currentline)
  local text = ("assignment to undeclared global '%s' inside a function "
    .. "(local %s? else assign it in the main chunk first)"):format(tostring(name), tostring(name))
  if is_library(info.source) then error(text, LEVEL) end
  if not warned[place] then
    warned[place] = true
    warn(place .. ": " .. text)
  end
end

return function(env)
  local meta = getmetatable(env)
  if meta and meta.__accel_strict then return end
  meta = meta or {}
  meta.__accel_strict = true
  function meta.__index(_, name)
    if declared[name] then return nil end
    local info = debug.getinfo(2, "S")
    if info and (info.what == "C" or is_foreign(info.source)) then return nil end -- luv asks for its own _THREAD
    local near = name ~= "accel" and type(name) == "string" and nearest(name)
    local hint = near and (" (did you mean '%s'?)"):format(near) or ""
    if name == "accel" then hint = ' (a script begins with: local accel = require "accel")' end
    error(("undeclared global '%s'%s"):format(tostring(name), hint), 2)
  end
  function meta.__newindex(t, name, value)
    if not declared[name] then
      local info = debug.getinfo(2, "Sl")
      if info and info.what ~= "main" and info.what ~= "C" and not is_foreign(info.source) then
        undeclared_write(name, info)
      end
      declared[name] = true
    end
    rawset(t, name, value)
  end
  setmetatable(env, meta)
  accel.global = function(name, value)
    declared[name] = true
    rawset(env, name, value)
    return value
  end
end
