--- Folders of logs that accel-run launch --policy makes below $TMPDIR, accel-launch-XXXXXX, one for each attempt. The file `owner` in it
--- names the process of the launch. An attempt that succeeds takes its folder with it. A failed attempt leaves it, because a message names
--- the log of the failed rank. Such a folder stays for a week. A folder whose launch was killed goes when the next launch begins.
local accel = require "accel"
local writer = require "accel.util.writer"
local open_read = require("accel.file.core").open_read

local M = {}

local OWNER <const>, KEPT <const>, KEPT_SECONDS <const>, TRIES <const> = "owner", "kept", 7 * 24 * 3600, 10

local function read(path)
  local file <close> = open_read(path)
  return file and file:read "a"
end

--- Number and start time of a process, which identify it permanently. nil: there is none. who: a number or "self".
local function process(who)
  local pid, rest = (read(("/proc/%s/stat"):format(who)) or ""):match "^(%d+) .*%) (.*)$"
  if not pid then return nil end
  local n = 2
  for word in rest:gmatch "%S+" do
    n = n + 1
    if n == 22 then return ("%s %s"):format(pid, word) end
  end
end

local function parent() return os.getenv "TMPDIR" or "/tmp" end

--- Removes a folder of logs.
---@param dir string
function M.remove(dir)
  for _, name in ipairs(accel.listdir(dir) or {}) do os.remove(dir .. "/" .. name) end
  os.remove(dir)
end

--- Whether nobody needs the folder any more.
local function is_left(dir)
  local owner, kept = read(dir .. "/" .. OWNER), read(dir .. "/" .. KEPT)
  if owner then return process(owner:match "^%d+" or "?") ~= owner end
  if kept then return os.time() - (tonumber(kept) or 0) > KEPT_SECONDS end
  return #(accel.listdir(dir) or { "" }) == 0
end

local function sweep()
  for _, name in ipairs(accel.listdir(parent()) or {}) do
    local dir = parent() .. "/" .. name
    if name:find "^accel%-launch%-%w%w%w%w%w%w$" and accel.console.is_private(dir) and is_left(dir) then M.remove(dir) end
  end
end

--- Makes a folder, and removes the folders of launches that were killed.
---@return string
function M.make()
  sweep()
  local ok, why
  for _ = 1, TRIES do -- another launch may have taken the empty folder for one that is left
    local dir = assert(accel.mkdtemp(parent() .. "/accel-launch-"))
    ok, why = writer.file(dir .. "/" .. OWNER, assert(process "self"))
    if ok then return dir end
  end
  error(why, 0)
end

--- Ends the attempt: its logs stay, or go with it.
---@param dir string
---@param keep boolean
function M.finish(dir, keep)
  if keep and #(accel.listdir(dir) or {}) > 1 then -- more than its owner
    writer.file(dir .. "/" .. KEPT, tostring(os.time()))
    os.remove(dir .. "/" .. OWNER)
  else
    M.remove(dir)
  end
end

return M
