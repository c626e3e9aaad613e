-- Training step of an MLP 784-128-10 over 32 rows, with SGD and momentum, and with AdamW: microseconds, and the losses
-- of ten steps from the weights of the file. --make FOLDER writes them.
local accel = require "accel"
local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local nn, optim = accel.nn, accel.optim
local o = side.options { data = "", make = "" }

local function network() return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)) end

if o.make ~= "" then
  accel.manual_seed(1)
  side.save(o.make, "weights", network():state_dict())
  side.save(o.make, "data", { x = accel.randn(32, 784), y = accel.randint(0, 10, { 32 }) })
  return
end

local weights, data = side.load(o.data, "weights"), side.load(o.data, "data")
local x, y = data.x, data.y
local figures = {}
local function measure(name, make)
  local model = network()
  model:load_state_dict(weights)
  local opt = make(model:parameters())
  local function step()
    local loss = accel.cross_entropy(model(x), y)
    loss:backward()
    opt:step()
    opt:zero_grad()
    return loss
  end
  local losses = {}
  for i = 1, 10 do losses[i] = step():item() end
  local times, n = {}, o.quick and 10 or 500
  for i = 1, o.quick and 1 or 7 do
    local t = accel.clock()
    for _ = 1, n do step() end
    times[i] = (accel.clock() - t) / n * 1e6
  end
  figures[name .. "_losses"], figures[name .. "_us"] = losses, side.median(times)
end
measure("sgd", function(p) return optim.SGD(p, { lr = 0.01, momentum = 0.9 }) end)
measure("adamw", function(p) return optim.AdamW(p, { lr = 0.001 }) end)
side.finish(figures)
