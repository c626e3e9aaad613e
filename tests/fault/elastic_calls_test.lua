-- kill -9 of a rank before and after every collective of a job that also gathers, reduces, evaluates and saves: the others end with the
-- weights, the evaluations and the rows of an undisturbed rank, and with checkpoints that are whole. Then everything is killed, and the
-- next start continues with the same bits on another number of ranks. A few instants, all of them in a full run.
-- tier: sampled
--   accel-run tests/fault/elastic_calls_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local sample = ranks.sample
local tmp = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/elastic_calls"
local script = ranks.tests .. "fault/elastic_calls_case.lua"
local random = accel.util.Random(sample.seed)
local EPOCHS <const> = 2
print(("ACCEL_TEST_SEED=%d"):format(sample.seed))

local function start(n, plan, options)
  local f <close> = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 %s --num-machines 1:1 --replace no --nproc-per-node %d '%s' "
    .. "'%s' %d %s 2>&1 </dev/null; echo status $?"):format(accel.process.program(), options or "", n, script, tmp, EPOCHS, plan)))
  return f:read "a"
end

--- Every checkpoint is whole, and there is one.
local function check_saves(fail)
  local list <close> = assert(io.popen(("ls '%s/checkpoints'"):format(tmp)))
  local whole = 0
  for name in list:lines() do
    if name:find "%.tmp%-" then fail("left over: " .. name) end
    local c <close> = assert(accel.ckpt.open(("%s/checkpoints/%s"):format(tmp, name)))
    assert(c:verify())
    whole = whole + 1
  end
  if whole == 0 then fail "no checkpoint" end
end

local function fresh() os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(tmp, tmp)) end

fresh()
local text = start(1, "0 0 before")
local want, weights, last = text:match "((hash %x+) updates %d+ evaluations [%x ]+ [%d.]+, ([%x ]+ [%d.]+))"
assert(want, text)
local killed, jobs = 0, 0
local function lose(n, at, when)
  fresh()
  jobs = jobs + 1
  local victim = random:below(n)
  local plan = ("%d %d %s"):format(victim, at, when)
  if n > 2 and random:below(2) == 0 then -- another one soon after it
    plan = ("%s %d %d %s"):format(plan, (victim + 1 + random:below(n - 1)) % n, at + random:below(12), random:below(2) == 0 and "before" or "after")
  end
  local out = start(n, plan)
  local function fail(why) error(("%d ranks, plan %s: %s\n%s"):format(n, plan, why, out), 0) end
  local results = 0
  for got in out:gmatch "hash %x+ updates %d+ evaluations [%x ]+ [%d.]+, [%x ]+ [%d.]+" do
    results = results + 1
    if got ~= want then fail("not " .. want) end
  end
  local _, gone = out:gsub("rank %d+ %(pid %d+, [^)]*%) was killed by signal 9", "")
  killed = killed + gone
  if results < n - gone or not out:find "status 0\n" then fail(("%d results"):format(results)) end
  check_saves(fail)
end

--- The whole job is killed, and a start with another number of ranks continues.
local function again(n, at)
  fresh()
  jobs = jobs + 1
  local out = start(n, ("%d %d all"):format(random:below(n), at))
  assert(out:find "status 137\n", out)
  for _, k in ipairs(sample.full and { 1 + random:below(4), 1 } or { 1 + random:below(4) }) do -- the second one continues from the end
    out = start(k, "0 0 all", "--resume auto")
    local function fail(why) error(("%d ranks killed at collective %d, continued on %d: %s\n%s"):format(n, at, k, why, out), 0) end
    local results = 0
    for got in out:gmatch "hash %x+" do
      results = results + 1
      if got ~= weights then fail("not " .. weights) end
    end
    local seen = out:match "evaluations [^c]-([%x ]+ [%d.]+) collectives"
    if results ~= k or not out:find "status 0\n" then fail(("%d results"):format(results)) end
    if seen and seen:match "%x.*" ~= last:match "%x.*" then fail("the last evaluation is not " .. last) end
    check_saves(fail)
  end
end

for _, n in ipairs(sample.full and { 2, 3, 4 } or { 2 + random:below(3) }) do
  fresh()
  local total = math.tointeger(tonumber(start(n, "0 0 before"):match "collectives (%d+)"))
  local taken = sample.one_of(total)
  for at = 1, total do
    if taken() then lose(n, at, random:below(2) == 0 and "before" or "after") end
    if sample.full and at % 5 == 0 then again(n, at) end
  end
  for at = 1, sample.full and 4 or 0 do lose(n, at, "save") end
end
if not sample.full then again(2 + random:below(3), 20 + random:below(60)) end

-- Without micro_batches they are as many as the ranks, and a start with another number of ranks would have other updates.
local function other_updates()
  fresh()
  local f <close> = assert(io.open(tmp .. "/updates.lua", "w"))
  f:write [[
local accel = require "accel"
local a = accel.Accelerator { project_dir = arg[1] }
local model = accel.nn.Linear(2, 1)
model = a:prepare(model, accel.optim.SGD(model:parameters(), { lr = 0.1 }))
a:save_state(arg[1] .. "/checkpoints/one")
]]
  f:close()
  local function run(n, options)
    local p <close> = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 %s --num-machines 1:1 --replace no --nproc-per-node %d "
      .. "'%s/updates.lua' '%s' 2>&1 </dev/null"):format(accel.process.program(), options, n, tmp, tmp)))
    return p:read "a"
  end
  run(3, "")
  local out = run(2, "--resume auto")
  assert(out:find("its updates have 3 micro-batches, those of this job 2", 1, true), out)
end
if sample.full or random:below(4) == 0 then other_updates() end

-- Calls in places where they cannot be made again: one error that says what to write.
local function refused(where, n, expected)
  fresh()
  local f <close> = assert(io.open(tmp .. "/refused.lua", "w"))
  f:write(([[
local accel, where = require "accel", "%s"
local nn, data = accel.nn, accel.data
local function lose(rank) if accel.dist.get_rank() == rank then os.execute "kill -9 $PPID" end end
if where == "seeds" then accel.accelerator.set_seed(1, { device_specific = true }) end
local accelerator = accel.Accelerator { micro_batches = 4, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
local set = data.TensorDataset(accel.ones(16, 2))
local Net = nn.Module:extend "Net"
function Net:init()
  nn.Module.init(self)
  self.linear, self.calls = nn.Linear(2, 1), 0
  self:register_buffer("seen", accel.zeros(1))
end
function Net:forward(x)
  self.calls = self.calls + 1
  if where == "buffer" and self.calls > 2 then self.seen:add_(1) end
  return self.linear(x)
end
local model = Net()
local sgd = accel.optim.SGD(model:parameters(), { lr = 0.1 })
local model, sgd, train, test = accelerator:prepare(model, sgd, data.DataLoader(set, { batch_size = 2 }), data.DataLoader(set, { batch_size = 2 }))
for batch in train() do
  accelerator:backward(model(batch[1]):mean())
  if where == "inside" then accelerator:gather(accel.ones(1)) end
  sgd:step()
  sgd:zero_grad()
end
model:eval()
local total, round = accel.zeros(1), 0
local _ <close> = accel.no_grad()
for batch in test() do
  round = round + 1
  local out = model(batch[1])
  if where == "sums" then
    if round == 2 then lose(1) end
    total = total + out:sum()
  elseif where == "two" then
    total = total + accelerator:gather_for_metrics(out):sum()
    if round == 2 then lose(1) end
    accelerator:gather_for_metrics(batch[1])
  elseif where == "reduce" then
    if round == 2 then lose(1) end
    total = total + accelerator:reduce(out:sum())
  end
end
accelerator:reduce(total)
print "through"]]):format(where))
  f:close()
  local p <close> = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 --num-machines 1:1 --replace no --nproc-per-node %d "
    .. "'%s/refused.lua' 2>&1 </dev/null"):format(accel.process.program(), n, tmp)))
  local out = p:read "a"
  assert(out:find(expected, 1, true) and not out:find("through", 1, true), out)
end
local taken = sample.one_of(6)
for where, expected in accel.pairs {
  inside = "write `if accelerator.sync_gradients then` around it", sums = "a rank was lost with rows that no call had collected",
  two = "a rank was lost between two calls for one batch", reduce = "a rank was lost with rows that no call had collected",
  seeds = "an elastic job needs one seed", buffer = "the forward changes the buffer 'seen'",
} do
  if taken() then refused(where, 2, expected) end
end
os.execute(("rm -rf '%s'"):format(tmp))
print(("ok: %d jobs, %d ranks killed"):format(jobs, killed))
