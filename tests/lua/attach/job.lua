-- A job for the tests of attach: trains a small model, prints a digest of all its losses at the end.   job.lua STEPS [MODE]
-- MODE: "plain"; "slow": 5 ms a step; "breakpoint", where rank 1 stands at step 10; "late", where rank 1 takes 4 s at step 30.
-- "hang": after 20 steps rank 0 reads, rank 1 waits in a collective and others loop; "stuck": after 20 steps rank 2 waits in a collective and
-- others loop; "deep": after 5 steps rank 0 loops in a coroutine of a coroutine, rank 1 is in a function of C for long, rank 2 in one of the
-- library that waits, and others grow and shrink their stacks.
local accel = require "accel"
local nn, optim, dist = accel.nn, accel.optim, accel.dist
local steps, mode = tonumber(arg[1]), arg[2] or "plain"
accel.set_seed(3)
local a = accel.Accelerator {}
local net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
local model, opt = a:prepare(net, optim.AdamW(net:parameters(), { lr = 0.01 }))
local rank, digest, scale = a.process_index, 0, 1.0

local function spin() while true do end end

local function stuck()
  if rank == 2 then dist.barrier() end
  spin()
end

local function hang()
  if rank == 0 then io.read() end -- of a pipe that says nothing
  if rank == 1 then dist.barrier() end
  while true do end
end

-- Each of these is the one line that a look at the stack has to name.
local function backtrack() return ("a"):rep(32):find(("a?"):rep(32) .. ("a"):rep(32)) end
local function meet() a:wait_for_everyone() end
local function recurse(n) return n > 0 and { recurse(n - 1), ("x"):rep(n) } or nil end

local function deep()
  if rank == 0 then
    local outer = coroutine.wrap(function()
      local inner = coroutine.wrap(spin)
      inner()
    end)
    outer()
  end
  if rank == 1 then backtrack() end
  if rank == 2 then meet() end
  while true do coroutine.wrap(recurse)(5000) end
end

local function dawdle()
  os.execute "sleep 4" -- asleep: what a busy machine keeps from running is not late
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
  if mode == "stuck" and i == 20 then stuck() end
  if mode == "deep" and i == 5 then deep() end
  if mode == "late" and i == 30 and rank == 1 then dawdle() end
  if mode == "slow" or mode == "late" then os.execute "sleep 0.005" end
end
if rank == 0 then print(("digest %x"):format(digest)) end
