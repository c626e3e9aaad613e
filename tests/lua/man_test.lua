-- Manual pages (lua/gen/reference/program.lua): one for accel-run and one for each command, with every option that --help prints, and
-- without warnings of groff and errors of mandoc where these are installed.
--   accel-run tests/lua/man_test.lua
local accel = require "accel"
local build = os.getenv "ACCEL_TEST_BUILD" or "build/dev"
local folder = build .. "/reference/man/man1"

local function read(name)
  local file <close> = io.open(folder .. "/" .. name, "rb")
  return file and file:read "a"
end
if not read "accel-run.1" then
  print "the manual pages are missing: build the target `reference`"
  os.exit(77)
end

local function has(name, text, what)
  assert(text:find((what:gsub("%-", "\\-")), 1, true), ("%s lacks %s"):format(name, what))
end

local usage = accel.host_chunk("help/topics").usage()
local main, n = read "accel-run.1", 0
for _, name in ipairs(usage.names) do has("accel-run.1", main, "--" .. name) end
for _, p in ipairs((accel.params())) do has("accel-run.1", main, p.name) end
for name in accel.pairs(usage.commands) do
  local file = "accel-run-" .. name .. ".1"
  local text = assert(read(file), file)
  has("accel-run.1", main, "accel-run-" .. name)
  has(file, text, ".SH SYNOPSIS")
  n = n + 1
end
assert(n > 20, n)
for _, c in ipairs { { "plan", "accel.cli.plan" }, { "ckpt", "accel.cli.ckpt" }, { "generate", "accel.cli.generate" }, { "ui", "accel.cli.ui" } } do
  local file = "accel-run-" .. c[1] .. ".1"
  for _, part in ipairs(require "accel.cli.command".describe(require(c[2]), c[1])) do
    for _, spec in ipairs(part.options) do has(file, read(file), "--" .. spec[1]:gsub("_", "-")) end
  end
end

local function clean(tool, command, wrong)
  if not os.execute(("command -v %s >/dev/null 2>&1"):format(tool)) then
    print("skipped in part: " .. tool .. " is not installed")
    return
  end
  local pipe <close> = assert(io.popen(("cd '%s' && for f in *.1; do %s \"$f\" 2>&1; done"):format(folder, command)))
  local text = pipe:read "a"
  assert(not text:find(wrong), text:sub(1, 2000))
end
clean("groff", "groff -ww -man -Tutf8 -z", "%S")
clean("mandoc", "mandoc -Tlint -W error", "ERROR")
print(n .. " commands")
