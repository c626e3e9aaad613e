-- The flight recorder of a job that failed: one JSON object a line for every collective of a rank, the failing one last.
local accel = require "accel"
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local dir = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/records"
os.execute(("rm -rf '%s'"):format(dir))

local good, bad = "barrier f32 0 sum 0;all_reduce f32 12 sum 0", "barrier f32 0 sum 0;all_reduce f32 13 max 0"
local p = assert(io.popen(("'%s' --num_processes 2 --log-dir '%s' '%s/tests/fault/mismatch_case.lua' 1 '%s' '%s' 2>&1 </dev/null"):format(
  exe, dir, src, good, bad)))
local said = p:read "a"
assert(not p:close(), said)
for rank, want in pairs { [0] = { "sum", 12, "rest.lua:3" }, { "max", 13, "odd.lua:3" } } do
  local rows = {}
  for line in io.lines(("%s/rank_%d_records.jsonl"):format(dir, rank)) do rows[#rows + 1] = assert(accel.json.decode(line)) end
  assert(#rows == 2, #rows)
  local first, last = rows[1], rows[2]
  assert(first.kind == "barrier" and first.status == "ok" and first.rank == rank and first.seq == 1)
  assert(first.queued_ns <= first.began_ns and first.began_ns <= first.ended_ns and first.ended_ns <= last.began_ns)
  assert(math.abs(last.ended_ns / 1e9 - accel.clock()) < 60) -- nanoseconds of the same clock
  assert(last.kind == "all_reduce" and last.status == "mismatch" and last.dtype == "f32" and last.async == false)
  assert(last.op == want[1] and last.count == want[2] and last.site == want[3], last.site)
end
