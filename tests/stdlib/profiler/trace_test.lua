-- Traces of ranks: valid against the format, on one clock, in one file of all ranks or one per rank; collectives with their bytes.
-- tier: every change, memory
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 3 } then return end
local accel = require "accel"
local dist, profiler = accel.dist, accel.profiler

local holder = { accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/trace") }
if ranks.size > 1 then dist.broadcast_object_list(holder, 0) end
local folder = holder[1]

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return accel.json.decode(text)
end

--- What the format asks of every event, and that spans of a thread nest.
local function check_trace(trace)
  assert(trace.schemaVersion == 1 and type(trace.traceEvents) == "table")
  local threads, counts, named = {}, {}, {}
  for _, e in ipairs(trace.traceEvents) do
    counts[e.ph] = (counts[e.ph] or 0) + 1
    assert(math.type(e.pid) == "integer" and type(e.ts) == "number" and type(e.name) == "string", accel.json.encode(e))
    if e.ph == "X" then
      assert(type(e.dur) == "number" and e.dur >= 0 and type(e.cat) == "string" and math.type(e.tid) == "integer")
      local key = e.pid .. ":" .. e.tid
      threads[key] = threads[key] or {}
      table.insert(threads[key], e)
    elseif e.ph == "C" then
      for _, value in pairs(e.args) do assert(math.type(value) == "integer" and value >= 0) end
    else
      assert(e.ph == "M" and e.args, e.ph)
      named[e.pid] = named[e.pid] or e.name == "process_name"
    end
  end
  for key, list in pairs(threads) do
    if key:find ":1$" then -- collectives of the other thread queue one behind the other
      table.sort(list, function(a, b)
        if a.ts ~= b.ts then return a.ts < b.ts end
        return a.dur > b.dur
      end)
      local open = {}
      for _, e in ipairs(list) do
        while #open > 0 and open[#open] <= e.ts + 0.0005 do table.remove(open) end
        local stop = e.ts + e.dur
        -- times are told in thousandths of a microsecond
        assert(#open == 0 or stop <= open[#open] + 0.002, ("%s of %s is not inside of what is around it"):format(e.name, key))
        open[#open + 1] = stop
      end
    end
    assert(named[tonumber(key:match "^%d+")], "a process without a name")
  end
  return counts, threads
end

local model = accel.nn.Linear(8, 4)
if ranks.size > 1 then model = accel.nn.parallel.DistributedDataParallel(model) end
local opt = accel.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
local x = accel.randn(16, 8)
local function record()
  local prof = profiler.profile { profile_memory = true, record_shapes = true, with_stack = true, with_modules = true }
  if ranks.size > 1 then dist.barrier() end
  for _ = 1, 2 do
    model(x):sum():backward()
    opt:step()
    opt:zero_grad()
  end
  if ranks.size > 1 then
    dist.all_reduce(accel.ones(100))
    dist.all_reduce(accel.ones(1000), { async_op = true }):wait()
    dist.barrier()
  end
  prof:stop()
  return prof
end

local prof = record()
local all = folder .. "/all.json"
assert(prof:export_chrome_trace(all, { add = true }))
local own = ("%s/rank%d.json"):format(folder, ranks.rank)
assert(prof:export_chrome_trace(own))
assert(prof:export_chrome_trace(own)) -- replaced, not added to
if ranks.size > 1 then dist.barrier() end

local counts = check_trace(read(own))
assert(counts.C > 4 and counts.X == #prof:events(), "one event per span")
if ranks.rank == 0 then
  local trace = read(all)
  local _, threads = check_trace(trace)
  for r = 0, ranks.size - 1 do assert(threads[r .. ":1"], "rank " .. r .. " is missing") end
  if ranks.size > 1 then
    -- one clock: a barrier ends on every rank after the last one has come to it
    local begins, ends, sums = {}, {}, {}
    for key, list in pairs(threads) do
      for _, e in ipairs(list) do
        if e.name == "barrier" and not begins[e.pid] then begins[e.pid], ends[e.pid] = e.ts, e.ts + e.dur end
        if e.name == "all_reduce" and e.args["Payload bytes"] == 4000 then
          sums[e.pid] = key
          assert(e.args["Group size"] == ranks.size and e.args["Call stack"]:find "trace_test%.lua:%d+")
        end
      end
    end
    local latest, earliest = 0, math.huge
    for r = 0, ranks.size - 1 do
      latest, earliest = math.max(latest, begins[r]), math.min(earliest, ends[r])
      assert(sums[r] == r .. ":2", "an asynchronous collective stands on its own thread")
    end
    assert(earliest >= latest, ("a rank left the barrier %g us before another came"):format(latest - earliest))
  end
  -- another job's trace is replaced
  assert(accel.write_file(all, '{"schemaVersion": 1, "displayTimeUnit": "ms", "accel.run": "other", "traceEvents": [\n{}\n]}\n'))
end
if ranks.size > 1 then dist.barrier() end
assert(prof:export_chrome_trace(all, { add = true }))
if ranks.size > 1 then dist.barrier() end
if ranks.rank == 0 then
  local _, threads = check_trace(read(all))
  for r = 0, ranks.size - 1 do assert(threads[r .. ":1"]) end
end

do -- collectives: their bytes are those of the flight recorder
  if ranks.size > 1 then
    local found = 0
    for _, e in ipairs(prof:events()) do
      if e.kind == "collective" and e.name == "all_reduce" and e.bytes == 400 then
        found = found + 1
        assert(e.ranks == ranks.size and e.thread == 0 and e.shapes == "[[100]]" and e.dtypes == "[f32]")
      end
    end
    assert(found == 1)
    local records = dist.records()
    assert(records[#records - 1].payload, "payload of a record")
  end
end

do -- accelerator:profile writes a trace per rank and waits; the handler of the constructor is the default one
  local dir = folder .. "/accelerator"
  local a = accel.Accelerator { kwargs_handlers = { accel.ProfileKwargs {
    schedule_option = { wait = 1, warmup = 1, active = 1 }, output_trace_dir = dir, with_modules = true } } }
  local steps = 0
  local p, result = a:profile(nil, function(prof_)
    for _ = 1, 6 do
      local _ = model(x)
      steps = steps + 1
      prof_:step()
    end
    return "done"
  end)
  assert(steps == 6 and result == "done" and p:key_averages():find("ProfilerStep*").count == 1)
  for r = 0, ranks.size - 1 do
    local trace = read(("%s/profile_%d.json"):format(dir, r))
    assert(trace.distributedInfo.rank == r and trace.distributedInfo.world_size == ranks.size)
    check_trace(trace)
  end
  ranks.fails("expected a ProfileKwargs", a.profile, a, {})
  -- an error inside is the error that comes out
  local ok, why = pcall(function()
    local _ <close> = a:profile()
    error "broken"
  end)
  assert(not ok and tostring(why):find "broken")
end

do -- a world that is left while a profile runs
  local running = profiler.profile { profile_memory = true }
  if ranks.size > 1 then
    dist.all_reduce(accel.ones(3))
    dist.destroy_process_group()
  end
  local _ = accel.ones(2) + 1
  running:stop()
  assert(running:key_averages():find "add")
end
