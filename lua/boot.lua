-- What a host changes in its Lua state before any script: text-only loading, sorted pairs, strict globals,
-- where modules are found, os.exit. Called once by ac_host_open with {lua_dir =, strict =, sorted_pairs =,
-- exit = function or nil}.
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
    -- most are files of the first place: opened once there, where a search and a load open twice
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

return function(options)
  text_only()
  if options.lua_dir then
    package.path = ("%s/?.lua;%s/?/init.lua;%s"):format(options.lua_dir, options.lua_dir, package.path)
  end
  if options.sorted_pairs then
    rawset(_G, "pairs", accel.host_chunk("pairs"))
  end
  if options.exit then rawset(os, "exit", options.exit) end
  if options.strict then accel.host_chunk("strict")(_G) end
end
