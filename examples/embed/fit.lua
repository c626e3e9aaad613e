--- The Lua part of the programs in this folder: a model that learns on their memory, with their loss.
---
--- The program registers app.cost(prediction, wanted) before it runs this file, then calls train and predict.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim
---@diagnostic disable: undefined-global
local cost_of = app.cost

accel.manual_seed(1)
local model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
local optimizer = optim.AdamW(model:parameters(), { lr = 0.02 })

--- Trains on inputs (n, 3) and their targets (n, 1), both the program's memory. Returns the last cost.
---@param x accel.Tensor
---@param y accel.Tensor
---@param steps integer
---@return number
function train(x, y, steps)
  local last = math.huge
  for _ = 1, steps do
    local cost = cost_of(model(x), y)
    optimizer:zero_grad()
    cost:backward()
    optimizer:step()
    last = cost:item()
  end
  return last
end

--- The model's answers to inputs (n, 3): a tensor that the program reads in place.
---@param x accel.Tensor
---@return accel.Tensor
function predict(x)
  local _ <close> = accel.no_grad()
  return model(x)
end
