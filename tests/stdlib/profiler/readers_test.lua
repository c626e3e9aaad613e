-- Traces of two ranks as HolisticTraceAnalysis and Perfetto's trace_processor read them, where python3 has them: ranks, and the spans of each
-- name with their number and time.  tier: slow
--   accel-run tests/stdlib/profiler/readers_test.lua [hta|perfetto]
local accel = require "accel"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/readers-"))
local only, ran = arg[1], 0

local function output(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read "a"
  return text, pipe:close()
end

local function has(what, test)
  if only and only ~= what then return false end
  assert(accel.write_file(root .. "/has.py", test))
  local _, there = output(("cd '%s' && timeout 60 python3 has.py 2>/dev/null"):format(root))
  if there then ran = ran + 1 else print("python3 with " .. what .. " is not here") end
  return there
end

assert(accel.write_file(root .. "/s.lua", [[
local accel = require "accel"
local a = accel.Accelerator { kwargs_handlers = { accel.accelerator.ProfileKwargs { activities = { "cpu" }, output_trace_dir = arg[1],
  record_shapes = true, with_flops = true, profile_memory = true } } }
local m = accel.models.GPT2 { vocab_size = 64, n_positions = 16, n_embd = 32, n_layer = 2, n_head = 4 }
local o = accel.optim.AdamW(m:parameters(), { lr = 1e-3 })
m, o = a:prepare(m, o)
local p <close> = a:profile()
for i = 1, 4 do
  local ids = accel.randint(0, 64, { 4, 16 })
  a:backward(m(ids, { labels = ids }))
  o:step()
  o:zero_grad()
end]]))
local said, ok = output(("'%s' --num_processes 2 '%s/s.lua' '%s/trace' 2>&1"):format(accel.process.program(), root, root))
assert(ok, said)

-- what is in the files: spans of a name, and their microseconds
local WANTED <const> = [==[
import collections, glob, json, sys
wanted = {}
for path in glob.glob("trace/*.json"):
    trace = json.load(open(path))
    by = collections.defaultdict(lambda: [0, 0.0])
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            by[e["name"]][0] += 1
            by[e["name"]][1] += e["dur"]
    wanted[trace["distributedInfo"]["rank"]] = by
def agree(rank, name, n, us, slack):
    a = wanted[rank].pop(name)
    assert a[0] == n and abs(a[1] - us) <= slack * n, (rank, name, a, n, us)
]==]

if has("hta", "import hta.trace_analysis") then
  assert(accel.write_file(root .. "/read.py", WANTED .. [==[
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_dir="trace").t
names = t.symbol_table.get_sym_table()
for rank in (0, 1):
    df = t.get_trace(rank)
    for name, rows in df.groupby("name"):
        agree(rank, names[int(name)], len(rows), float(rows["dur"].sum()), 2.001) # it rounds begin and end
    assert not wanted[rank], wanted[rank]
print("read by HTA", sorted(t.get_ranks()))
]==]))
  said = output(("cd '%s' && timeout 200 python3 read.py 2>&1"):format(root))
  assert(said:find("read by HTA [0, 1]", 1, true), said)
end

if has("perfetto", "from perfetto.trace_processor import TraceProcessor; TraceProcessor().close()") then -- it fetches a program
  assert(accel.write_file(root .. "/read.py", WANTED .. [==[
from perfetto.trace_processor import TraceProcessor
for rank in (0, 1):
    with TraceProcessor(trace="trace/profile_%d.json" % rank) as tp:
        for row in tp.query("select name, count(*) as n, sum(dur) as ns from slice group by name"):
            agree(rank, row.name, row.n, row.ns / 1000, 0.002)
    assert not wanted[rank], wanted[rank]
print("read by Perfetto")
]==]))
  said = output(("cd '%s' && timeout 200 python3 read.py 2>&1"):format(root))
  assert(said:find("read by Perfetto", 1, true), said)
end
os.execute(("rm -rf '%s'"):format(root))
if ran == 0 then os.exit(77) end
