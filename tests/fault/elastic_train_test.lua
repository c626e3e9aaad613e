-- kill -9 of random ranks of an elastic training job at random instants: the others end with the losses, weights and running statistics
-- of an undisturbed rank, bit for bit, the updates that count consumed every sample once, and nothing hangs. A few jobs, 300 in a full run.
-- tier: sampled
--   accel-run tests/fault/elastic_train_test.lua [jobs]
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local sample = ranks.sample
local jobs = tonumber(arg[1]) or (sample.full and 300 or 4)
local tmp = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/elastic"
local script = ranks.tests .. "fault/elastic_train_case.lua"
local random = accel.util.Random(sample.seed)
local EPOCHS <const>, UPDATES <const> = 4, 24
print(("ACCEL_TEST_SEED=%d, %d jobs"):format(sample.seed, jobs))

local function read(path)
  local f <close> = io.open(path)
  return f and f:read "a"
end

--- Starts a job. Returns what reads its output, and the pids of its ranks.
local function start(dir, n, m, workers)
  os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(dir, dir))
  local pipe = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 --num-machines 1:1 --replace no --nproc-per-node %d '%s' '%s' %d %d %d 2>&1 "
    .. "</dev/null; echo status $?"):format(accel.process.program(), n, script, dir, m, UPDATES, workers)))
  local pids, deadline = {}, accel.clock() + 30
  for r = 0, n - 1 do
    while not pids[r] do
      local text = read(("%s/pid.%d"):format(dir, r))
      pids[r] = text and math.tointeger(tonumber(text:match "^(%d+)\n"))
      assert(accel.clock() < deadline, "the job did not start")
      if not pids[r] then os.execute "sleep 0.002" end
    end
  end
  return pipe, pids
end

local wanted, seconds = {}, {} -- by the number of micro-batches: the result, and how long a job runs
local function want(m)
  if not wanted[m] then
    local pipe = start(tmp .. m, 1, m, 0)
    local begun = accel.clock()
    local text = pipe:read "a"
    pipe:close()
    wanted[m] = text:match "hash %x+ losses %S+" or error(text, 0)
    seconds[m] = accel.clock() - begun
  end
  return wanted[m]
end

--- The samples of the updates that count: of each update those of its last generation.
local function consumed(dir)
  local last, of = {}, {}
  local list <close> = assert(io.popen(("cat '%s'/log.*"):format(dir)))
  for line in list:lines() do
    local u, generation, epoch, rows = line:match "^(%d+) (%d+) (%d+) ([%d ]+)$"
    if u then -- else a line that was cut short
      u, generation = math.tointeger(tonumber(u)), math.tointeger(tonumber(generation))
      if generation > (last[u] or 0) then last[u], of[u] = generation, {} end
      if generation == last[u] then
        for at in rows:gmatch "%d+" do table.insert(of[u], epoch .. ":" .. at) end
      end
    end
  end
  local seen, n = {}, 0
  for _, rows in accel.pairs(of) do
    for _, at in ipairs(rows) do
      if seen[at] then return nil, "sample " .. at .. " was repeated" end
      seen[at], n = true, n + 1
    end
  end
  return n
end

local lost, gone, redone = 0, 0, 0
for job = 1, jobs do
  local n = 2 + random:below(sample.full and 7 or 3)
  local m = math.max(n, 4 + random:below(5))
  local expected = want(m)
  local workers, dir = random:below(5) == 0 and 2 or 0, tmp .. "job"
  local pipe, pids = start(dir, n, m, workers)
  local alive, victims = n, {}
  for _ = 1, math.min(n - 1, 1 + random:below(2)) do
    os.execute(("sleep %.4f"):format(random:below(10000) / 10000 * seconds[m]))
    local victim = random:below(n)
    if pids[victim] then
      os.execute(("kill -9 %d 2>/dev/null"):format(pids[victim]))
      pids[victim], alive = nil, alive - 1
      victims[#victims + 1] = victim
    end
  end
  local killed = accel.clock()
  local text = pipe:read "a"
  pipe:close()
  local function fail(why) error(("job %d, %d ranks, %d micro-batches, %d workers, killed %s: %s\n%s"):format(job, n, m, workers,
    table.concat(victims, " "), why, text), 0) end
  local results = 0
  for got, changes, again in text:gmatch "(hash %x+ losses %S+) changes (%d+) redone (%d+)" do
    results = results + 1
    if got ~= expected then fail "other bits" end
    lost, redone = lost + changes, redone + again
  end
  if results < alive then fail(("%d results of %d survivors"):format(results, alive)) end
  -- A rank that is killed between its result and its end, when all others have ended, ends the job with its signal.
  if not text:find "status 0\n" and not (results > alive and text:find "status 137\n") then fail "it did not end well" end
  local count, why = consumed(dir)
  if count ~= UPDATES * m * 2 then fail(why or ("%d samples of %d"):format(count, UPDATES * m * 2)) end
  gone = gone + #victims
  if accel.clock() - killed > 30 then fail "it took too long" end
end
-- Loaders one after the other, each left by break. An update whose batches come from two of them, or an optimizer that was not prepared, is
-- refused before a rank is lost.
local function pair(form)
  local f <close> = assert(io.open(tmp .. ".lua", "w"))
  f:write(([[
local accel, form = require "accel", "%s"
local nn, data = accel.nn, accel.data
local accelerator = accel.Accelerator { micro_batches = 4, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
local set = data.TensorDataset(accel.ones(32, 2))
local model = nn.Linear(2, 1)
local sgd = accel.optim.SGD(model:parameters(), { lr = 0.1 })
local model, one, two = accelerator:prepare(model, data.DataLoader(set, { batch_size = 2 }), data.DataLoader(set, { batch_size = 2 }))
if form ~= "raw" then sgd = accelerator:prepare(sgd) end
for k, loader in ipairs { one, two } do
  local more = form == "both" and two()
  for batch in loader() do
    if more then batch = more() end
    if k == 2 and accelerator.process_index == 1 then os.execute "kill -9 $PPID" end
    accelerator:backward(model(batch[1]):mean())
    sgd:step()
    sgd:zero_grad()
    if accelerator.step == 2 * k then break end
  end
end
print("updates", accelerator.step, accelerator.num_processes)]]):format(form))
  f:close()
  local p <close> = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 --num-machines 1:1 --replace no --nproc-per-node 2 '%s.lua' 2>&1"
    .. " </dev/null"):format(accel.process.program(), tmp)))
  return p:read "a"
end
for form, want in pairs {
  after = "updates\t4\t1\n", both = "all batches of an update from one loader", raw = "needs the optimizer that prepare returns",
} do
  local text = pair(form)
  assert(text:find(want, 1, true), text)
end
os.execute(("rm -rf '%s'*"):format(tmp))
print(("ok: %d jobs, %d ranks killed, %d changes seen, %d micro-batches redone, %d epochs"):format(jobs, gone, lost, redone, EPOCHS))
