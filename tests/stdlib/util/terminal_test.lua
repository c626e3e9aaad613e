--- util.terminal: when colours may be written, by ACCEL_COLOR, FORCE_COLOR, NO_COLOR and the descriptor.
local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
local child = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/colour.lua"
do
  local f = assert(io.open(child, "w"))
  f:write [[
local accel = require "accel"
if arg[1] == "tty" then accel.isatty = function(fd) return fd == 1 end end
local terminal = require "accel.util.terminal"
print(tostring(terminal.colour(1)) .. " " .. tostring(terminal.colour(2)))
]]
  f:close()
end

local function colour(env, mode)
  local clean = "env -u NO_COLOR -u FORCE_COLOR -u CI -u ACCEL_COLOR TERM=xterm "
  local command = ("%s %s '%s' '%s' %s 2>&1 </dev/null | cat"):format(clean, env, run, child, mode)
  local p = assert(io.popen(command))
  local text = p:read "a"
  p:close()
  return (text:gsub("%s+$", ""))
end

for _, case in ipairs {
  -- environment, pipes, descriptor 1 is a terminal and 2 is not
  { "", "false false", "true false" },
  { "NO_COLOR=", "false false", "true false" },
  { "NO_COLOR=1", "false false", "false false" },
  { "FORCE_COLOR=1", "true true", "true true" },
  { "FORCE_COLOR= NO_COLOR=1", "false false", "false false" },
  { "FORCE_COLOR=1 NO_COLOR=1", "true true", "true true" },
  { "TERM=dumb", "false false", "false false" },
  { "CI=1", "false false", "false false" },
  { "ACCEL_COLOR=auto", "false false", "true false" },
  { "ACCEL_COLOR=auto NO_COLOR=1", "false false", "false false" },
  { "ACCEL_COLOR=always NO_COLOR=1", "true true", "true true" },
  { "ACCEL_COLOR=never FORCE_COLOR=1", "false false", "false false" },
} do
  for i, mode in ipairs { "pipe", "tty" } do
    local got = colour(case[1], mode)
    assert(got == case[i + 1], ("%s, %s: %q, wanted %q"):format(case[1], mode, got, case[i + 1]))
  end
end
