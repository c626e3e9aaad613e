-- Run by frames.c in steps: an ordinary training script, which fits a small network to a sine. app.report is a function of the program.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim

accel.manual_seed(7)
local x = accel.linspace(-3, 3, 64):view(64, 1)
local y = x:sin()
local model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
local optimizer = optim.Adam(model:parameters(), { lr = 0.02 })

for _ = 1, 3000 do
  local loss = nn.functional.mse_loss(model(x), y)
  optimizer:zero_grad()
  loss:backward()
  optimizer:step() -- the program draws here
  app.report(loss:item())
end
print "trained"
