-- What a prompt says of breakpoints that cannot be met, and that functions of the library stay out of sight unless asked for.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")

local function has(text, part)
  assert(text:find(part, 1, true), ("no '%s' in\n%s"):format(part, text))
end

local lines = {}
for line in io.lines(t.case) do lines[#lines + 1] = line end
local HEAD, LAST = t.line_of "-- MODE", #lines
local BLANK
for i = HEAD + 5, LAST do
  if not BLANK and lines[i] == "" and lines[i + 1] ~= "" and not lines[i + 1]:find "^%-%-" then BLANK = i end
end

local job = t.start(("--num-processes 2 '%s' 1000000 slow"):format(t.case))
t.running(2, 3)
local out, err = t.run("attach", ([[
:break nope.lua:3
:break jbo.lua:3
:break job.lua:9999
:break job.lua:BLANK
:break
:delete 1
:bt
:bt all
:up
:up 9
:into
:into
:into
:detach]]):gsub("BLANK", tostring(BLANK)))
has(out, "breakpoint 1 at nope.lua:3 (pending: no file nope.lua is loaded so far)")
has(out, "breakpoint 2 at jbo.lua:3 (pending: no file jbo.lua is loaded so far; did you mean job.lua?)")
has(err, (":break job.lua:9999: job.lua has %d lines"):format(LAST))
has(out, ("breakpoint 4 at job.lua:%d (line %d holds no code)"):format(BLANK + 1, BLANK))
assert(not out:find("job.lua:9999", 1, true), out)

-- of :bt the frames of the script alone, of :bt all those of the library; :up passes over them
local brief, whole = out:match "\n(%[all%]\n.-)\n(%[all%]\n.-\n)%[all%]"
assert(brief and not brief:find("/accel/optim/", 1, true) and brief:find("job.lua:" .. t.line_of "opt:step()", 1, true), out)
assert(whole:find("/accel/", 1, true), out)
has(out, ("[all] %s:%d: in main chunk"):format(t.case, t.line_of "local loss = step(i)"))
has(out, ("the last caller is %s:%d"):format(t.case, t.line_of "local loss = step(i)"))
-- nor does :into stop in the library
for place in out:gmatch "%[all%] at (%S+),[^\n]*after a step of lines" do assert(place:find("job.lua:", 1, true), out) end
assert(select(2, out:gsub("after a step of lines", "")) == 3, out)

-- a file that is loaded later: its breakpoint is met then
do
  local late = t.tmp .. "/late.lua"
  local file <close> = assert(io.open(late, "w"))
  file:write "return function()\n  local x = 1\n  return x + 1\nend\n"
  file:close()
  out = t.run("attach", (":break late.lua:3\nlate = dofile '%s'\n:break\nlate()\n:detach\n"):format(late))
  has(out, "pending: no file late.lua is loaded so far")
end
t.kill(job)

-- ---- what a breakpoint is told, without a job ----
do
  local places = accel.host_chunk "repl/places"
  local path = t.tmp .. "/part.lua"
  local file <close> = assert(io.open(path, "w"))
  file:write "-- a comment\n\nlocal x = 1\nif x then\n  x = 2\nelse\n  x = 3\nend\n"
  file:close()
  local frames = { list = { { path = "@" .. path } } }
  local function look(line, name) return places.look({ file = name or "part.lua", line = line }, frames) end
  assert(next(look(3)) == nil and next(look(8)) == nil)
  assert(look(1).line == 3 and look(2).line == 3 and look(6).line == 7)
  assert(look(9).never == "part.lua has 8 lines", look(9).never)
  assert(look(1, "other/part.lua").pending and next(look(3, path)) == nil)
  assert(places.same_file("@/a/b/train.lua", "b/train.lua") and not places.same_file("@/a/xb/train.lua", "b/train.lua"))
  assert(places.same_file("@train.lua", "/a/train.lua") and places.same_file("=stdin", "stdin"))
end
