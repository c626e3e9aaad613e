-- A host's changes to its Lua state before any script: text-only loading, sorted pairs, strict globals, module search
-- paths, os.exit. Called once by ac_host_open with {lua_dir =, strict =, sorted_pairs =, lfs = the library with
-- LuaFileSystem, exit = function or nil}.
local accel = ...

-- Chunks are text. Lua's own functions take binary ones as well, which can crash the interpreter.
local function text_only()
  local load_, loadfile_ = load, loadfile
  local function refuse(mode)
    return mode ~= nil and not tostring(mode):find("t", 1, true)
  end
  rawset(_G, "load", function(chunk, name, mode, ...)
    if refuse(mode) then return nil, "binary chunks are not loaded" end
    return load_(chunk, name, "t", ...)
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
    local first = package.path:match "^[^;]+"
    local path = first and first:gsub("%?", function() return (name:gsub("%.", "/")) end)
    local found, why = loadfile_(path or "", "t")
    if found then return found, path end
    if why:sub(1, 12) ~= "cannot open " then
      error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, why), 0)
    end
    local file, message = package.searchpath(name, package.path)
    if not file then return message end
    local f, reason = loadfile_(file, "t")
    if not f then error(("error loading module '%s' from file '%s':\n\t%s"):format(name, file, reason), 0) end
    return f, file
  end
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
  package.preload.lfs = function(name)
    local open, why = package.loadlib(path, "luaopen_lfs")
    open = open or package.loadlib(path:match "[^/]*$", "luaopen_lfs")
    local found = not open and package.searchpath("lfs", package.cpath)
    open = open or found and package.loadlib(found, "luaopen_lfs")
    if not open then error(("LuaFileSystem cannot be loaded: %s; install lua-filesystem"):format(why), 0) end
    return open(name)
  end
end

return function(options)
  text_only()
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
end
