-- A host's changes to its Lua state before any script: text-only loading, sorted pairs, strict globals, module search
-- paths, os.exit. Called once by ac_host_open with {lua_dir =, strict =, sorted_pairs =, limited = whether scripts
-- lack rights, with the fields of lua/rights.lua, lfs = the library with LuaFileSystem, exit = function or nil}.
local accel, lib_dir = ...

local sub, find, match, gsub = string.sub, string.find, string.match, string.gsub -- a script may replace them
local type, tostring, error = type, tostring, error

local environment = _G -- of the library's own files: lua/rights.lua makes another one

-- Chunks are text. Lua's own functions take binary ones as well, which can crash the interpreter.
-- limited: a chunk of a script cannot have a name of the library's files, by which the host knows them. Returns the load for these.
local function text_only(limited)
  local load_, loadfile_ = load, loadfile
  local function is_own(path)
    return lib_dir ~= "" and sub(path, 1, #lib_dir - 1) == sub(lib_dir, 2) and not find(path, "/../", 1, true)
  end
  local function allowed(name)
    if not limited or type(name) ~= "string" then return name end
    local ours = sub(name, 1, 5) == "=lua/" or (lib_dir ~= "" and sub(name, 1, #lib_dir) == lib_dir)
    return ours and "=(load)" or name
  end
  local function refuse(mode)
    return mode ~= nil and not find(tostring(mode), "t", 1, true)
  end
  rawset(_G, "load", function(chunk, name, mode, ...)
    if refuse(mode) then return nil, "binary chunks are not loaded" end
    return load_(chunk, allowed(name), "t", ...)
  end)
  rawset(_G, "loadfile", function(file, mode, ...)
    if refuse(mode) then return nil, "binary chunks are not loaded" end
    return loadfile_(file, "t", ...)
  end)
  rawset(_G, "dofile", function(file)
    local f, message = loadfile_(file, "t")
    if not f then error(message, 2) end
    return f()
  end)
  package.searchers[2] = function(name)
    -- most files are in the first folder: opened once there, while a search and a load open twice
    local first = match(package.path, "^[^;]+")
    local path = first and gsub(first, "%?", function() return (gsub(name, "%.", "/")) end)
    local found, why = loadfile_(path or "", "t", path and is_own(path) and environment or _G)
    if found then return found, path end
    if sub(why, 1, 12) ~= "cannot open " then
      error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, why), 0)
    end
    local file, message = package.searchpath(name, package.path)
    if not file then return message end
    local f, reason = loadfile_(file, "t", is_own(file) and environment or _G)
    if not f then error(("error loading module '%s' from file '%s':\n\t%s"):format(name, file, reason), 0) end
    return f, file
  end
  return function(chunk, name, _, ...) return load_(chunk, name, "t", ...) end
end

-- Libraries keep their state in the registry, and cannot run without it. Scripts may look at its names.
local function registry_to_read()
  local registry = debug.getregistry
  local function refuse()
    error("debug.getregistry: the registry belongs to the libraries of this Lua state, and scripts cannot change it; "
      .. "use the functions of the library instead", 2)
  end
  rawset(debug, "getregistry", function()
    local named = {}
    for k, v in next, registry() do
      if type(k) == "string" then named[k] = v end
    end
    return setmetatable({}, { __index = named, __newindex = refuse, __metatable = "registry",
      __pairs = function() return next, named end })
  end)
end

-- LuaFileSystem from the library that the build found, on first use. If that file moved, the loader's path and then
-- package.cpath are tried.
local function preload_lfs(path)
  local loadlib = package.loadlib
  package.preload.lfs = function(name)
    local open, why = loadlib(path, "luaopen_lfs")
    open = open or loadlib(path:match "[^/]*$", "luaopen_lfs")
    local found = not open and package.searchpath("lfs", package.cpath)
    open = open or found and loadlib(found, "luaopen_lfs")
    if not open then error(("LuaFileSystem cannot be loaded: %s; install lua-filesystem"):format(why), 0) end
    return open(name)
  end
end

return function(options)
  local own_load = text_only(options.limited)
  preload_lfs(options.lfs)
  registry_to_read()
  if options.lua_dir then
    package.path = ("%s/?.lua;%s/?/init.lua;%s"):format(options.lua_dir, options.lua_dir, package.path)
  end
  if options.sorted_pairs then
    rawset(_G, "pairs", accel.host_chunk("pairs"))
  end
  if options.exit then rawset(os, "exit", options.exit) end
  if options.strict then accel.host_chunk("strict")(_G) end
  if not options.limited then return nil end
  environment = accel.host_chunk("rights")(options, own_load)
  return environment
end
