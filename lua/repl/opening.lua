-- How a prompt opens at accel.breakpoint() and with --pdb, if no client is attached: in this process (console.lua) if it is the only rank
-- and has a terminal, or commands in a pipe or a file, otherwise as a client that one rank of the machine starts (lua/attach/client.lua),
-- otherwise by the user. Used by attached.lua.
local accel = ...
local attach = accel.console.attach

local M = {}

local function place() return accel.console.place() or { rank = 0, ranks = 1 } end

local function ranks()
  local at = accel.console.place()
  if at then return at.ranks end
  local core = require "accel.dist.core"
  return core.is_initialized() and core.get_world_size() or 1
end

--- Whether commands wait in a pipe or a file, as in `accel-run --pdb train.lua < commands`. /dev/null is neither.
function M.piped()
  local mode = require "lfs".attributes("/proc/self/fd/0", "mode")
  return (mode == "named pipe" or mode == "file") and accel.console.poll({}, 0, true) == "input"
end

--- Whether the prompt is part of this process: one rank, with a terminal or with commands.
function M.in_process() return ranks() == 1 and (accel.isatty(0) and accel.isatty(1) or M.piped()) end

-- The terminal that a descriptor of this process's launcher is. nil: it is something else.
local function terminal_of(parent, fd)
  local target = require "lfs".symlinkattributes(("/proc/%s/fd/%d"):format(parent, fd), "target")
  return target and (target:find "^/dev/pts/" or target:find "^/dev/tty") and target or nil
end

-- The command of a client that has the launcher's terminal: ranks other than the first have pipes. nil: no terminal.
local function command(program, job)
  local at = accel.console.place()
  if not at then return accel.isatty(0) and accel.isatty(2) and { program, "attach", "--here", job } or nil end
  local file <close> = io.open "/proc/self/stat"
  local parent = file and file:read "a":match "%) %a (%d+)"
  local terminal = parent and terminal_of(parent, 0) and terminal_of(parent, 2)
  if not terminal then return nil end
  return { "/bin/sh", "-c", 'tty=$1; shift; exec "$@" <"$tty" >"$tty" 2>&1', "sh", terminal, program, "attach", "--here", job }
end

--- Waits until a client is here, which this rank starts unless another one has, or until a lone rank gets commands by a pipe. forget:
--- called when this process ends.
---@return boolean came
function M.client(what, at, forget)
  local job = attach.job()
  if not job then
    accel.process.raise("unsupported", "breakpoint: this process has no terminal, and nothing can attach to it; "
      .. "run the script by accel-run, without ACCEL_ATTACH=0")
  end
  io.stdout:flush()
  local program = accel.process.program()
  local words = program and command(program, job)
  if words and not M.front then
    if (accel.console.prompting(true) or 0) == 0 then -- Ctrl-C of this terminal is the prompt's
      M.front = accel.process.spawn(words[1], words, { ACCEL_WORLD = "none" }, {})
      M.ending = setmetatable({}, { __gc = forget }) -- after M.front, so that it comes first
    else
      accel.console.prompting(false)
    end
  end
  local function invite()
    io.stderr:write(("accel: rank %d has stopped at %s (%s); accel-run attach %s opens its prompt\n"):format(place().rank, at, what, job))
  end
  if not words then invite() end
  while M.front do
    if attach.wait(0.5) then return true end
    if accel.interrupted() then return false end
    if M.front:wait(0) then -- it could not come
      M.front = nil
      accel.console.prompting(false)
      invite()
    end
  end
  if ranks() > 1 then return attach.wait() end
  while not attach.wait(0.2) do
    if accel.interrupted() or M.piped() then return false end
  end
  return true
end

--- The client has ended, or is about to: it has the terminal until then.
function M.closed()
  local front = M.front
  if not front then return end
  M.front = nil
  pcall(front.wait, front, 2)
  accel.console.prompting(false)
  front:close()
end

return M
