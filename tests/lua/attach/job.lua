-- A job for the tests of attach: trains a small model, prints a digest of all its losses at the end.   job.lua STEPS [MODE]
-- MODE: "plain"; "hang", where after 20 steps rank 0 reads, rank 1 waits in a collective and others loop; "breakpoint", where rank 1
-- stands at step 10; "slow": 5 ms a step
local accel = require "accel"
local nn, optim, dist = accel.nn, accel.optim, accel.dist
local steps, mode = tonumber(arg[1]), arg[2] or "plain"
accel.set_seed(3)
local a = accel.Accelerator {}
local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
local model, opt = a:prepare(net, optim.AdamW(net:parameters(), { lr = 0.01 }))
local rank, digest, scale = a.process_index, 0, 1.0

local function hang()
  if rank == 0 then io.read() end -- of a pipe that says nothing
  if rank == 1 then dist.barrier() end
  while true do end
end

local function step(i)
  local x = accel.randn(4, 8) * scale
  local loss = model(x):pow(2):mean()
  a:backward(loss)
  if mode == "breakpoint" and i == 10 then accel.breakpoint(rank == 1) end
  opt:step()
  opt:zero_grad()
  a:log { loss = loss:item() }
  return loss
end

for i = 1, steps do
  local loss = step(i)
  digest = digest * 31 + string.unpack("<I4", loss:detach():to_bytes())
  if mode == "hang" and i == 20 then hang() end
  if mode == "slow" then os.execute "sleep 0.005" end
end
if rank == 0 then print(("digest %x"):format(digest)) end
