-- Training steps of a small network, for the bench of attach: the median of a step and its 99th percentile, in us.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { steps = 20000 }
if o.quick then o.steps = 200 end

accel.manual_seed(1)
local model = accel.nn.Sequential(accel.nn.Linear(64, 128), accel.nn.ReLU(), accel.nn.Linear(128, 10))
local opt = accel.optim.SGD(model:parameters(), { lr = 1e-3 })
local x, y = accel.randn(32, 64), accel.randint(0, 10, { 32 })
local function step()
  local loss = accel.cross_entropy(model(x), y)
  loss:backward()
  opt:step()
  opt:zero_grad()
end

for _ = 1, 200 do step() end
local times = {}
for i = 1, o.steps do
  local t = accel.clock()
  step()
  times[i] = accel.clock() - t
end
table.sort(times)
side.finish { median = side.median(times) * 1e6, p99 = times[math.ceil(#times * 0.99)] * 1e6 }
