-- accel.repl([text]): stops the script here with a prompt that sees the caller's locals, and `accel-run repl`. On one
-- process the prompt is in it (repl/prompt.lua). On the ranks of accel-run it is a separate process (repl/front.lua),
-- and every rank executes its requests (repl/server.lua).
local accel = ...

local M = {}

-- The level, as the caller counts, of the first function that is neither C nor this library's prompt.
local function caller_level()
  local level = 2
  while true do
    local info = debug.getinfo(level, "S")
    if not info then return nil end
    if info.what ~= "C" and not info.source:find("^=lua/repl") then return level - 1 end
    level = level + 1
  end
end

local function world()
  local place = accel.console.place()
  if place then return place, place.ranks end
  local core = require "accel.dist.core"
  if core.is_initialized() then return nil, core.get_world_size() end
  return nil, 1
end

--- accel-run repl. False: a script on standard input failed.
function M.run()
  require "accel"
  local place, ranks = world()
  if place and place.console then return accel.host_chunk("repl/server").run(place) end
  if ranks > 1 then
    accel.process.raise("unsupported", ("repl: this is one of %d ranks started by another launcher; accel-run "
      .. "--num-processes N repl starts its own"):format(ranks))
  end
  return accel.host_chunk("repl/prompt").run { greet = true, stop_on_error = not accel.isatty(0), predefine = true }
end

local function here(_, text)
  if text ~= nil and type(text) ~= "string" then
    accel.process.raise("invalid", "repl: expected a text to show, or nothing, got " .. type(text))
  end
  require "accel"
  local level = caller_level()
  local frames = level and accel.host_chunk("repl/frames").capture(level) or nil
  local place, ranks = world()
  local how
  if ranks > 1 then
    how = accel.host_chunk("repl/server").pause(place, frames, text)
  else
    how = accel.host_chunk("repl/prompt").run { frames = frames, text = text }
  end
  if how == "quit" then os.exit(0) end
end

return setmetatable(M, { __call = here })
