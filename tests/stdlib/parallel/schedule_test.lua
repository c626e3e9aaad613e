-- Schedules of pipelines: idle time as the formulas say, activations in flight bounded by stages, every action once and in order,
-- messages in an order that no rank waits in.
--   accel-run tests/stdlib/parallel/schedule_test.lua
local schedule = require "accel.parallel.pipeline.schedule"

local function check_plan(name, stages, chunks, micros)
  local at = ("%s: %d stages, %d chunks, %d micro-batches"):format(name, stages, chunks, micros)
  -- all ranks together, each taking its next event when its partner does the same: what a rank has done decides what it may do
  local plans, next_of, have, left = {}, {}, {}, 0
  for r = 0, stages - 1 do
    plans[r], next_of[r] = schedule.plan(name, r, stages, chunks, micros), 1
    left = left + #plans[r]
  end
  local last = stages * chunks - 1
  local function done(op, stage, m) return have[op .. stage .. " " .. m] end
  local moved = true
  while moved do
    moved = false
    for r = 0, stages - 1 do
      local e = plans[r][next_of[r]]
      if e and e.action then
        local a, m = e.action, e.action.micro
        assert(e.stage == a.chunk * stages + r, at)
        if a.op == "W" then
          assert(done("B", e.stage, m), at .. ": weights before inputs")
        elseif a.op == "F" then assert(e.stage == 0 or done("F>", e.stage, m), at .. ": forward before its input")
        else
          assert(done("F", e.stage, m), at)
          assert(e.stage == last or done("B>", e.stage, m), at .. ": backward before its gradient")
        end
        assert(not done(a.op, e.stage, m), at .. ": twice")
        have[a.op .. e.stage .. " " .. m] = true
        next_of[r], left, moved = next_of[r] + 1, left - 1, true
      elseif e then
        local other = e.from == r and e.to or e.from
        local o = plans[other][next_of[other]]
        if o and not o.action and o.stage == e.stage and o.micro == e.micro and o.what == e.what then
          have[e.what .. ">" .. e.stage .. " " .. e.micro] = true
          next_of[r], next_of[other], left, moved = next_of[r] + 1, next_of[other] + 1, left - 2, true
        end
      end
    end
  end
  assert(left == 0, at .. ": ranks wait for each other")
end

local function near(a, b, what) assert(math.abs(a - b) < 1e-9 * math.max(1, math.abs(b)), ("%s: %g, not %g"):format(what, a, b)) end

for stages = 1, 6 do
  for _, micros in ipairs { stages, 2 * stages, 3 * stages, 5 * stages } do
    for _, name in ipairs { "gpipe", "1f1b" } do
      check_plan(name, stages, 1, micros)
      near(schedule.bubble(name, stages, 1, micros), (stages - 1) / micros, name)
    end
    check_plan("zero_bubble", stages, 1, micros)
    near(schedule.bubble("zero_bubble", stages, 1, micros), (stages - 1) / (3 * micros), "zero_bubble")
    for chunks = 2, stages > 1 and 3 or 1 do
      check_plan("interleaved", stages, chunks, micros)
      near(schedule.bubble("interleaved", stages, chunks, micros), (stages - 1) / (micros * chunks),
        ("interleaved %d %d %d"):format(stages, chunks, micros))
    end
    check_plan("forward", stages, 1, micros)
    for r = 0, stages - 1 do
      assert(schedule.in_flight("1f1b", r, stages, 1, micros) == math.min(stages - r, micros))
      assert(schedule.in_flight("zero_bubble", r, stages, 1, micros) == math.min(stages, micros))
      assert(schedule.in_flight("gpipe", r, stages, 1, micros) == micros)
    end
  end
end
for micros = 1, 7 do
  check_plan("1f1b", 4, 1, micros)
  check_plan("zero_bubble", 4, 1, micros)
end

local ok, message = pcall(schedule.plan, "interleaved", 0, 4, 2, 6)
assert(not ok and message:find "multiple of the 4 stages, got 6", message)
