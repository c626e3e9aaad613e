-- The prompt of a lone script whose commands come from a pipe or a file, at once or late, and of one with /dev/null, which waits.
--   accel-run tests/lua/attach/piped_test.lua
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")

local function script(name, text)
  local path = t.tmp .. "/" .. name
  local file <close> = assert(io.open(path, "w"))
  file:write(text)
  return path
end
local stops = script("stops.lua", 'local n = 20\nrequire "accel".breakpoint()\nprint("went on", n)\n')
local fails = script("fails.lua", 'local function f(x)\n  local y = x + 1\n  error "boom"\nend\nf(41)\n')

local function has(text, part) assert(text:find(part, 1, true), ("'%s' is not in\n%s"):format(part, text)) end

for _, pause in ipairs { "", "#1\n" } do -- the commands are there, or come after the script has stopped
  local out, err, status = t.run(("'%s'"):format(stops), pause .. "n + 3\n:c\n")
  has(out, "stops.lua:2")
  has(out, "\n23\n")
  has(out, "went on\t20")
  assert(status == 0, err)
  out, err, status = t.run(("--pdb '%s'"):format(fails), pause .. "y\n:c\n")
  has(out, "\n42\n")
  has(err, "boom")
  assert(status == 1, err)
end

do -- the end of the commands lets the script go on
  local out, err, status = t.run(("'%s'"):format(stops), "n + 4\n")
  has(out, "\n24\n")
  has(out, "went on\t20")
  assert(status == 0, err)
end

do -- nothing comes from /dev/null: somebody else has to attach
  local job = t.start(("'%s' </dev/null"):format(stops))
  t.wait("the breakpoint", function() return t.read(job.err):find "has stopped at %S+stops.lua:2" end)
  has((t.run("attach", "n + 5\n:c\n")), "25")
  assert(job.process:wait(30) == "exit", t.read(job.err))
end
