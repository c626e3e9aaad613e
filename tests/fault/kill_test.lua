-- kill -9 of a random rank at random moments: every survivor reports one line soon, the launcher names rank, signal and script line,
-- nothing is left behind. 200 jobs in a full run, else 40.
-- tier: sampled
-- Jobs in which survivors are late are tried again (support/ranks.lua).  accel-run kill_test.lua [jobs]
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local sample = support.sample
local sanitized = sample.sanitized
local jobs = tonumber(arg[1]) or (sanitized and 8 or sample.full and 200 or 40)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/kill"
local random = accel.util.Random(sample.seed)
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))

local function lines(command)
  local p = assert(io.popen(command))
  local t = {}
  for line in p:lines() do t[#t + 1] = line end
  p:close()
  return t
end
local function alive(pid)
  local f = io.open(("/proc/%d/stat"):format(pid))
  if not f then return false end
  local state = f:read("a"):match "%) (%a)"
  f:close()
  return state ~= "Z"
end
local function below(n) return random:below(n) end

-- names in /dev/shm that no other program's habits explain (tests of MPI may run beside this one)
local function leftovers() return #lines "ls -A /dev/shm 2>/dev/null | grep -Ev '^(vader|sm_|osc|ompi|pmix|ucx|sem\\.|__KMP)' || true" end
local shm_before = leftovers()

do -- a rank that never waited nor made a step is placed by its last call
  local script = tmp .. ".lua"
  local f = assert(io.open(script, "w"))
  f:write('require "accel".dist.barrier()\nlocal f = io.open "/proc/self/stat"\nos.execute("kill -9 " .. f:read "n")\n')
  f:close()
  local said = table.concat(lines(("'%s' --num_processes 1 '%s' 2>&1 </dev/null"):format(exe, script)), "\n")
  assert(said:find "signal 9 %(SIGKILL%) after barrier at [^\n]*%.lua:1\n" or said:find "after barrier at [^\n]*%.lua:1$", said)
  os.remove(script)
end
local delays, sizes = {}, { "64,300000", "1,1000,2000000", "4096", "100000,7" }
local GRACE <const> = 0.5 -- seconds, after which the launcher ends survivors: they may not come to say what they know
local limit = sanitized and 4 or 1
local function shoot(job)
  local ranks = 2 + below(3)
  local dir = tmp .. job
  os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(dir, dir))
  local p = assert(io.popen(("timeout -s KILL 100 '%s' --num_processes %d '%s/tests/fault/kill_case.lua' '%s' %s 2>&1 </dev/null; echo status $?")
    :format(exe, ranks, src, dir, sizes[below(#sizes) + 1])))
  local pids, deadline = {}, accel.clock() + 60
  for r = 0, ranks - 1 do
    while not pids[r] do
      local f = io.open(dir .. "/pid." .. r)
      pids[r] = f and f:read "n"
      if f then f:close() end
      assert(accel.clock() < deadline, "the job did not start")
      if not pids[r] then os.execute "sleep 0.005" end
    end
  end
  local victim = below(ranks)
  os.execute(("sleep %.4f"):format(below(4000) / 100000))
  local shot = accel.clock()
  os.execute("kill -9 " .. pids[victim])
  local text = p:read "a"
  p:close()
  local ended = accel.clock()
  local late
  local function fail(why) error(("job %d, rank %d of %d: %s\n%s"):format(job, victim, ranks, why, text), 0) end
  for r = 0, ranks - 1 do
    if r ~= victim then
      local at, said = text:match("survivor " .. r .. " (%S+) ([^\n]*)")
      if not at and ended - shot < GRACE then fail("rank " .. r .. " said nothing") end
      said = said or text:match(r == 0 and "\n(accel%-run: stopped: [^\n]*)" or "%[rank " .. r .. "%] (accel%-run: stopped: [^\n]*)")
        or "nothing"
      if ended - shot >= GRACE and said:find ": interrupted$" then at = nil
      elseif (at or said ~= "nothing") and not said:find("rank " .. victim, 1, true) then
        fail("rank " .. r .. " does not name the dead one: " .. said)
      end
      local delay = (tonumber(at) or math.huge) - shot
      if delay > limit then late = ("rank %d said '%s' after %.2f s"):format(r, said, delay) end
      delays[#delays + 1] = at and delay
    end
    if alive(pids[r]) then fail("rank " .. r .. " is still there") end
  end
  local verdict = 0
  for line in text:gmatch "[^\n]+" do
    if line:find "^accel%-run:" and line:find("rank " .. victim .. " ", 1, true) and line:find("signal 9 (SIGKILL)", 1, true) then
      verdict = verdict + 1
      if not line:find "kill_case.lua:%d+" then fail "the launcher names no script line" end
    end
  end
  if verdict ~= 1 then fail(("the launcher named the cause %d times"):format(verdict)) end
  if not text:find "status 137%s*$" then fail "the exit status is not that of the killed rank (137)" end
  if ended - shot > 5 then late = ("the job ended %.1f s after the shot"):format(ended - shot) end
  os.execute(("rm -rf '%s'"):format(dir))
  return late
end
for job = 1, jobs do support.timely(function() return shoot(job) end) end
table.sort(delays)
local p99 = delays[math.max(1, math.ceil(#delays * 0.99))]
print(("%d jobs, %d survivors: median %.1f ms, p99 %.1f ms, worst %.1f ms"):format(jobs, #delays, delays[(#delays + 1) // 2] * 1e3,
  p99 * 1e3, delays[#delays] * 1e3))
assert(leftovers() <= shm_before, "something was left in /dev/shm")
