-- kill -9 of a random rank, or of the launcher, in the middle of a compressed shard (examples/40_compressed_shards.lua on 2 ranks), then
-- --resume auto: the documents and the losses of all steps are those of a run that nobody disturbed, digit by digit. Every second one
-- continues on one rank, with the same documents.
-- tier: sampled
-- 2 shots in a sample, 30 in a full run.   accel-run shards_kill_test.lua [shots]     seed: ACCEL_TEST_SEED
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src, exe = os.getenv "ACCEL_TEST_SRC" or ".", accel.process.program()
local sample = support.sample
local wanted = tonumber(arg[1]) or (sample.full and 30 or sample.sanitized and 1 or 2)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/shards_kill"
local random = accel.util.Random(sample.seed)
local STEPS <const>, EVERY <const> = 60, 7 -- a pass has about 37 steps over 4 shards, so that steps begin inside a shard
print(("ACCEL_TEST_SEED=%d, %d shots"):format(sample.seed, wanted))
assert(os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(tmp, tmp)))
require "lfs".chdir(tmp) -- where the example writes its shards

local function text_of(path)
  local f <close> = io.open(path, "rb")
  return f and f:read "a" or ""
end

--- The run as a process, whose output is the file `out`.
local function start(ranks, folder, out)
  os.remove(out)
  local command = ("exec '%s' --num_threads 1 --num_processes %d --resume auto '%s/examples/40_compressed_shards.lua' --steps %d "
    .. "--checkpointing-steps %d --output-dir '%s' >'%s' 2>err </dev/null"):format(exe, ranks, src, STEPS, EVERY, folder, out)
  return accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})
end

--- Adds the complete lines of an output: step -> "loss L, documents D". Returns the last step.
local function read(out, steps)
  local last = 0
  for step, line in text_of(out):gmatch "step (%d+): ([^\n]+)\n" do
    last = math.tointeger(tonumber(step))
    steps[last] = line
  end
  return last
end

local function documents(line) return line:match "documents .*" end

local whole = {}
do
  local p <close> = start(2, "whole", "whole.txt")
  local how, status = p:wait(120)
  assert(how == "exit" and status == 0 and read("whole.txt", whole) == STEPS, text_of "err")
end

local shots = 0
while shots < wanted do
  assert(os.execute "rm -rf run")
  -- after the second save has begun, so that the first is complete
  local at, steps, victim = 2 * EVERY + 1 + random:below(STEPS - 4 * EVERY), {}, random:below(3)
  local p <close> = start(2, "run", "out")
  local deadline, ended = accel.clock() + 60, nil
  while read("out", steps) < at and not ended do
    ended = p:wait(0.002)
    assert(accel.clock() < deadline, "nothing happens")
  end
  if not ended then -- otherwise it was faster than this loop
    local children = text_of(("/proc/%d/task/%d/children"):format(p:pid(), p:pid()))
    local ranks = {}
    for pid in children:gmatch "%d+" do ranks[#ranks + 1] = pid end
    assert(#ranks >= 2, "the ranks are children of the launcher: " .. children)
    os.execute(("kill -9 %s 2>/dev/null"):format(victim < 2 and ranks[victim + 1] or p:pid()))
    p:wait(60)
    local killed = read("out", steps)
    if killed < STEPS then -- otherwise it was faster than the kill
      shots = shots + 1
      local alone = shots % 2 == 0
      local what = ("shot %d after step %d (seed %d)"):format(shots, killed, sample.seed)
      local again <close> = start(alone and 1 or 2, "run", "out")
      local how, status = again:wait(120)
      local out = text_of "out"
      local from = tonumber(out:match "continues after step (%d+)")
      assert(how == "exit" and status == 0, what .. "\n" .. text_of "err")
      assert(from and from % EVERY == 0 and from > 0 and from <= killed, what .. "\n" .. out)
      assert(tonumber(out:match "\nstep (%d+)") == from + 1, what .. "\n" .. out)
      assert(read("out", steps) == STEPS, what)
      for k = 1, STEPS do
        local got, want = steps[k], whole[k]
        if alone and k > from then got, want = documents(got), documents(want) end
        assert(got == want, ("%s, step %d: '%s', undisturbed '%s'"):format(what, k, got, want))
      end
    end
  end
end
print(("%d killed runs give the documents and losses of the undisturbed one"):format(shots))
