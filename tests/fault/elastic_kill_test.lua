-- Ranks of an elastic job are killed at every point of an update: the others continue at the same update, and no update is lost, repeated
-- or done by too few ranks. The state of elastic_kill_case.lua is a hash of sums, which this test computes without any rank.
-- tier: sampled
-- A full run takes some hundred kills on 2 to 6 ranks.  accel-run elastic_kill_test.lua [jobs]
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = accel.process.program()
local sample = support.sample
local jobs = tonumber(arg[1]) or (sample.full and not sample.sanitized and 150 or 1)
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/elastic"
local random = accel.util.Random(sample.seed)
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))
local function below(n) return random:below(n) end

local UPDATES <const>, MICRO <const>, LIMIT <const> = 12, 8, sample.sanitized and 30 or 5 -- LIMIT: seconds of a pause
local model = 7
for u = 1, UPDATES do
  local sum = 0
  for i = 0, MICRO - 1 do sum = sum + u * 1000 + i end
  model = (model * 1000003 + sum) & 0xffffffffffff
end

local function read(path)
  local f = io.open(path)
  if not f then return nil end
  local text = f:read "a"
  f:close()
  return text
end

--- Runs accel-run with these words: its output, exit status.
local function run(words)
  local p = assert(io.popen(("timeout -s KILL 100 '%s' --num-threads 1 %s 2>&1 </dev/null; echo status $?"):format(exe, words)))
  local text = p:read "a"
  p:close()
  return text, tonumber(text:match "status (%d+)%s*$")
end

--- One job. Returns what was late, for `timely`.
local function shoot(backend, ranks, plan, kills)
  os.execute(("rm -rf '%s'; mkdir -p '%s'"):format(tmp, tmp))
  local text, status = run(("--backend %s --num-machines 1:1 --replace no --nproc-per-node %d '%s/tests/fault/elastic_kill_case.lua' '%s' %d %d '%s'")
    :format(backend, ranks, src, tmp, UPDATES, MICRO, plan))
  local function fail(why) error(("%s, %d ranks, plan %s: %s\n%s"):format(backend, ranks, plan, why, text), 0) end
  if status == 137 and text:find("3 losses at update", 1, true) and kills > 2 then return nil end
  if status ~= 0 then fail("exit status " .. status) end
  local named, killed = {}, 0
  for line in text:gmatch "[^\n]+" do
    if line:find("; generation ", 1, true) or line:find("finished without it", 1, true) then
      if not line:find "^accel%-run: rank %d+ %(pid %d+, " then fail("a line without the lost rank: " .. line) end
      for r in line:gmatch "rank (%d+) %(pid %d+, [^()]+%) was killed by signal 9 %(SIGKILL%)" do
        named[tonumber(r)], killed = true, killed + 1
      end
    end
  end
  local survivors, late = 0, nil
  for r = 0, ranks - 1 do
    local hash, rank, size, _, pause = (read(tmp .. "/" .. r) or ""):match "^(%d+) (%d+) (%d+) (%d+) (%S+)"
    if hash then
      if tonumber(hash) ~= model then fail(("rank %d: its updates are not 1 to %d, each once, of %d parts"):format(r, UPDATES, MICRO)) end
      if tonumber(rank) >= tonumber(size) then fail "a rank above the size of the world" end
      if tonumber(pause) > LIMIT then late = ("a pause of %s s"):format(pause) end
      survivors = survivors + 1
    elseif not named[r] then
      fail(("nothing is known of rank %d"):format(r))
    end
  end
  if survivors + killed ~= ranks or survivors == 0 then fail(("%d ranks survived, %d kills were reported"):format(survivors, killed)) end
  return late, killed
end

local POINTS <const> = { "prepared", "applying", "applied", "caught", "recover", "time" }
for k = 1, 7 do
  for _, where in ipairs { "before", "inside", "after" } do POINTS[#POINTS + 1] = where .. k end
end
--- A plan of at most two kills in an update, of ranks that have not been killed. turn: the point of the first, by turns.
local function make_plan(ranks, turn)
  local alive, words, update = {}, {}, 1
  for r = 0, ranks - 1 do alive[#alive + 1] = r end
  local function victim() return table.remove(alive, #words == 0 and turn % 3 == 0 and 1 or below(#alive) + 1) end
  local function add(point)
    local delay = (point:find "inside" or point == "recover") and below(30) / 10000 or point == "time" and below(300) / 1000 or 0
    words[#words + 1] = ("%d:%d:%s:%.4f"):format(victim(), update, point, delay)
  end
  local point = POINTS[turn % #POINTS + 1]
  while #alive > 1 and update <= UPDATES - 2 do
    update = math.min(update + below(4), UPDATES - 1)
    local learns = point == "caught" or point == "recover"
    add(learns and "before" .. below(7) + 1 or point)
    if #alive > 1 and (learns or below(3) == 0) then add(learns and point or POINTS[below(#POINTS) + 1]) end
    point, update = POINTS[below(#POINTS) + 1], update + 1
  end
  return table.concat(words, ","), #words
end

local total = 0
for job = 1, jobs do
  local ranks = sample.full and 2 + below(5) or 4
  for i, backend in ipairs { "shm", "tcp" } do
    local plan, kills = make_plan(ranks, sample.seed + job + (i - 1) * #POINTS // 2)
    support.timely(function()
      local late, killed = shoot(backend, ranks, plan, kills)
      total = total + (killed or 0)
      return late
    end)
  end
end
print(("%d jobs on shm and tcp each, %d kills: every survivor did each of %d updates once"):format(jobs, total, UPDATES))

-- The ends of a job: three losses at one update, nobody left, an error of the script, a script that does not handle a loss.
local function write(text)
  local f = assert(io.open(tmp .. ".lua", "w"))
  f:write(text)
  f:close()
end
local function expect(words, status, pattern)
  local text, got = run(words)
  if got ~= status or not text:find(pattern) then error(("%s: status %s\n%s"):format(words, got, text), 0) end
end
local ELASTIC <const> = "--num-machines 1:1 --replace no --nproc-per-node %d '%s.lua'"
local HEAD <const> = [[
local dist, elastic = require "accel".dist, require "accel.elastic.core"
local pid = io.open "/proc/self/stat":read "n"
local function die() os.execute("kill -9 " .. pid) end
local rank = dist.get_rank()
dist.barrier()
]]
write(HEAD .. [[
while true do
  elastic.phase("begin", 7)
  if rank > 0 and dist.get_world_size() == rank + 1 then die() end
  local ok, e = pcall(dist.barrier)
  if not ok then
    if e.code ~= "membership" then error(e, 0) end
    elastic.recover()
  end
end]])
expect(ELASTIC:format(4, tmp), 137, "3 losses at update 7 end the job.*\naccel%-run: rank 3 %(pid %d+, [^\n]* was killed by signal 9")
-- A rank that is stopped is waited for. After 10 seconds it is lost.
write(HEAD .. [[
if rank == 1 then os.execute(("(kill -STOP %d; sleep 0.3; kill -CONT %d) >/dev/null 2>&1 &"):format(pid, pid)) end
for i = 1, 60 do
  dist.barrier()
  if rank == 0 then os.execute "sleep 0.01" end
end]])
local text, status = run(ELASTIC:format(2, tmp))
assert(status == 0 and text:find "is stopped" and not text:find "generation", text)
if sample.full then
  write(HEAD .. [[
if rank == 1 then os.execute(("kill -STOP %d"):format(pid)) end
print(select(2, pcall(dist.barrier)).code)
elastic.recover()
dist.barrier()
print "alone"]])
  expect(ELASTIC:format(2, tmp), 0, "rank 1 %(pid %d+, [^\n]* was stopped for 10 s and expelled; generation 2: 1 rank continues after 1%d%.")
end
if sample.full or sample.seed % 2 == 0 then
  write(HEAD .. "die()")
  expect(ELASTIC:format(2, tmp), 137, "accel%-run: rank %d %(pid %d+, [^\n]* was killed by signal 9 %(SIGKILL%)[^\n;]*\nstatus")
  write(HEAD .. "if rank == 1 then die() end dist.barrier()")
  expect(ELASTIC:format(2, tmp), 137, "accel%-run: rank 1 %(pid %d+, [^\n]* was killed by signal 9")
else
  write(HEAD .. "if rank == 1 then error 'on purpose' end dist.barrier()")
  expect(ELASTIC:format(2, tmp), 1, "accel%-run: rank 1 %(pid %d+, [^\n]* exited with status 1")
  write(HEAD .. "print(rank, pcall(elastic.recover))")
  expect(ELASTIC:format(1, tmp), 0, "no rank was lost since generation 1 began")
end
os.execute(("rm -rf '%s' '%s.lua'"):format(tmp, tmp))
