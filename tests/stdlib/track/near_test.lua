-- Store:near, which the page of accel-run ui asks for the point at the pointer: against a search through all points of the table, by step
-- and by time, for series of a few points and of many buckets, with gaps and values that are not numbers.  tier: every change
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
require("track").needs(core.sqlite)

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/near-"))
local run = accel.track.Run { dir = root, name = "near", system = false }
local step, state = 0, 12345
for i = 1, 700 do
  state = (1103515245 * state + 12345) % 2147483648
  step = step + 1 + state // 65536 % (i % 100 == 0 and 500 or 3)
  run:log({ many = i % 7 == 0 and 0 / 0 or i, few = i <= 5 and i or nil }, step)
  if i % 70 == 0 then core.pause(0.005) end -- times that are apart
end
assert(run:finish())
local store = accel.track.Store(root)
local seen = 0
for _, series in ipairs(assert(store:series(1))) do
  local points = assert(store:rows("SELECT step, wall, value FROM points WHERE series=?", series.id))
  for _, axis in ipairs { "step", "wall" } do
    local from, to = series["first_" .. axis], series["last_" .. axis]
    for k = -2, 42 do
      local x, least = from + (to - from) * k / 40, math.huge
      for _, p in ipairs(points) do least = math.min(least, math.abs(p[axis] - x)) end
      local got = assert(store:near(series.id, x, { axis = axis }))
      assert(math.abs(got[axis] - x) == least, ("%s by %s at %.17g: %.17g"):format(series.tag, axis, x, got[axis]))
      local real = false
      for _, p in ipairs(points) do real = real or p.step == got.step and p.wall == got.wall and p.value == got.value end
      assert(real, "a point that was never logged")
      seen = seen + 1
    end
  end
end
assert(seen == 2 * 2 * 45 and next(assert(store:near(99, 1))) == nil)
