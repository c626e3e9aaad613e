-- Time of small calls from Lua, in nanoseconds. Prints one JSON object.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options {}

local function per_call(n, fn)
  if o.quick then n = n // 100 end
  fn(n // 10)
  local best = math.huge
  for _ = 1, 5 do
    local t = accel.clock()
    fn(n)
    best = math.min(best, (accel.clock() - t) / n)
  end
  return best * 1e9
end

local r = {}
local a, b = accel.ones(1), accel.ones(1)
r.add = per_call(200000, function(n) for _ = 1, n do local _ = a + b end end)
local g = accel.ones(1, { requires_grad = true })
r.add_grad = per_call(200000, function(n) for _ = 1, n do local _ = g + b end end)
local x8, y8 = accel.randn(8, 8), accel.randn(8, 8)
r.mm8 = per_call(100000, function(n) for _ = 1, n do local _ = x8:matmul(y8) end end)
local lin = accel.nn.Linear(8, 8)
r.linear8 = per_call(50000, function(n) for _ = 1, n do local _ = lin(x8) end end)
r.chain = per_call(20000, function(n)
  for _ = 1, n do
    local z = ((g * b + b) * g)
    z:backward()
    g.grad = nil
  end
end)
side.finish(r)
