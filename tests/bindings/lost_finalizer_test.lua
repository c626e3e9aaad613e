-- Finalizers that Lua loses: it skips one for good where its C stack is full, and makes none while a state closes.
-- What the handles held goes when the state closes; accel-run looks at the end whether a tensor is left.
local accel = require "accel"

warn "@off" -- Lua tells of each

-- Runs f under n calls of C.
local function at_depth(n, f)
  if n == 0 then return f() end
  return (("x"):gsub("x", function() at_depth(n - 1, f) end))
end

local n_lost, depths = 0, 0
local function collect_deep(n, make)
  local finalized = false
  collectgarbage "stop"
  local reached = false
  pcall(at_depth, n, function()
    reached = true
    make()
    setmetatable({}, { __gc = function() finalized = true end })
    collectgarbage()
  end)
  collectgarbage "restart"
  if reached then depths = depths + 1 end
  if reached and not finalized then n_lost = n_lost + 1 end
end

local function check(make)
  n_lost, depths = 0, 0
  accel.collect()
  accel.collect()
  local live, bytes = accel.live(), accel.mem_stats().live_bytes
  for n = 150, 210 do collect_deep(n, make) end
  assert(n_lost > 0 and depths > n_lost, "no finalizer was lost: this test tests nothing")
  accel.collect()
  assert(accel.live() > live and accel.mem_stats().live_bytes > bytes, "lost, and yet released")
end

check(function() for _ = 1, 5 do accel.ones(1000) end end)
-- Leaves, and what a graph holds besides.
check(function()
  local w = accel.ones(1000, { requires_grad = true })
  local _ = accel.add(accel.mul(w, 2), 1) -- functions: an operator needs a call of C more than there is room for
end)

-- Left for the state that closes: lost ones of which no collection came by, and tensors that a finalizer makes then.
collectgarbage "stop"
for n = 150, 210 do collect_deep(n, function() accel.ones(10) end) end
collectgarbage "stop"
local late = {}
late.keep = setmetatable({}, { __gc = function() late.t = accel.ones(7) + 1 end })
package.loaded["lost_finalizer_test.late"] = late
