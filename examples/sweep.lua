--- A script for a sweep: its options are the configuration, and the run store gets its loss.
---
---   accel-run sweep examples/sweep.yaml        accel-run examples/sweep.lua --lr 0.01 --width 16
---   accel-run ui runs
---
--- Tells two interleaved spirals apart. accel-run sweep starts it with options from examples/sweep.yaml, reads the loss from the store
--- while it runs, and stops it early where others are better.
local accel = require "accel"
local nn = accel.nn

local o = accel.util.cli {
  name = "sweep.lua", usage = "[options]", summary = "Trains a network to tell two spirals apart.",
  { "lr", "number", 0.01, "X", "learning rate" },
  { "width", "int", 16, "N", "units of each hidden layer", least = 1 },
  { "steps", "int", 3000, "N", "updates", least = 1 },
  { "out", "string", "runs", "DIR", "folder of the store" },
}

accel.manual_seed(1)
local n = 200
local turn = accel.linspace(0.5, 3.5, n) * math.pi
local function spiral(sign)
  local points = accel.stack({ turn:cos() * turn * sign, turn:sin() * turn * sign }, 2)
  return (points + accel.randn(n, 2) * 0.3) / 10
end
local points = accel.cat({ spiral(1), spiral(-1) }, 1)
local labels = accel.cat({ accel.zeros(n, { dtype = "i64" }), accel.ones(n, { dtype = "i64" }) }, 1)

local model = nn.Sequential(nn.Linear(2, o.width), nn.ReLU(), nn.Linear(o.width, o.width), nn.ReLU(), nn.Linear(o.width, 2))
local optimizer = accel.optim.AdamW(model:parameters(), { lr = o.lr })
local run = accel.track.Run { dir = o.out, project = "spirals", config = { lr = o.lr, width = o.width } }
for step = 1, o.steps do
  local loss = nn.functional.cross_entropy(model(points), labels)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  run:log({ loss = loss:item() }, step)
end
run:finish()
