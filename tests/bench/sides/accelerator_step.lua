-- What the Accelerator adds to a training step on one rank: passes over the same data by turns of a bare loop and of one
-- with prepared objects (accumulate, backward, scheduler, zero_grad). Prints one JSON object: microseconds per step.
--   --precision no|fp16|bf16: of both loops (autocast in the bare one, without loss scaling)
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local o = side.options { precision = "no" }
local precision = o.precision

local n <const>, size <const>, rounds <const> = o.quick and 256 or 4096, 8, o.quick and 1 or 15
accel.manual_seed(1)
local x = accel.randn(n, 8)
local y = x:sum(2, true)

local function parts()
  local model = nn.Linear(8, 1)
  local optimizer = optim.SGD(model:parameters(), { lr = 1e-3 })
  return model, optimizer, data.DataLoader(data.TensorDataset(x, y), { batch_size = size, shuffle = true, seed = 1 }),
    optim.lr_scheduler.LambdaLR(optimizer, function() return 1 end)
end

local model, optimizer, loader, scheduler = parts()
local half = ({ fp16 = "f16", bf16 = "bf16" })[precision]
local function bare()
  for batch in loader() do
    local out
    if half then
      local _ <close> = accel.autocast { dtype = half }
      out = model(batch[1])
    else
      out = model(batch[1])
    end
    local loss = nn.functional.mse_loss(out:to "f32", batch[2])
    loss:backward()
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
  end
end

local accelerator = accel.Accelerator { mixed_precision = precision }
local net, opt, prepared, schedule = accelerator:prepare(parts())
local function layered()
  for batch in prepared() do
    local _ <close> = accelerator:accumulate(net)
    local loss = nn.functional.mse_loss(net(batch[1]), batch[2])
    accelerator:backward(loss)
    opt:step()
    schedule:step()
    opt:zero_grad()
  end
end

local function timed(f)
  collectgarbage()
  local from = accel.clock()
  f()
  return (accel.clock() - from) * 1e6 / (n // size)
end

bare()
layered()
local a, b, over = {}, {}, {}
for r = 1, rounds do
  a[r], b[r] = timed(bare), timed(layered)
  over[r] = b[r] - a[r]
end
side.finish { bare = side.median(a), layered = side.median(b), over = side.median(over) }
