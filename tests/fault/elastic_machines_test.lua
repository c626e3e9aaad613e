-- Jobs of several machines, played by several accel-runs on the loopback, lose ranks and machines at random times: the others continue, and
-- no update is lost, repeated or done by too few ranks (elastic_kill_case.lua, whose state this test computes without any rank).
-- tier: sampled
-- A full run takes many more.  accel-run elastic_machines_test.lua [jobs]
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = accel.process.program()
local sample = support.sample
local jobs = tonumber(arg[1]) or (sample.full and not sample.sanitized and 60 or 1)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/machines"
local random = accel.util.Random(sample.seed)
local port = 20000 + accel.util.Random(os.time() * 1000 + math.floor(accel.clock() * 1e6) % 1000):below(9000)
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))
local function below(n) return random:below(n) end

local MICRO <const>, LIMIT <const> = 8, sample.sanitized and 30 or 5 -- LIMIT: seconds of a pause
local function state(updates)
  local hash = 7
  for u = 1, updates do
    local sum = 0
    for i = 0, MICRO - 1 do sum = sum + u * 1000 + i end
    hash = (hash * 1000003 + sum) & 0xffffffffffff
  end
  return hash
end
local function read(path)
  local f <close> = io.open(path)
  return f and f:read "a"
end
local function sh(command) return (os.execute(command)) end

---@class machines.Job
---@field range string MIN:MAX
---@field machines integer
---@field ranks integer of each
---@field updates integer
---@field plan? string
---@field options? string
---@field act? string shell commands once the job runs: $P1, $P2, ... are the agents
---@field victim? integer the agent that act kills
---@field folder? string of its logs and results, once it was started

--- Starts a job. Returns a function that waits for its end: a list { text =, status = } of its machines.
---@param job machines.Job
local function start(job)
  port = port + 1
  local folder = ("%s/%d"):format(tmp, port)
  job.folder = folder
  sh(("rm -rf '%s'; mkdir -p '%s'"):format(folder, folder))
  local lines = { ("cd '%s'; export ACCEL_JOB_SECRET=0123456789abcdef0123456789abcdef"):format(folder) }
  for m = 1, job.machines do
    lines[#lines + 1] = ("(exec timeout -s KILL 100 sh -c 'echo $$ >pid%d; exec \"$@\"' sh '%s' --num-threads 1 "
      .. "--rendezvous 127.0.0.1:%d --num-machines %s --nproc-per-node %d %s '%s/tests/fault/elastic_kill_case.lua' '%s' %d %d '%s') "
      .. ">log%d 2>&1 </dev/null & J%d=$!"):format(m, exe, port, job.range, job.ranks, job.options or "", src, folder, job.updates, MICRO,
      job.plan or "", m, m)
  end
  if job.act then
    lines[#lines + 1] = "for i in $(seq 300); do [ -e running ] && break; sleep 0.1; done"
    for m = 1, job.machines do lines[#lines + 1] = ("P%d=$(cat pid%d)"):format(m, m) end
    lines[#lines + 1] = job.act
  end
  for m = 1, job.machines do lines[#lines + 1] = ("wait $J%d; echo $? >status%d"):format(m, m) end
  local pipe = assert(io.popen(("sh -c '%s' 2>/dev/null"):format(table.concat(lines, "\n"):gsub("'", "'\\''"))))
  return function()
    pipe:read "a"
    pipe:close()
    local out = {}
    for m = 1, job.machines do
      out[m] = { text = read(("%s/log%d"):format(folder, m)) or "", status = tonumber(read(("%s/status%d"):format(folder, m))) }
    end
    return out
  end
end
local function run(job) return start(job)() end
local function all_text(out)
  local t = {}
  for m, o in ipairs(out) do t[#t + 1] = ("-- machine %d: status %s\n%s"):format(m, o.status, o.text) end
  return table.concat(t)
end

--- Checks the survivors of a job. lost: numbers of ranks that may be missing. Returns what was late, how many survived.
local function judge(job, out, lost)
  local function fail(why) error(("%s machines %d x %d, plan %s, %s: %s\n%s"):format(job.range, job.machines, job.ranks, job.plan, job.act, why,
    all_text(out)), 0) end
  local want, survivors, late = state(job.updates), 0, nil
  for r = 0, job.machines * job.ranks - 1 do
    local hash, rank, size, _, pause = (read(("%s/%d"):format(job.folder, r)) or ""):match "^(%d+) (%d+) (%d+) (%d+) (%S+)"
    if hash then
      survivors = survivors + 1
      if tonumber(hash) ~= want then fail(("rank %d: its updates are not 1 to %d, each once, of %d parts"):format(r, job.updates, MICRO)) end
      if tonumber(rank) >= tonumber(size) then fail "a rank above the size of the world" end
      if tonumber(pause) > LIMIT then late = ("a pause of %s s"):format(pause) end
    elseif not lost(r) then
      fail(("nothing is known of rank %d"):format(r))
    end
  end
  if survivors == 0 then fail "nobody survived" end
  return late, survivors
end
local function count(text, pattern) return select(2, text:gsub(pattern, "")) end

-- Ranks of any machine are killed at any point of an update.
local POINTS <const> = { "prepared", "applying", "applied", "caught", "recover", "time" }
for k = 1, 7 do
  for _, where in ipairs { "before", "inside", "after" } do POINTS[#POINTS + 1] = where .. k end
end
local function plan_of(total, turn)
  local alive, words, update = {}, {}, 1
  for r = 0, total - 1 do alive[#alive + 1] = r end
  while #alive > 1 and update <= 10 and #words < total - 1 do
    update = math.min(update + below(4), 11)
    local point = POINTS[(#words == 0 and turn or below(#POINTS)) % #POINTS + 1]
    local delay = (point:find "inside" or point == "recover") and below(30) / 10000 or point == "time" and below(300) / 1000 or 0
    words[#words + 1] = ("%d:%d:%s:%.4f"):format(table.remove(alive, below(#alive) + 1), update, point, delay)
    update = update + 1
  end
  return table.concat(words, ",")
end
-- An agent dies at any time, with its ranks: the others hear nothing of it for 1.5 s. One of these jobs runs beside the first of the above.
local function agent_job(i)
  local victim = (sample.seed + i) % 3 + 1
  return {
    range = "2:3", machines = 3, ranks = sample.full and 1 + below(2) or 1, updates = sample.full and 200 or 60, victim = victim,
    act = ("sleep %.3f; kill -9 $P%d"):format(below(200) / 1000, victim),
  }
end
local beside = agent_job(1)
local ends = start(beside)

local kills, machines_lost = 0, 0
for i = 1, jobs do
  local job = { machines = sample.full and 2 + below(2) or 2, ranks = sample.full and 1 + below(3) or 2, updates = 12 }
  job.range = "1:" .. (sample.full and 3 or job.machines) -- fewer than 3 wait 5 s for the third
  job.plan = plan_of(job.machines * job.ranks, sample.seed + i)
  support.timely(function()
    local out = run(job)
    local text = all_text(out)
    if text:find("losses at update", 1, true) then return nil end
    -- without more than half of the machines of a generation the rest waits, and the job has ended by --wait-machines
    if text:find("paused at update", 1, true) then return nil end
    -- no agent was killed: the system did not run one for 1.5 s, and its ranks, of which no line tells, ended with it
    if text:find("silent for", 1, true) then return "a machine that did not run for 1.5 s" end
    local late, survivors = judge(job, out, function(r) return text:find(("rank %d %%(pid"):format(r)) ~= nil end)
    kills = kills + job.machines * job.ranks - survivors
    if survivors > 0 and count(text, "; generation 2:") > 1 then error("a change was reported twice\n" .. text, 0) end
    return late
  end)
end

for i = 1, jobs do
  local job = i == 1 and beside or agent_job(i)
  local victim = job.victim
  support.timely(function()
    local out = (ends or start(job))()
    ends = nil
    local text = all_text(out)
    if out[victim].status ~= 137 then return nil end -- it had finished
    local late, survivors = judge(job, out, function() return true end)
    if survivors < 2 * job.ranks then error("a survivor is missing\n" .. text, 0) end
    if count(text, "%) has been silent for 1.5 s; generation 2: ") ~= 1 and count(text, "generation") > 0 then
      error("the silent machine is not named once\n" .. text, 0)
    end
    machines_lost = machines_lost + 1
    return late
  end)
end
print(("%d jobs: %d ranks killed, %d machines lost; the others did each update once"):format(2 * jobs, kills, machines_lost))

if not sample.full then return end

-- One of two machines is not more than half: the other waits, and ends with 75.
local job = { range = "1:2", machines = 2, ranks = 1, updates = 3000, options = "--wait-machines 0.5", act = "kill -9 $P2" }
local out = run(job)
assert(out[1].status == 75 or out[2].status == 75, all_text(out))
assert(all_text(out):find("paused at update %d+: 1 of 2 machines is silent %([^()]+%); the others may run on"), all_text(out))
-- An agent that stops for a moment loses nothing.
out = run { range = "2:3", machines = 3, ranks = 1, updates = 60, act = "kill -STOP $P2; sleep 0.3; kill -CONT $P2" }
assert(out[1].status == 0 and out[2].status == 0 and out[3].status == 0 and not all_text(out):find "generation", all_text(out))
-- One that stops for longer is left out, and ends its ranks when it wakes.
job = { range = "2:3", machines = 3, ranks = 1, updates = 3000, act = "kill -STOP $P2; sleep 3; kill -CONT $P2" }
out = run(job)
local text = all_text(out)
assert(out[2].status == 1 and text:find "was silent for too long; generation 2 continues without it", text)
judge(job, out, function() return true end)
-- A Lua error ends the job on all machines, with the same line.
out = run { range = "1:2", machines = 2, ranks = 1, updates = 3000, act = "kill -TERM $P2" }
assert(out[1].status ~= 0 and out[2].status ~= 0, all_text(out))
-- Machines that do not fit are refused, and a machine that comes later is told why it cannot join.
local start = ("ACCEL_JOB_SECRET=0123456789abcdef0123456789abcdef timeout 20 '%s' --num-threads 1 --nproc-per-node 1 "
  .. "--rendezvous 127.0.0.1:%%d %%s '%s' 2>&1"):format(exe, tmp .. "/wait.lua")
local f = assert(io.open(tmp .. "/wait.lua", "w"))
f:write 'local dist = require "accel".dist; dist.barrier(); os.execute "sleep 3"; dist.barrier()'
f:close()
local function both(first, second, delay, pattern)
  port = port + 1
  local one = assert(io.popen(start:format(port, first)))
  if delay > 0 then sh(("sleep %g"):format(delay)) end
  local two = assert(io.popen(start:format(port, second)))
  local text = two:read "a"
  local _, _, status = two:close()
  if not text:find(pattern) or status == 0 then error(("%s, then %s: status %s\n%s\n%s"):format(first, second, status, text, one:read "a"), 0) end
  one:close()
end
both("--num-machines 1:2", "--num-machines 1:3", 0, "was started with %-%-num%-machines 1:2, this machine with 1:3")
-- One of three that does not fit ends alone.
port = port + 1
local pipes = {}
for i, range in ipairs { "2:2", "2:2", "2:3" } do
  if i == 3 then sh "sleep 0.3" end -- the others have the address of the list
  pipes[i] = assert(io.popen(start:format(port, "--num-machines " .. range)))
end
for i, pipe in ipairs(pipes) do
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  assert(i < 3 and status == 0 or i == 3 and status ~= 0 and text:find "was started with %-%-num%-machines 2:2, this machine with 2:3", text)
end
both("--num-machines 1:3", "--num-machines 1:3", 6.5, "machines cannot join a running job")
