-- Finalizers of scripts run whenever the collector does, and may release tensors that a call is about to use.
-- The call then raises, or uses what it had; memory stays sound (the sanitizer builds watch).
local accel = require "accel"

collectgarbage("incremental", 50, 1000)

-- Arms an object that releases t when it is collected, which allocation inside the next calls brings about.
local function arm(t)
  setmetatable({}, { __gc = function() t:release() end })
end

local calls = {
  function(t) return t + t end,
  function(t) return t:view(4) end,
  function(t) return t[1] end,
  function(t) t[1] = 3 end,
  function(t) return t:to("f64") end,
  function(t) return t:to("f32", { copy = true }) end,
  function(t) return t:detach() end,
  function(t) return accel.tensor(t) end,
  function(t) return accel.zeros_like(t) end,
  function(t) return accel.rand_like(t) end,
  function(t) return t:transpose(1, 2):to_bytes() end,
  function(t) return accel.cat { t, t, t } end,
  function(t) return t:split(1) end,
  function(t) return t:tolist() end,
  function(t) return accel.grad(t:sum(), t) end,
  function(t) return t:register_hook(function() end) end,
  function(t)
    return accel.Function {
      forward = function(_, x) return x * 1 end,
      backward = function(_, g) return g end,
    }(t)
  end,
}
local long = {}
for _, call in ipairs(calls) do
  for round = 1, 16 do
    local t = accel.ones(2, 2, { requires_grad = round % 2 == 0 })
    arm(t)
    for _ = 1, 8 do
      local ok, err = pcall(call, t)
      assert(ok or err.code == "released" or err.code == "autograd", tostring(err))
    end
    if round % 4 == 0 then collectgarbage() end
  end
end
for i = 1, 700 do long[i] = accel.ones(1) end
for i = 1, 20 do
  arm(long[i])
  local ok, err = pcall(accel.cat, long)
  assert(ok or err.code == "released")
  collectgarbage()
  long[i] = accel.ones(1)
end
long = nil -- luacheck: ignore
accel.collect()
accel.collect()
assert(accel.live() == 0, accel.live())

-- A hook released or a tensor dropped in the middle of backward.
for _ = 1, 20 do
  local x = accel.ones(3, { requires_grad = true })
  local y = (x * 2):sum()
  local handle
  handle = x:register_hook(function() handle:remove() end)
  y:backward()
  assert(x.grad:sum():item() == 6)
end

-- Ops inside a finalizer: nothing can be collected there, and what they hand to Lua stays in the collector's account,
-- whichever collection ran the finalizer. The next check then collects.
if accel.gc_stats().mode == "auto" then
  local MIB = 1 << 18 -- elements of f32
  collectgarbage "stop"
  for _, collect in ipairs { collectgarbage, function()
    accel.empty(100 * MIB):release()
    accel.gc_check()
  end } do
    for _, n in ipairs { 100, 300 } do -- in there ops ask for a collection themselves, in vain
      accel.collect()
      accel.collect()
      local live, ran = accel.live(), false
      setmetatable({}, { __gc = function()
        ran = true
        for i = 1, n do
          local garbage = accel.empty(MIB)
          garbage[1] = i
        end
        accel.gc_check()
      end })
      collect()
      assert(ran and accel.live() == live + n)
      local before = accel.gc_stats().full
      accel.gc_check()
      assert(accel.gc_stats().full == before + 1 and accel.live() == live, accel.live())
    end
  end
  collectgarbage "restart"
end
