-- kill -9 of a random rank, or of the launcher, at random moments, a third of them inside a save (in a full run two shots of five
-- are Ctrl-C, once or twice), then resume, until the run has ended: weights, optimizer, generators and the order of the data are
-- those of a run that nobody disturbed, and no acknowledged step is lost.
-- tier: sampled
-- parts: a b c d e
-- 20 shots in a sample, 500 in a full run, 100 in each part of it.   accel-run ckpt_kill_test.lua [shots]     seed: ACCEL_TEST_SEED
-- shard_kill_test.lua runs this on sharded models, mesh_kill_test.lua on one that 4 ranks share.
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../support/case.lua")
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src, exe = os.getenv "ACCEL_TEST_SRC" or ".", accel.process.program()
local sample = support.sample
local stage = arg.stage or "no" -- of ZeRO, or "mesh"
local least = stage == "mesh" and 4 or 1 -- ranks, of 4
local part = os.getenv "ACCEL_TEST_PART" -- of a full run: shots of its own
local wanted = tonumber(arg[1]) or (sample.sanitized and 4 or sample.full and (part and 100 or 500) or arg.stage and 8 or 20)
local tmp = ("%s/ckpt_kill_%s"):format(os.getenv "ACCEL_TEST_TMP" or "/tmp", stage)
local random = accel.util.Random(sample.seed + (part and part:byte() << 32 or 0))
local STEPS <const>, EVERY <const> = 60, 3
print(("ACCEL_TEST_SEED=%d, %d shots"):format(sample.seed, wanted))

local function shell(fmt, ...) return os.execute(fmt:format(...)) end

--- A program that runs the case, whose output is a file.
local function start(ranks, dir, asynchronous, backend)
  shell("rm -f '%s'/pid.* '%s/out'", dir, dir)
  local command = ("exec '%s' --num_threads 1 --num_processes %d --backend %s --resume auto '%s/tests/fault/ckpt_kill_case.lua' "
    .. "'%s' %d %d %s %s >'%s/out' 2>'%s/err' </dev/null"):format(exe, ranks, backend, src, dir, STEPS, EVERY,
    asynchronous and "yes" or "no", stage, dir, dir)
  return accel.process.spawn("/bin/sh", { "sh", "-c", command }, {})
end

local function text_of(path)
  local f <close> = io.open(path, "rb")
  return f and f:read "a" or ""
end

--- What it printed: the batch that it began behind, the last one that was acknowledged, the digest of its end.
local function outcome(dir)
  local out = text_of(dir .. "/out")
  local last
  for n in out:gmatch "saved (%d+)\n" do last = tonumber(n) end
  return tonumber(out:match "from (%d+)\n"), last, out:match "done (%x+)\n"
end

local undisturbed = {}
for ranks = least, 4 do
  local dir = ("%s/whole%d"):format(tmp, ranks)
  shell("rm -rf '%s'; mkdir -p '%s'", dir, dir)
  local p <close> = start(ranks, dir, false, "shm")
  local how, status = p:wait(120)
  undisturbed[ranks] = select(3, outcome(dir))
  assert(how == "exit" and status == 0 and undisturbed[ranks], text_of(dir .. "/err"))
end

--- Waits until ok() is true, or the program ends.
local function poll(p, ok)
  local deadline = accel.clock() + 60
  while not ok() do
    if p:wait(0.002) then return false end
    assert(accel.clock() < deadline, "nothing happens")
  end
  return true
end

local shots, inside, unfinished, runs = 0, 0, 0, 0
while shots < wanted do
  local ranks, asynchronous = least + random:below(5 - least), random:below(2) == 1
  -- what is cut lies in memory that all map, or is sent, by turns, with the same bits
  local backend = arg.stage and random:below(2) == 1 and "tcp" or "shm"
  local dir = tmp .. "/run"
  shell("rm -rf '%s'; mkdir -p '%s'", dir, dir)
  local acknowledged, digest, attempts = 0, nil, 0
  runs = runs + 1
  while not digest do
    attempts = attempts + 1
    local p <close> = start(ranks, dir, asynchronous, backend)
    local shoot = attempts <= 4 and shots < wanted
    if shoot then
      local victim = random:below(ranks + 1) -- the last one: the launcher
      local during_save, delay = random:below(3) == 0, random:below(6000) / 1e4 / 4
      local alive = poll(p, function() return text_of(("%s/pid.%d"):format(dir, ranks - 1)):find "\n" ~= nil end)
      if alive and during_save then
        alive = poll(p, function()
          for _, name in ipairs(accel.listdir(dir .. "/checkpoints") or {}) do
            if name:find "%.tmp%-" then return true end
          end
        end)
        inside = inside + (alive and 1 or 0)
      elseif alive then
        alive = not p:wait(delay)
      end
      if alive then
        shots = shots + 1
        local pid = victim < ranks and text_of(("%s/pid.%d"):format(dir, victim)):match "%d+"
        local kind = sample.full and random:below(5) or 4
        for k = 1, kind == 0 and 2 or 1 do -- twice Ctrl-C, once, else kill -9
          if k == 2 then accel.process.spawn("/bin/sleep", { "sleep", "0.00" .. random:below(10) }, {}):wait(1) end
          if pid then shell("kill -%d %s 2>/dev/null", kind < 2 and 2 or 9, pid)
          else pcall(p.signal, p, kind < 2 and 2 or 9) end -- it may have ended
        end
      end
    end
    local running, how = pcall(p.wait, p, 120) -- false: it has been waited for
    assert(not running or how, "the run hangs")
    local from, last, done = outcome(dir)
    if from then
      assert(from >= acknowledged, ("run %d on %d ranks: batch %d was acknowledged, and it continues after %d\n%s")
        :format(runs, ranks, acknowledged, from, text_of(dir .. "/err")))
    else
      assert(shoot, text_of(dir .. "/err"))
    end
    acknowledged, digest = math.max(acknowledged, last or 0), done
    if not shoot then assert(done, text_of(dir .. "/err")) end
    for _, name in ipairs(accel.listdir(dir .. "/checkpoints") or {}) do
      if name:find "%.tmp%-" then unfinished = unfinished + 1 end
    end
    -- ranks of a launcher that was killed die with it, in their own time
    for r = 0, ranks - 1 do
      local pid = text_of(("%s/pid.%d"):format(dir, r)):match "%d+"
      local deadline = accel.clock() + 20
      while pid and text_of(("/proc/%s/stat"):format(pid)):find "%) [^Z]" do
        assert(accel.clock() < deadline, "a rank outlives its launcher")
        accel.process.spawn("/bin/sleep", { "sleep", "0.01" }, {}):wait(1)
      end
    end
  end
  assert(digest == undisturbed[ranks], ("run %d on %d ranks, %d attempts: %s, undisturbed %s"):format(runs, ranks, attempts,
    digest, undisturbed[ranks]))
end
print(("%d shots, %d inside a save, %d saves were left unfinished; %d runs of %s4 ranks ended with the bits of the undisturbed one")
  :format(shots, inside, unfinished, runs, least < 4 and "1 to " or ""))
case "half-written checkpoints"
