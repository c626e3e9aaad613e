-- Scopes and the collection policy: bindings/tensor/lac_scope.c, bindings/core/gc.c.
local accel = require "accel"

local function released(t) return tostring(t):find("released", 1, true) ~= nil end

-- What was born inside goes at the end, unless kept.
local kept, lost, view, outer
outer = accel.ones(3)
do
  local s <close> = accel.scope()
  lost = outer + 1
  kept = s:keep(outer * 5)
  view = s:keep(lost[1])
end
assert(released(lost) and not released(kept) and not released(outer))
assert(kept:sum():item() == 15 and view:item() == 2, "a view outlives what it was taken from")
local ok, err = pcall(function() return lost + 1 end)
assert(not ok and err.code == "released" and tostring(err):find("scope_test.lua:", 1, true))

-- Nested: kept by the inner one means born in the outer one.
do
  local _ <close> = accel.scope()
  do
    local b <close> = accel.scope()
    kept = b:keep(outer + 2)
    lost = outer + 3
  end
  assert(released(lost) and not released(kept))
end
assert(released(kept))

-- Tables, function form, errors.
local list
accel.scope(function(s) list = s:keep { outer + 1, { outer + 2 } } end)
assert(not released(list[1]) and not released(list[2][1]))
local t, text = accel.scope(function() return outer * 2, "text" end)
assert(t:sum():item() == 6 and text == "text")
assert(not pcall(accel.scope, function() lost = outer + 1; error("out") end) and released(lost))
assert(not pcall(function()
  local s <close> = accel.scope()
  s:keep(5)
end))

-- Gradients work through a scope: the graph holds tensors, not handles.
local w = accel.ones(2, { requires_grad = true })
local loss = accel.scope(function() return ((w * 3) * (w * 3)):sum() end)
loss:backward()
assert(w.grad:tolist()[1] == 18)

-- A scope that was never closed lets its tensors live, and the next one works.
do
  accel.scope() -- luacheck: ignore
  lost = outer + 1
end
accel.collect()
assert(not released(lost))
accel.scope(function() kept = outer + 1 end)
assert(released(kept))

-- A mode that was forgotten is given back by the collector, with a warning.
warn("@off")
accel.no_grad()
assert(not accel.is_grad_enabled())
accel.collect()
assert(accel.is_grad_enabled())
warn("@on")

-- The collector's clock: a full collection once 8 times the Lua heap (up to an eighth more) was handed out, asked for by ops
-- and at checks.
accel.collect()
local MIB = 1 << 18 -- elements of f32
local before = accel.gc_stats()
if before.mode == "auto" and before.generational then
  local function clock(check)
    accel.collect()
    local full, due = accel.gc_stats().full, collectgarbage("count") * 8 // 16 -- of 16 KiB
    for _ = 1, due * 3 // 4 do accel.empty(MIB // 64):release() end
    check()
    assert(accel.gc_stats().full == full, "too soon")
    for _ = 1, due // 2 do accel.empty(MIB // 64):release() end
    check()
    assert(accel.gc_stats().full == full + 1, "not once")
  end
  clock(accel.gc_check)
  clock(accel.step)
  clock(function() accel.ones(1):add(1) end)
  local ballast = {}
  for k = 1, 300000 do ballast[k] = k end
  clock(accel.gc_check)
  assert(#ballast == 300000)
  -- young collections stay at work after a full one: a loop of small ops leaves little behind
  local a, b = accel.ones(1, { requires_grad = true }), accel.ones(1)
  ballast = nil
  accel.collect()
  accel.collect()
  local least, most = collectgarbage "count", 0
  for i = 1, 60000 do
    local _ = a + b
    if i % 64 == 0 then most = math.max(most, collectgarbage "count") end
  end
  assert(most < least * 1.7 + 200, ("%.0f KB of handles beside %.0f KB"):format(most - least, least))
  -- what a node keeps of its own result is handed to Lua as well
  local big = accel.ones(4 * MIB, { requires_grad = true })
  local at_first, least_over = accel.mem_stats().live_bytes, 0
  for _ = 1, 120 do
    local y = big:relu()
    y:sum():backward()
    big.grad = nil
    least_over = math.max(least_over, accel.mem_stats().live_bytes - at_first)
  end
  assert(least_over < 40 << 20, ("%.0f MiB of garbage"):format(least_over / 2 ^ 20))
  big = nil -- luacheck: ignore
  -- garbage of a loop without modules and steps is found too
  local peak = 0
  for i = 1, 3000 do
    local garbage = accel.empty(MIB)
    garbage[1] = i
    peak = math.max(peak, accel.mem_stats().live_bytes)
  end
  assert(peak < 700 << 20, peak)
end

-- Memory that garbage holds is found before out_of_memory is raised.
accel.collect()
local limit = accel.mem_stats().limit_bytes
assert(limit > 0)
err = select(2, pcall(function() return accel.empty(limit // 4 + 1) end))
assert(err.code == "out_of_memory" and err:find("scope_test.lua:", 1, true)
  and err:find("empty: ", 1, true), tostring(err))
assert(outer:sum():item() == 3)

-- Where Lua's C stack is full it skips finalizers: a scope survives boxes that are gone without one.
warn "@off"
local function deep(n)
  if n > 190 then for _ = 1, 5 do accel.ones(3) end collectgarbage() end
  return (("x"):gsub("x", function() deep(n + 1) end))
end
collectgarbage "stop"
accel.scope(function()
  for _ = 1, 5 do pcall(deep, 1) end
  collectgarbage()
  collectgarbage()
  for i = 1, 1000 do local _ = { i } end
end)
collectgarbage "restart"
