-- Clients that come and go while ranks train: detach, an end at any moment, kill -9, garbage on the socket, an interrupted prompt. The losses are
-- those of the run that nobody looked at, bit for bit.
-- tier: sampled
-- 12 cycles in a sample, 1,000 in a full run.   accel-run cycles_test.lua [cycles]     seed: ACCEL_TEST_SEED
-- Most clients are in this process, by the functions of accel-run attach: what a rank sees of one that is killed is that its sockets close.
local accel = require "accel"
local t = dofile((arg[0]:match "^.*/" or "") .. "support.lua")
local sample = dofile((arg[0]:match "^.*/" or "") .. "../../support/sample.lua")
local wanted = tonumber(arg[1]) or (sample.sanitized and 4 or sample.full and 1000 or 12)
local random = accel.util.Random(sample.seed)
print(("ACCEL_TEST_SEED=%d, %d cycles"):format(sample.seed, wanted))

local jobs = accel.host_chunk "attach/jobs"
function jobs.folder() return t.env.XDG_RUNTIME_DIR .. "/accel" end
local attach = accel.host_chunk "attach/client"
local STEPS <const> = wanted > 100 and 600 or 100
local AFTER = t.line_of "opt:zero_grad()"

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

-- ---- clients of this process ----

-- A client that says nothing; nil: the job has ended meanwhile.
local function client(row)
  local c = attach.open(row)
  if not c then return nil end
  c.interactive = false
  function c.say() end
  function c.complain() end
  return c
end

-- Its end without a word, as of a process that was killed.
local function vanish(c)
  for rank = 0, c.size - 1 do
    c.ranks[rank].control:close()
    c.ranks[rank].channel:close()
  end
  c.pages:close()
end

local function eval(c, text)
  if #c:alive() > 0 then c:ask({ op = "eval", text = text }, 1, c:alive()) end
end

local function breakpoint(c)
  c.breaks = { { id = 1, file = "job.lua", line = AFTER, condition = ("i %% %d == 0"):format(1 + random:below(7)) } }
  c.stops_version = c.stops_version + 1
  c:send_stops()
end

local function sleep(seconds) accel.console.poll({}, seconds) end

-- Looks at values at a step and leaves.
local function detach(row)
  local c = client(row)
  if not c then return end
  c:pause()
  eval(c, "i, loss:item(), model")
  eval(c, "nothing_of_that_name()")
  c:go("step", c:alive(), { count = 1 + random:below(3) })
  c:wait_for_ranks(c:away())
  c:go("detach", c:alive())
  vanish(c)
end

-- Is gone at some moment: before its pause, in it, at a breakpoint, between lines, while ranks run.
local function die(row)
  local c = client(row)
  if not c then return end
  local at = random:below(6)
  if at >= 1 then c:agree() end
  if at >= 2 then c:wait_for_ranks(c:away()) end
  if at == 3 then
    breakpoint(c)
    c:go("continue", c:alive())
    sleep(random:below(30) * 1e-3)
  elseif at == 4 then
    c:go("line", c:alive(), { mode = ({ "over", "in", "out" })[1 + random:below(3)] })
    sleep(random:below(10) * 1e-3)
  elseif at == 5 then
    eval(c, "loss:item()")
    c:go("step", c:alive(), { count = 3 })
  end
  vanish(c)
end

local function garbage(row)
  local rank = random:below(#row.list)
  local c = random:below(2) == 0 and jobs.connect(row, rank)
  local channel = c and c.channel or accel.console.connect(row.folder, "rank" .. rank)
  if not channel then return end
  local bytes = {}
  for i = 1, 1 + random:below(200) do bytes[i] = string.char(random:below(256)) end
  channel:send(table.concat(bytes))
  if random:below(2) == 0 then channel:send(("pause %d"):format(random:below(1000))) end
  channel:close()
end

-- ---- clients that are processes ----

local function killed(row)
  local feed = "printf 'i\\n:step\\nloss\\n:step 3\\n:watch loss\\n:c\\n'; sleep 5"
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec 2>/dev/null; (%s) | exec '%s' attach %s >/dev/null"):format(feed, t.exe,
    row.id) }, t.env)
  sleep(random:below(400) * 1e-3)
  os.execute(("pkill -9 -P %d"):format(p:pid()))
  p:signal(9)
  p:wait(10)
end

local function told(row) t.run("attach " .. row.id, "i\n:step\nloss:item()\n:stacks\n:detach\n") end

local function one(row)
  local kind = random:below(40)
  if kind == 0 then told(row)
  elseif kind == 1 then killed(row)
  elseif kind < 15 then detach(row)
  elseif kind < 35 then die(row)
  else garbage(row) end
end

local done, reference, processes = 0, {}, 0
local session <close> = accel.console.session()
while done < wanted do
  local ranks = 1 + random:below(wanted > 100 and 4 or 2)
  local words = ("--num-processes %d '%s' %d slow"):format(ranks, t.case, STEPS)
  if not reference[ranks] then
    local job = t.start(words)
    reference[ranks] = digest(job)
    job.process:close()
  end
  local job = t.start(words)
  processes = processes + 1
  while done < wanted and not ended(job, 0) do
    local row = jobs.list()[1]
    local pages = row and #row.list == row.size and jobs.pages(row)
    local step = pages and pages:read()[1].step or 0
    if pages then pages:close() end
    if step > STEPS * 0.9 then break end
    if step >= 3 then
      if done == 3 then killed(row) elseif done == 4 then told(row) else one(row) end
      done = done + 1
    else
      sleep(0.01)
    end
  end
  local got = digest(job)
  assert(got == reference[ranks], ("%d ranks: %s, undisturbed %s"):format(ranks, got, reference[ranks]))
  job.process:close()
end
assert(session and #jobs.list() == 0)
print(("%d clients came and went in %d jobs; the losses are those of the undisturbed runs"):format(done, processes))

-- Looking at jobs while one starts takes nothing from it: all ranks go by one token.
for _ = 1, sample.full and 50 or 2 do
  local job = t.start(("--num-processes 2 '%s' 1000000 slow"):format(t.case))
  local limit, row = accel.clock() + 60, nil
  repeat
    row = jobs.list()[1]
    assert(accel.clock() < limit, "no job")
  until row and #row.list == 2
  local stacks, whys = jobs.stacks(row, { 0, 1 })
  assert(stacks[0] and stacks[1], tostring(whys[0] or whys[1]))
  t.kill(job)
end
