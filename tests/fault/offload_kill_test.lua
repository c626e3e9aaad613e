-- Training with states in files is killed (kill -9) at moments of its run, in the middle of writing back, and goes on from its newest
-- checkpoint: it ends with the bits of a run that nobody killed, and leaves no file of a tier.
--   accel-run tests/fault/offload_kill_test.lua [KILLS]
-- tier: every change
local accel = require "accel"
local build, src = os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_SRC"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local case = (src or ".") .. "/tests/fault/offload_kill_case.lua"
local program = build and build .. "/bin/accel-run" or "accel-run"

local function run(dir, seconds)
  local command = ("%s'%s' --resume auto '%s' '%s' 2>&1"):format(seconds and ("timeout -s KILL %.3f "):format(seconds) or "", program, case, dir)
  local pipe = assert(io.popen(command))
  local out = pipe:read "a"
  pipe:close()
  return out
end

local function fresh(name)
  local dir = tmp .. "/" .. name
  os.execute(("rm -rf '%s'"):format(dir))
  assert(accel.makedirs(dir))
  return dir
end

local from = accel.clock()
local want = run(fresh "whole"):match "end [^\n]+"
local spent = accel.clock() - from
assert(want, "the run that nobody kills does not end")

local seed = tonumber(os.getenv "ACCEL_TEST_SEED" or "") or os.time() % 100000
print("ACCEL_TEST_SEED=" .. seed)
math.randomseed(seed)
local dir, kills = fresh "killed", 0
for _ = 1, tonumber(arg[1] or "4") do
  local out = run(dir, spent * (0.2 + 0.7 * math.random()))
  local ended = out:match "end [^\n]+"
  assert(not ended or ended == want, out)
  assert(not out:find "accel%-run: .*%.lua", out) -- no error of the script
  if not ended then kills = kills + 1 end
end
local out = run(dir)
assert(out:match "end [^\n]+" == want, out .. "\nwant " .. want)
print(kills .. " kills")
for _, name in ipairs(accel.listdir(dir)) do
  local inside = name:find "^accel%-" and accel.listdir(dir .. "/" .. name)
  assert(not inside or #inside == 0, name)
end
os.execute(("rm -rf '%s' '%s/whole'"):format(dir, tmp))
