-- kill -9 of the main process of a job with trackers, before and after each of its collectives: the rank that is main then continues the
-- runs, and files and run store have every row of an undisturbed run once. One instant, all of them in a full run.
-- tier: sampled
--   accel-run tests/fault/elastic_trackers_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
local sample = ranks.sample
local tmp = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/elastic_trackers"
local script = ranks.tests .. "fault/elastic_trackers_case.lua"
local random = accel.util.Random(sample.seed)
local has_store = require "accel.track.core".sqlite()
print(("ACCEL_TEST_SEED=%d"):format(sample.seed))

--- How often the event files of a run hold a step of a tag, by folder, tag and step.
local function events()
  local counts = {}
  for path, dir in accel.pairs(require "accel.track.stored_events".files(tmp .. "/run")) do
    local set = accel.data.TFRecord(path, { raw = true })
    for record in set:iterate(0, 0) do
      -- Event: wall time, step (absent: 0), summary; in it one value, which begins with its tag
      local step, rest = 0, record:sub(10)
      if rest:byte() == 16 then step, rest = rest:byte(2), rest:sub(3) end
      local tag = rest:match "^%*.-\n.-\n(.[%w/_]+)"
      if tag and not tag:find "hparams" then
        local key = ("%s %s %d"):format(dir:sub(#tmp + 1), tag:sub(2), step)
        counts[key] = (counts[key] or 0) + 1
      end
    end
  end
  return counts
end

--- The rows of a run, as text without times and, for jsonl and csv, in their order.
local function rows()
  local out = {}
  for line in io.lines(tmp .. "/run/metrics.jsonl") do
    local row = assert(accel.json.decode(line), line)
    row.time = nil
    local keys = {}
    for key, value in accel.pairs(row) do keys[#keys + 1] = key .. "=" .. accel.json.encode(value) end
    out[#out + 1] = "jsonl " .. table.concat(keys, " ")
  end
  for line in io.lines(tmp .. "/run/metrics.csv") do out[#out + 1] = "csv " .. line:gsub("^([^,]*),%d+,", "%1,") end
  for path, n in accel.pairs(events()) do out[#out + 1] = ("events %s %d"):format(path, n) end
  if has_store then
    local store = accel.track.Store(tmp)
    local runs = store:runs()
    assert(#runs == 1 and runs[1].status == "finished", ("%d runs, %s"):format(#runs, runs[1].status))
    for _, sql in ipairs {
      "SELECT tag, points.step AS step, value FROM points JOIN series ON series.id=points.series ORDER BY tag, points.step, seq",
      "SELECT tag, step, data AS value FROM records WHERE kind='text' ORDER BY tag, step, id",
    } do
      for _, row in ipairs(assert(store:rows(sql))) do out[#out + 1] = ("store %s %d %s"):format(row.tag, row.step, row.value) end
    end
    store:close()
  end
  return table.concat(out, "\n")
end

local function start(n, at, when, wait)
  os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(tmp, tmp))
  local f <close> = assert(io.popen(("timeout -s KILL 60 '%s' --num-threads 1 --num-machines 1:1 --replace no --nproc-per-node %d '%s' "
    .. "'%s' %d %s %g 2>&1 </dev/null; echo status $?"):format(accel.process.program(), n, script, tmp, at, when, wait)))
  local out = f:read "a"
  -- A rank that is killed when all others have ended ends the job with its signal.
  assert(out:find "status 0\n" or out:find "collectives" and out:find "status 137\n", out)
  return out
end

start(1, 0, "before", 0)
local want, jobs = rows(), 0
for _, n in ipairs(sample.full and { 2, 3 } or { 2 + random:below(2) }) do
  local total = math.tointeger(tonumber(start(n, 0, "before", 0):match "collectives (%d+)"))
  assert(rows() == want, "without a loss")
  local taken = sample.one_of(2 * total)
  for at = 1, total do
    for _, when in ipairs { "before", "after" } do
      if taken() then
        local wait = random:below(2) * 0.1 -- so that the lost process had stored all rows, some or none
        local out = start(n, at, when, wait)
        local got = rows()
        if got ~= want then
          error(("%d ranks, killed %s collective %d, %g s an update:\n%s\ngot\n%s\nwanted\n%s"):format(n, when, at, wait, out, got, want), 0)
        end
        jobs = jobs + 1
      end
    end
  end
end
os.execute(("rm -rf '%s'"):format(tmp))
print(("ok: %d jobs"):format(jobs))
