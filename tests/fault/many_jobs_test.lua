-- Many jobs start at once on one host, every second one over TCP: none meets another's ranks, takes another's port or hears another's
-- numbers.  accel-run many_jobs_test.lua [rounds] [jobs]     seed: ACCEL_TEST_SEED
-- tier: slow
local accel = require "accel"
local support = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local exe = accel.process.program()
local rounds, jobs = tonumber(arg[1]) or 1, tonumber(arg[2]) or 200
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/many_jobs"
local random = accel.util.Random(support.sample.seed)
print(("ACCEL_TEST_SEED=%d, %d rounds of %d jobs"):format(support.sample.seed, rounds, jobs))
assert(accel.makedirs(tmp))

local script = tmp .. "/job.lua"
do
  local file <close> = assert(io.open(script, "w"))
  file:write [[
local accel = require "accel"
local dist, own = accel.dist, tonumber(arg[1])
local x = accel.full({ 3 }, own, { dtype = "f64" })
for _ = 1, 5 do
  local sum = x:clone()
  dist.all_reduce(sum)
  assert(sum:eq(own * dist.get_world_size()):all():item(), "numbers of another job")
end
local all = dist.all_gather_object(own)
for _, theirs in ipairs(all) do assert(theirs == own, "ranks of another job") end
if dist.get_rank() == 0 then print("job " .. own .. " of " .. dist.get_world_size()) end
]]
end

local slowest = 0.0
for round = 1, rounds do
  local running, began = {}, accel.clock()
  for i = 1, jobs do
    local ranks, own = 2 + random:below(2), round * 1000 + i
    local out = ("%s/%d.out"):format(tmp, i)
    local command = ("exec '%s' --num_threads 1 --num_processes %d %s '%s' %d > '%s' 2>&1 </dev/null"):format(exe, ranks,
      i % 2 == 0 and "--backend tcp" or "", script, own, out)
    running[i] = { process = accel.process.spawn("/bin/sh", { "sh", "-c", command }, {}), want = ("job %d of %d\n"):format(own, ranks), out = out }
  end
  for i, job in ipairs(running) do
    local how, status = job.process:wait(300)
    local file <close> = assert(io.open(job.out, "rb"))
    local text = file:read("a"):gsub("[^\n]*launch: %d+ ranks share %d+ CPUs?\n", "")
    if how ~= "exit" or status ~= 0 or text ~= job.want then
      error(("round %d, job %d: status %s, expected '%s', got:\n%s"):format(round, i, tostring(status), job.want, text), 0)
    end
    job.process:close()
  end
  slowest = math.max(slowest, accel.clock() - began)
end
print(("%d rounds of %d jobs, the slowest took %.1f s"):format(rounds, jobs, slowest))
