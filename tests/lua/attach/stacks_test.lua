-- Where a script is: in coroutines, in long functions of C, in the library, while its stack grows and shrinks, held by a debugger; and which ranks
-- are late, on a quiet machine and on a busy one.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")
local line_of = t.line_of

local function stacks(words)
  local began = accel.clock()
  local text = t.run("stacks " .. (words or ""))
  return text, accel.clock() - began
end

-- The lines of a rank.
local function of_rank(text, rank)
  return text:match("(rank " .. rank .. " %b().-)\nrank ") or text:match("(rank " .. rank .. " %b().*)$") or ""
end

local function sleep(seconds) accel.process.spawn("/bin/sleep", { "sleep", tostring(seconds) }, {}):wait(seconds + 10) end

-- ---- coroutines, C, the library, a stack that moves ----
do
  local job = t.start(("--num-processes 4 '%s' 1000000 deep"):format(t.case))
  t.wait("ranks that are busy", function()
    local row = t.ps()[1]
    return row and row.step == 5
  end)
  sleep(0.3)
  local text
  for turn = 1, 4 do
    text = stacks(turn % 2 == 0 and "--all" or "")
    local r0, r1, r2, r3 = of_rank(text, 0), of_rank(text, 1), of_rank(text, 2), of_rank(text, 3)
    assert(r0:find("\n  %S+job.lua:" .. line_of "local function spin()" .. ": in"), text)
    assert(select(2, r0:gsub("%(a coroutine, resumed by%)", "")) == 2, text) -- inner, outer, main
    assert(r0:find("job.lua:" .. line_of "inner()", 1, true) and r0:find("job.lua:" .. line_of "outer()", 1, true), text)
    assert(r0:find ": in main chunk\n?$", text)
    assert(r1:find("[C]: in method 'find'\n", 1, true) and r1:find("job.lua:" .. line_of "local function backtrack", 1, true), text)
    assert(r2:find("job.lua:" .. line_of "local function meet", 1, true), text)
    if turn % 2 == 0 then assert(r2:find("/accel/accelerator/processes.lua", 1, true), text)
    else assert(not r2:find("/accel/accelerator/", 1, true) and not r2:find("[C]: in field 'barrier'", 1, true), text) end
    assert(r3:find(" more like it", 1, true) or #r3 < 500, text) -- of thousands of calls
    assert(r3:find("job.lua:" .. line_of "local function recurse", 1, true)
      or r3:find("job.lua:" .. line_of "coroutine.wrap(recurse)", 1, true), text)
  end
  assert(#t.ps() == 1, "a look ended the job:\n" .. t.read(job.err))

  -- held by a debugger
  local pid = tonumber(text:match "rank 3 %(pid (%d+)%)")
  local hold = ([[
import ctypes, os, sys, time
c = ctypes.CDLL(None, use_errno=True)
if c.ptrace(16, %d, None, None) != 0: sys.exit(77)
os.waitpid(%d, 0x40000000)
print("held", flush=True)
time.sleep(30)]]):format(pid, pid)
  local file <close> = assert(io.open(t.tmp .. "/hold.py", "w"))
  file:write(hold)
  file:close()
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec python3 '%s/hold.py' >'%s/hold.out' 2>/dev/null"):format(t.tmp, t.tmp) }, {})
  local how
  t.wait("the debugger", function()
    how = how or p:wait(0.01)
    return how or t.read(t.tmp .. "/hold.out") ~= ""
  end, 10)
  if how then
    print "skipped: no python3 that may trace a process"
  else
    text = stacks()
    assert(of_rank(text, 3):find "is held by a debugger %(pid %d+%)\n  last seen at %S+job.lua", text)
    text = t.run "top --count 1"
    assert(text:find "in a debugger at", text)
    p:signal(9)
  end
  t.kill(job)
end

-- ---- a rank that is late is named once, with its line ----
do
  local job = t.start(("--num-processes 2 '%s' 200 late"):format(t.case))
  local text
  t.wait("the mark in top", function()
    text = t.run "top --count 1"
    return text:find("\n  !1 ", 1, true)
  end)
  assert(text:find("! rank 1: at job.lua:" .. line_of "os.execute \"sleep 4\"" .. " for %d"), text)
  assert(job.process:wait(60) == "exit")
  local log, n = t.read(job.err), 0
  for line in log:gmatch "[^\n]*is late[^\n]*" do
    n = n + 1
    assert(line:find("rank 1 is late: for %d+%.%d s at %S+job.lua:" .. line_of "os.execute \"sleep 4\""
      .. ", step %d+; the median step takes"), log)
  end
  assert(n == 1, log)
  job.process:close()
end

-- ---- all ranks on a machine that others keep busy: none is late ----
do
  local hogs = {}
  for i = 1, 8 do hogs[i] = accel.process.spawn("/bin/sh", { "sh", "-c", "while :; do :; done" }, {}) end
  local job = t.start(("--num-processes 3 '%s' 1000000 slow"):format(t.case))
  t.running(3, 20)
  sleep(4)
  local log = t.read(job.err)
  for _, hog in ipairs(hogs) do
    hog:signal(9)
    hog:close()
  end
  t.kill(job)
  assert(not log:find "is late", log)
end
