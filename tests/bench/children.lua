-- Programs that the benches start, for harness.lua: one at a time, their output in files, and all of them ended when
-- Ctrl-C comes, or when this program ends in whatever way.
local accel = require "accel"

local process = accel.process
local M = {}

local POLL <const> = 0.5

--- What is raised when Ctrl-C came: a table, so that no message is made of it.
local Stop = { __tostring = function(e) return ("stopped by signal %d"):format(e.signal) end }

--- The error if it is such a one, or comes of a second Ctrl-C; nil for others.
function M.stop_of(e)
  if getmetatable(e) == Stop then return e end
  local asked, signal = accel.interrupted()
  return asked and setmetatable({ signal = signal or 2 }, Stop) or nil
end

--- Raises if Ctrl-C came since the start.
function M.check()
  local asked, signal = accel.interrupted()
  if asked then error(setmetatable({ signal = signal or 2 }, Stop), 0) end
end

function M.quote(s) return "'" .. tostring(s):gsub("'", "'\\''") .. "'" end

local folder -- made on first use, removed by M.finish

--- A folder of our own for what sides share; everything in it goes with it.
---@return string
function M.folder()
  if not folder then
    -- those of runs that were killed go first
    local p = assert(io.popen [[cd "${TMPDIR:-/tmp}" || exit 1
      for d in accel-bench-*-??????; do
        n=${d#accel-bench-}; [ -O "$d" ] && [ ! -d "/proc/${n%-*}" ] && rm -rf -- "$d"
      done
      mktemp -d "$PWD/accel-bench-$PPID-XXXXXX"]])
    folder = p:read "l"
    p:close()
    if not folder then error("bench: no folder could be made in $TMPDIR or /tmp", 0) end
  end
  return folder
end

--- Removes the folder; the next use makes another.
function M.remove()
  if folder then os.execute("rm -rf -- " .. M.quote(folder)) end
  folder = nil
end

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end

--- Runs a shell command to its end. exec: it is one program, and takes the place of the shell, so that it dies with us.
---@param command string
---@param exec? boolean
---@return boolean ok, string stdout, string stderr, string ended "exit 1", "signal 9"
function M.run(command, exec)
  M.check()
  local out, err = M.folder() .. "/out", M.folder() .. "/err"
  local text = ("exec > %s 2> %s\n%s%s"):format(M.quote(out), M.quote(err), exec and "exec " or "", command)
  local p <close> = process.spawn("/bin/sh", { "sh", "-c", text }, {})
  local how, number
  repeat
    how, number = p:wait(POLL)
    if not how then M.check() end -- raises; the program is ended by <close>
  until how
  M.check()
  return how == "exit" and number == 0, read(out), read(err), ("%s %s"):format(how, number or "")
end

--- The output of a command, nil where it fails.
---@return string?
function M.capture(command)
  local ok, out = M.run(command)
  return ok and out or nil
end

--- Waits; Ctrl-C ends it.
function M.sleep(seconds) M.run(("sleep %g"):format(seconds), true) end

return M
