-- Rights that a program takes from scripts (accel/host.h, AC_HOST_NO_...): functions of Lua and of accel are replaced by ones that
-- refuse, or that ask the program for the path to use. Called by lua/boot.lua at its end, if the program limits anything, with
-- {io =, os =, load = true if scripts lack the right, modules = list of names or nil, path = function(path) or nil}, and the load of
-- the library's files.
-- Returns the environment for the library's own Lua files. It has the functions that scripts lose, so that the library keeps working
-- and no value that a script can reach leads to them.
local accel, lib_dir = ...

-- A script may replace these, and the string methods.
local type, ipairs, tostring, error, next, rawset = type, ipairs, tostring, error, next, rawset
local sub, format, find = string.sub, string.format, string.find

local function refuse(name, right)
  return function()
    error(format("%s: this host does not give scripts the right to it (%s)", name, right), 2)
  end
end

-- Refuses every function of a table but those named.
local function keep(t, prefix, right, kept)
  for name, value in next, t do
    if type(value) == "function" and not kept[name] then rawset(t, name, refuse(prefix .. name, right)) end
  end
end

-- The same, when the module is loaded.
local function keep_module(name, change)
  local open = package.preload[name]
  if package.loaded[name] then change(package.loaded[name]) end
  if not open then return end
  package.preload[name] = function(...)
    local module, where = open(...)
    if type(module) == "table" then change(module) end
    return module, where
  end
end

local function without_files()
  keep(io, "io.", "AC_HOST_NO_IO", { write = true, read = true, type = true, stdout = true })
  for _, name in ipairs { "remove", "rename", "tmpname" } do rawset(os, name, refuse("os." .. name, "AC_HOST_NO_IO")) end
  keep_module("lfs", function(lfs) keep(lfs, "lfs.", "AC_HOST_NO_IO", {}) end)
  keep_module("accel.track.core", function(core)
    for _, name in ipairs { "http", "request" } do core[name] = refuse("accel.track.core." .. name, "AC_HOST_NO_IO") end
  end)
end

-- Files go through the program's function. It raises for a path that the program refuses.
local function by_path(path)
  local function first(f, required)
    return function(name, ...)
      if type(name) == "number" then name = tostring(name) end -- which Lua takes for a path, too
      if required or type(name) == "string" then name = path(name) end
      return f(name, ...)
    end
  end
  rawset(io, "open", first(io.open, true))
  for _, name in ipairs { "lines", "input", "output" } do rawset(io, name, first(io[name])) end
  rawset(os, "remove", first(os.remove, true))
  local rename = os.rename
  rawset(os, "rename", function(from, to) return rename(path(from), path(to)) end)
  rawset(os, "tmpname", refuse("os.tmpname", "the path function of the program"))
  rawset(_G, "loadfile", first(loadfile))
  rawset(_G, "dofile", first(dofile))
  keep_module("lfs", function(lfs)
    for _, name in ipairs { "attributes", "symlinkattributes", "dir", "mkdir", "rmdir", "touch", "lock_dir" } do
      if lfs[name] then lfs[name] = first(lfs[name], true) end
    end
    for _, name in ipairs { "chdir", "link" } do lfs[name] = refuse("lfs." .. name, "the path function of the program") end
  end)
end

local function without_system()
  keep(os, "os.", "AC_HOST_NO_OS", { time = true, date = true, clock = true, difftime = true, exit = true, remove = true, rename = true,
    tmpname = true })
  rawset(io, "popen", refuse("io.popen", "AC_HOST_NO_OS"))
  rawset(accel.process, "spawn", refuse("accel.process.spawn", "AC_HOST_NO_OS"))
  rawset(accel, "launch", refuse("accel.launch", "AC_HOST_NO_OS"))
end

local function without_code()
  for _, name in ipairs { "load", "loadfile", "dofile" } do rawset(_G, name, refuse(name, "AC_HOST_NO_LOAD")) end
  for _, name in ipairs { "repl", "breakpoint" } do rawset(accel, name, refuse("accel." .. name, "AC_HOST_NO_LOAD")) end
end

-- require of scripts: only names of the list and below, and without NO_LOAD's right only the library.
local function limit_require(modules, no_code)
  local require_ = require
  rawset(_G, "require", function(name)
    if type(name) == "number" then name = tostring(name) end
    local allowed = type(name) ~= "string" or (not modules and not no_code)
    for _, prefix in ipairs(allowed and {} or modules or { "accel" }) do
      if name == prefix or sub(name, 1, #prefix + 1) == prefix .. "." then allowed = true end
    end
    if not allowed and not modules and package.loaded[name] ~= nil then allowed = true end
    if not allowed then
      error(format("require: this host does not let scripts load the module '%s' (%s)", name,
        modules and "it is not in the program's list" or "AC_HOST_NO_LOAD"), 2)
    end
    return require_(name)
  end)
end

-- Chunks of C code, and searchers that load files past require.
local function limit_package(path, no_code)
  rawset(package, "loadlib", refuse("package.loadlib", no_code and "AC_HOST_NO_LOAD" or "a program that limits rights"))
  local lua_files = package.searchers[2]
  for i = 1, #package.searchers do package.searchers[i] = i == 1 and package.searchers[1] or nil end
  package.searchers[2] = function(name)
    local f, file = lua_files(name)
    if type(f) ~= "function" then return f end
    local own = sub(file, 1, #lib_dir - 1) == sub(lib_dir, 2) and not find(file, "/../", 1, true)
    if own then return f, file end
    if no_code then return format("\n\tno module '%s' of the library", name) end
    if path then f, file = loadfile(file), file end -- the loadfile that asks for the path
    return f, file
  end
end

return function(o, own_load)
  local env = {}
  env.load, env.loadfile, env.dofile, env.require, env.debug = own_load, loadfile, dofile, require, {}
  for name, value in next, debug do env.debug[name] = value end
  env.os = setmetatable({ getenv = os.getenv }, { __index = os })
  env.accel = setmetatable({ host_chunk = accel.host_chunk }, { __index = accel, __newindex = accel })
  setmetatable(env, { __index = _G, __newindex = _G })
  if o.path then by_path(o.path) end
  limit_package(o.path, o.load)
  limit_require(o.modules, o.load)
  if o.io then without_files() end
  if o.os then without_system() end
  if o.load then without_code() end
  rawset(accel, "host_chunk", refuse("accel.host_chunk", "a program that limits rights"))
  rawset(accel.process, "function_of", refuse("accel.process.function_of", "a program that limits rights"))
  return env
end
