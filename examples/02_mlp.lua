--- A small network from data to checkpoint:   accel-run examples/02_mlp.lua [--epochs N]
---
--- Tells two interleaved spirals apart. Shows nn.Module, TensorDataset and DataLoader, AdamW with a schedule,
--- and safetensors files.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local o = accel.util.cli {
  name = "02_mlp.lua", summary = "Trains a network to tell two spirals apart.",
  { "epochs", "int", 60, "N", "passes over the data" },
  { "out", "string", nil, "FILE", "save the weights here" },
}

-- Points of two spirals, 500 each, with a little noise: [1000, 2] and labels 0 or 1.
accel.manual_seed(1)
local n = 500
local turn = accel.linspace(0.5, 3.5, n) * math.pi
local function spiral(sign)
  local points = accel.stack({ turn:cos() * turn * sign, turn:sin() * turn * sign }, 2)
  return (points + accel.randn(n, 2) * 0.3) / 10
end
local points = accel.cat({ spiral(1), spiral(-1) }, 1)
local labels = accel.cat({ accel.zeros(n, { dtype = "i64" }), accel.ones(n, { dtype = "i64" }) }, 1)

local Net = nn.Module:extend "Net"
function Net:init(width)
  self.body = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
  self.head = nn.Linear(width, 2)
end
function Net:forward(x) return self.head(self.body(x)) end

local model = Net(32)
print(model)

local loader = data.DataLoader {
  dataset = data.TensorDataset(points, labels), batch_size = 50, shuffle = true, seed = 1,
}
local optimizer = optim.AdamW(model:parameters(), { lr = 0.01 })
local schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, { T_max = o.epochs * #loader })

for epoch = 1, o.epochs do
  local sum = 0.0
  for batch in loader() do
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    schedule:step()
    sum = sum + loss:item()
  end
  if epoch % 10 == 0 or epoch == o.epochs then print(("epoch %d: loss %.4f"):format(epoch, sum / #loader)) end
end

local _ <close> = accel.no_grad()
local right = model(points):argmax(2):eq(labels):to("f32"):mean():item()
print(("right answers: %.1f %%"):format(100 * right))
if o.out then assert(accel.save(o.out, model:state_dict())) end
