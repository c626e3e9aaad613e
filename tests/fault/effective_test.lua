-- Training under faults: kill -9 of a random rank again and again. How soon the next step comes, and which part of the time trains:
-- new steps by their usual length, over the time that passed. A step that is done again after a restart does not count.
--   accel-run effective_test.lua [seconds] [seconds between faults]     seed: ACCEL_TEST_SEED
-- tier: slow
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src, exe = os.getenv "ACCEL_TEST_SRC" or ".", accel.process.program()
local seconds, every = tonumber(arg[1]) or 20, tonumber(arg[2]) or 5
local STEP <const> = 0.05
local dir = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/effective"
local random = accel.util.Random(support.sample.seed)
print(("ACCEL_TEST_SEED=%d, %g s, a fault every %g s"):format(support.sample.seed, seconds, every))
os.execute(("rm -rf '%s'"):format(dir))
assert(accel.makedirs(dir))

local RANKS <const> = 2
local command = ("exec '%s' --num_threads 1 --num_processes %d --max-restarts 100000 --resume auto '%s/tests/fault/effective_case.lua' '%s' %g "
  .. "> '%s/out' 2>&1 </dev/null"):format(exe, RANKS, src, dir, STEP, dir)
local launcher <close> = accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a" or ""
end
--- Steps so far: { attempt, step, time } each.
local function steps()
  local list = {}
  for attempt, step, time in read(dir .. "/steps"):gmatch "(%d+) (%d+) ([%d.]+)\n" do
    list[#list + 1] = { tonumber(attempt), tonumber(step), tonumber(time) }
  end
  return list
end
local function wait_for(what, condition)
  local deadline = accel.clock() + 60
  while true do
    local found = condition()
    if found then return found end
    assert(accel.clock() < deadline and not launcher:wait(0.01), what .. ":\n" .. read(dir .. "/out"):sub(-2000))
  end
end

wait_for("the run did not start", function() return #steps() >= 12 end)
local first, began = #steps(), accel.clock()
local start, recovery, faults = steps()[first][2], {}, 0
while accel.clock() - began < seconds do
  launcher:wait(every * (0.5 + random:below(1000) / 1000))
  local victim = tonumber((read(("%s/pid.%d"):format(dir, random:below(RANKS)))))
  local before = steps()
  os.execute(("kill -9 %d"):format(victim))
  local shot, attempt = accel.clock(), before[#before][1]
  local next_step = wait_for("no step after a fault", function()
    local list = steps()
    return list[#list][1] > attempt and list
  end)
  faults = faults + 1
  for _, s in ipairs(next_step) do
    if s[1] > attempt then
      recovery[#recovery + 1] = s[3] - shot
      break
    end
  end
end
local list, passed = steps(), accel.clock() - began
os.execute(("kill -15 %d"):format(launcher:pid()))
launcher:wait(20)
local lengths, furthest = {}, start
for i = first + 1, #list do
  furthest = math.max(furthest, list[i][2])
  if list[i][1] == list[i - 1][1] then lengths[#lengths + 1] = list[i][3] - list[i - 1][3] end
end
table.sort(lengths)
table.sort(recovery)
local usual = lengths[(#lengths + 1) // 2]
print(("%d faults in %.0f s: %d new steps of %.1f ms, effective time %.1f %%, to the next step median %.3f s, p99 %.3f s"):format(faults, passed,
  furthest - start, usual * 1e3, 100 * (furthest - start) * usual / passed, recovery[(#recovery + 1) // 2], recovery[math.max(1,
  math.ceil(#recovery * 0.99))]))
assert(furthest > start, "no new step in all the time")
os.execute(("rm -rf '%s'"):format(dir))
