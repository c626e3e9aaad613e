--- Programs in a terminal, for the tests of the REPL: what tests/support/pty.c plays. Tests in tests/host/app begin
--- with
---   local pty = dofile((arg[0]:match "^.*/" or "") .. "../../support/pty.lua")
--- and are skipped where no terminal can be had.
local accel = require "accel"

local M = {}

local build = os.getenv "ACCEL_TEST_BUILD" or "../.."
M.run = accel.process.program()
M.tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/"
local player = os.getenv "ACCEL_TEST_PTY" or build .. "/tests/bin/accel-pty"

function M.skip(why)
  print("skipped: " .. why)
  os.exit(77)
end

function M.write(name, text)
  local file <close> = assert(io.open(M.tmp .. name, "wb"))
  file:write(text)
  return M.tmp .. name
end

function M.read(name)
  local file <close> = io.open(M.tmp .. name, "rb")
  return file and file:read "a"
end

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

local function environment(env)
  local all = { XDG_STATE_HOME = M.tmp .. "state", PAGER = "cat", LC_ALL = "C", NO_COLOR = "1", HOME = M.tmp }
  for name, value in next, env or {} do all[name] = value end
  local parts = { "env -u CI" }
  for name, value in accel.pairs(all) do parts[#parts + 1] = name .. "=" .. quoted(value) end
  return table.concat(parts, " ")
end

--- Plays a script (a text) against accel-run with these words: exit status, what the player printed.
function M.try(script, words, env)
  local path = M.write("script.txt", script)
  local command = ("%s timeout -k 2 850 %s %s %s > %s 2>&1"):format(environment(env), quoted(player), quoted(path),
    words, quoted(M.tmp .. "transcript"))
  local ok, how, code = os.execute(command)
  return ok and 0 or how == "signal" and 128 + code or code, M.read "transcript" or ""
end

--- The same; it must work.
function M.play(what, script, words, env)
  local status, text = M.try(script, words, env)
  if status == 77 then M.skip(text) end
  if status ~= 0 then error(("%s: status %d\n%s"):format(what, status, text), 2) end
  print("ok: " .. what)
end

--- Inputs from a file: status, stdout, stderr.
function M.pipe(input, words, env)
  local path = M.write("input.txt", input)
  local command = ("%s timeout -k 2 850 sh -c %s < %s > %sout 2> %serr"):format(environment(env), quoted(words),
    quoted(path), M.tmp, M.tmp)
  local ok, how, code = os.execute(command)
  return ok and 0 or how == "signal" and 128 + code or code, M.read "out", M.read "err"
end

--- The editors that can be loaded here: "libedit", "readline".
function M.editors()
  local file = io.open(player, "rb")
  if not file then M.skip("there is no " .. player) end
  file:close()
  local list = {}
  for _, kind in ipairs { "libedit", "readline" } do
    local status, text = M.try("expect kind=" .. kind .. "\nend 0\n", quoted(M.run)
      .. " -e 'print(\"kind=\" .. require(\"accel\").console.editor(print, ...):kind())' " .. kind)
    if status == 77 then M.skip(text) end
    if status == 0 then list[#list + 1] = kind end
  end
  return list
end

return M
