-- accel-run --profile: one valid trace of all ranks, also of a script that fails, leaves by os.exit or profiles itself; its status and its
-- message stay what they were.
-- tier: every change
local accel = require "accel"

local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/whole")
local script, trace = folder .. "/script.lua", folder .. "/trace.json"
assert(accel.write_file(script, [[
local accel = require "accel"
local a = accel.Accelerator()
local m = accel.nn.Linear(8, 4)
local o = accel.optim.AdamW(m:parameters())
m, o = a:prepare(m, o)
for i = 1, 3 do a:backward(m(accel.randn(4, 8)):sum()) o:step() o:zero_grad() end
if arg[1] == "fail" then error "the script's own failure" end
if arg[1] == "exit" then os.exit(3) end
if arg[1] == "own" then
  local p = accel.profiler.profile() local _ = accel.ones(2) + 1 p:stop()
  print("own", p:key_averages():find("add").count)
end
]]))

local function run(options, word)
  local errors = folder .. "/errors"
  local pipe = assert(io.popen(("'%s' %s --profile '%s' '%s' %s 2>'%s'"):format(accel.process.program(), options, trace, script, word or "",
    errors)))
  local out = pipe:read "a"
  local ok, _, status = pipe:close()
  local f = assert(io.open(errors))
  local err = f:read "a"
  f:close()
  f = assert(io.open(trace))
  local events = accel.json.decode(f:read "a").traceEvents
  f:close()
  local ranks, steps = {}, 0
  for _, e in ipairs(events) do
    ranks[e.pid] = true
    if e.name == "Optimizer.step#AdamW.step" then steps = steps + 1 end
  end
  return { out = out, err = err, status = ok and 0 or status, ranks = #ranks + (ranks[0] and 1 or 0), steps = steps }
end

for _, n in ipairs { 1, 2 } do
  local r = run(n > 1 and "--num_processes 2" or "")
  assert(r.status == 0 and r.ranks == n and r.steps == 3 * n, ("%d ranks, %d steps: %s"):format(r.ranks, r.steps, r.err))
  assert(r.err:find "Self CPU time total" and r.err:find("trace is in " .. trace, 1, true) and r.out == "")
end
local r = run("", "fail")
assert(r.status == 1 and r.steps == 3 and r.err:find "script.lua:7: the script's own failure", r.err)
r = run("", "exit")
assert(r.status == 3 and r.steps == 3 and r.err:find "trace is in")
r = run("", "own")
assert(r.status == 0 and r.steps == 3 and r.out == "own\t1\n" and r.err:find "records its own profile", r.err)
