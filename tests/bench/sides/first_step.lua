-- The shortest useful program: one training step of a small MLP.
local accel = require "accel"
local nn = accel.nn
local model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
local opt = accel.optim.SGD(model:parameters(), { lr = 0.1 })
local loss = accel.cross_entropy(model(accel.randn(32, 64)), accel.randint(0, 10, { 32 }))
loss:backward()
opt:step()
print(loss:item())
if arg[1] == "--memory" then
  local file <close> = assert(io.open("/proc/self/status", "rb"))
  print(('{"peak_mb": %f}'):format(tonumber(file:read "a":match "VmHWM:%s*(%d+)") * 1024 / 1e6))
end
