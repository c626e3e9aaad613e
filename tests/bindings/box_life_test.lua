-- When tensors go that nothing reaches any more: with the collection that finds them, in every mode.
local accel = require "accel"

-- A loop of small ops leaves little behind from the first on: the collector is in generational mode when a script begins.
do
  local most, a, b = 0, accel.ones(1), accel.ones(1)
  for _ = 1, 20000 do
    local _ = a + b
    most = math.max(most, accel.live())
  end
  assert(most < 1000, most)
end

-- Results of functions and of metamethods by turns, whose frames Lua marks differently.
local most, weight = 0, accel.ones(64, 64, { requires_grad = true })
for _ = 1, 2000 do
  local x = accel.ones(64, 64)
  local _ = ((x * weight + 1) * x):sum()
  most = math.max(most, accel.live())
end
assert(most < 1000, most)
weight = nil -- luacheck: ignore

local function make()
  for _ = 1, 50 do
    local w = accel.ones(3, { requires_grad = true })
    local _ = (w * 2 + 1):sum()
  end
end

for _, mode in ipairs { "generational", "incremental" } do
  collectgarbage(mode)
  collectgarbage()
  local live, bytes = accel.live(), accel.mem_stats().live_bytes
  for _ = 1, 3 do
    make()
    assert(accel.live() > live)
    collectgarbage()
    assert(accel.live() == live, accel.live() - live)
    assert(accel.mem_stats().live_bytes == bytes)
  end
  -- in steps: some garbage at any time, but not more and more
  local most = 0
  for _ = 1, 200 do
    make()
    most = math.max(most, accel.live() - live)
  end
  assert(most < 20000, most)
  collectgarbage()
end
collectgarbage "generational"

-- Lua finalizes what was made last first: a table that is older than its tensor finds it released, a younger one whole.
local seen, err
do
  local owner = setmetatable({}, { __gc = function(self) seen, err = pcall(self.t.sum, self.t) end })
  owner.t = accel.ones(5)
end
collectgarbage()
assert(seen == false and err.code == "released", tostring(err))
do
  local t = accel.ones(5)
  setmetatable({ t = t }, { __gc = function(self) seen = self.t:sum():item() end })
end
collectgarbage()
assert(seen == 5)
collectgarbage()
accel.collect()
assert(accel.live() == 0, accel.live())

-- As values of weak tables tensors go at once, as keys one collection later, when they have been finalized.
local keys, values = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "v" })
keys[accel.ones(1)], values[1] = true, accel.ones(1)
collectgarbage()
assert(values[1] == nil and accel.live() == 0)
collectgarbage()
assert(next(keys) == nil)

-- A leaf that only the core still reaches has no box; it gets another one when it comes back.
local w = accel.ones(2, { requires_grad = true })
local y = w * 2
w = nil -- luacheck: ignore
collectgarbage()
y:sum():backward()
y = nil -- luacheck: ignore
collectgarbage()
assert(accel.live() == 0, accel.live())
