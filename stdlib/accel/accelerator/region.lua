--- Regions that only some ranks run: the functions of on_main_process and its like, the blocks of main_process_first. A
--- collective inside one would wait for ranks that never come. With more than one rank it raises at once and names the
--- region and its line. Used by processes.lua and trackers.lua. (Code under `if accelerator.is_main_process` cannot be
--- detected. There the collective's own checks report the mismatch, once the other ranks enter their next collective.)
local dist = require "accel.dist"
local guard = require "accel.util.guard"

local M = {}

local here = debug.getinfo(1, "S").source:match("^(.*)accelerator/[^/]*$") or "@"

local function at(info, line) return ("%s:%d"):format(info.short_src:match "[^/]*$", line) end

--- The position of a function, "train.lua:12", or the script's line that called the library.
local function location(fn)
  local info = type(fn) == "function" and debug.getinfo(fn, "S")
  if info and info.what ~= "C" then return at(info, info.linedefined) end
  local level = 2
  while true do
    info = debug.getinfo(level, "Sl")
    if not info then return "?" end
    if info.what ~= "C" and info.source:sub(1, #here) ~= here then return at(info, info.currentline) end
    level = level + 1
  end
end

--- Begins a region. Closing the guard ends it. Regions nest: the innermost one counts.
---@param name string "on_main_process"
---@param ranks integer how many ranks run it: collectives of a group with no more members may run inside
---@param fn function? the function that runs inside
---@return accel.util.Guard
function M.enter(name, ranks, fn)
  local before, among = dist._alone(("%s (%s)"):format(name, location(fn)), ranks)
  return guard(function() dist._alone(before, among) end)
end

--- fn(...) as a region.
---@param name string
---@param ranks integer
---@param fn function
---@param ... any
function M.run(name, ranks, fn, ...)
  local _ <close> = M.enter(name, ranks, fn)
  return fn(...)
end

return M
