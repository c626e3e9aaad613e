-- kill -9 of a whole job at once, launcher and ranks, at random moments: a second later no process of it is left, no shared memory and no
-- listening socket, the next job starts without a hand, and the last one that ends by itself leaves nothing below TMPDIR.
-- tier: sampled
-- 2 jobs in a sample, 200 in a full run.   accel-run kill_all_test.lua [jobs]     seed: ACCEL_TEST_SEED
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src, exe = os.getenv "ACCEL_TEST_SRC" or ".", accel.process.program()
local sample = support.sample
local jobs = tonumber(arg[1]) or (sample.full and 200 or 2)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/kill_all"
local random = accel.util.Random(sample.seed)
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))

local function lines(command)
  local p <close> = assert(io.popen(command))
  local t = {}
  for line in p:lines() do t[#t + 1] = line end
  return t
end
local function shell(fmt, ...) return os.execute(fmt:format(...)) end

-- Those of these processes that still run.
local function alive(pids)
  local n = 0
  for _, pid in ipairs(pids) do
    local f <close> = io.open(("/proc/%d/stat"):format(pid))
    local state = f and f:read("a"):match "%) (%a)"
    if state and state ~= "Z" then n = n + 1 end
  end
  return n
end
local function shared() return #lines "ls -A /dev/shm 2>/dev/null | grep -Ev '^(vader|sm_|osc|ompi|pmix|ucx|sem\\.|__KMP)' || true" end
local function listening(pids) -- sockets of these processes
  local n = 0
  for _, pid in ipairs(pids) do n = n + #lines(("ss -Hltnp 2>/dev/null | grep 'pid=%d,' || true"):format(pid)) end
  return n
end

local before, slowest = shared(), 0.0
shell("rm -rf '%s' && mkdir -p '%s/tmp'", tmp, tmp)
local function shoot(job)
  local ranks, dir = 2 + random:below(3), ("%s/%d"):format(tmp, job)
  assert(accel.makedirs(dir))
  local command = ("export TMPDIR='%s/tmp'; exec '%s' --num_threads 1 --num_processes %d '%s/tests/fault/kill_case.lua' '%s' 64,300000 "
    .. "> '%s/out' 2>&1 </dev/null"):format(tmp, exe, ranks, src, dir, dir)
  local launcher <close> = accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})
  local pids, deadline = { launcher:pid() }, accel.clock() + 60
  for r = 0, ranks - 1 do
    local pid
    repeat
      local f <close> = io.open(("%s/pid.%d"):format(dir, r))
      pid = f and f:read "n"
      assert(accel.clock() < deadline and not launcher:wait(pid and 0 or 0.005), "the job did not start")
    until pid
    pids[#pids + 1] = pid
  end
  launcher:wait(random:below(4000) / 20000)
  shell("kill -9 %s", table.concat(pids, " "))
  local shot, left = accel.clock(), nil
  repeat left = alive(pids) until left == 0 or accel.clock() - shot > 5
  local spent = accel.clock() - shot
  assert(left == 0, ("job %d: %d processes are left after 5 s"):format(job, left))
  assert(shared() == before and listening(pids) == 0, ("job %d left shared memory or a socket"):format(job))
  shell("rm -rf '%s'", dir)
  slowest = math.max(slowest, spent)
  return spent > 1 and ("it was gone after %.2f s"):format(spent)
end
for job = 1, jobs do
  support.timely(function() return shoot(job) end)
end

local ok = shell("TMPDIR='%s/tmp' '%s' --num_threads 1 --num_processes 2 -e 'require \"accel\".dist.barrier()' </dev/null", tmp, exe)
local rest = lines(("ls -A '%s/tmp'/accel-* 2>/dev/null | grep -v '^$' || true"):format(tmp))
assert(ok, "the next job does not start")
assert(#rest <= 1, "left below TMPDIR: " .. table.concat(rest, " "))
print(("%d jobs killed at once, the slowest was gone after %.0f ms"):format(jobs, 1000 * slowest))
