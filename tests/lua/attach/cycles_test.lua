-- Clients that come and go while ranks train: detach, kill -9 at any moment, garbage on the socket, an interrupted prompt. The losses are those of
-- the run that nobody looked at, bit for bit.
-- tier: sampled
-- 12 cycles in a sample, 1,000 in a full run.   accel-run cycles_test.lua [cycles]     seed: ACCEL_TEST_SEED
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")
local sample = dofile((arg[0]:match "^.*/" or "") .. "../../support/sample.lua")
local wanted = tonumber(arg[1]) or (sample.sanitized and 4 or sample.full and 1000 or 12)
local random = accel.util.Random(sample.seed)
print(("ACCEL_TEST_SEED=%d, %d cycles"):format(sample.seed, wanted))

local STEPS <const> = 150

-- How a job ended, nil: it runs.
local function ended(job, seconds)
  if not job.how then job.how, job.status = job.process:wait(seconds) end
  return job.how
end

local function digest(job)
  local how = ended(job, 400)
  assert(how == "exit" and job.status == 0, ("%s %s\n%s%s"):format(how or "it hangs:", job.status, t.read(job.err), how and "" or t.run "stacks"))
  return assert(t.read(job.out):match "digest (%x+)", t.read(job.err))
end

local function garbage(row)
  local c = accel.console.connect(t.env.XDG_RUNTIME_DIR .. "/accel/" .. row.id, "rank0")
  if not c then return end
  local bytes = {}
  for i = 1, 1 + random:below(200) do bytes[i] = string.char(random:below(256)) end
  c:send(table.concat(bytes))
  c:close()
end

-- A client that is killed at some moment of its life.
local function killed(row)
  local feed = "printf 'i\\n:step\\nloss\\n:step 3\\n:watch loss\\n:c\\n'; sleep 5"
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("(%s) | exec '%s' attach %s >/dev/null 2>&1"):format(feed, t.exe, row.id) }, t.env)
  accel.process.spawn("/bin/sleep", { "sleep", ("0.%03d"):format(random:below(400)) }, {}):wait(2)
  os.execute(("pkill -9 -f 'accel-run attach %s'"):format(row.id))
  p:wait(10)
end

local kinds = {
  function(row) t.run("attach " .. row.id, "i\n:step\nloss:item()\n:detach\n") end,
  function(row) t.run("attach " .. row.id, ":break job.lua:19 if i % 7 == 0\n:c\n#0.1\n:locals\n:next\n:into\n") end,
  function(row) t.run("attach " .. row.id, "model\nloss\nnothing_of_that_name\n:stacks\n") end,
  killed,
  killed,
  garbage,
}

local done, reference = 0, {}
while done < wanted do
  local ranks = 1 + random:below(sample.full and 4 or 2)
  local words = ("--num-processes %d '%s' %d slow"):format(ranks, t.case, STEPS)
  if not reference[ranks] then
    local job = t.start(words)
    reference[ranks] = digest(job)
    job.process:close()
  end
  local job = t.start(words)
  while done < wanted do
    local row
    for _ = 1, 200 do
      row = t.ps()[1]
      if row and row.step and row.step >= 3 or ended(job, 0.02) then break end
    end
    if not row then break end
    kinds[1 + random:below(#kinds)](row)
    done = done + 1
    if row.step > STEPS * 0.8 then break end
  end
  local got = digest(job)
  assert(got == reference[ranks], ("%d ranks: %s, undisturbed %s"):format(ranks, got, reference[ranks]))
  job.process:close()
end
assert(#t.ps() == 0)
print(("%d clients came and went; the losses are those of the undisturbed runs"):format(done))

-- Looking at jobs while one starts takes nothing from it: all ranks go by one token.
for _ = 1, sample.full and 50 or 3 do
  local job = t.start(("--num-processes 2 '%s' 1000000 slow"):format(t.case))
  for _ = 1, 15 do t.run "ps" end
  t.running(2, 1)
  local stacks = t.run "stacks"
  assert(not stacks:find "denied" and stacks:find "rank 1 ", stacks)
  t.kill(job)
end
