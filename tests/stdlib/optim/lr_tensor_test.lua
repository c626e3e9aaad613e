--- A learning rate given as a tensor, as PyTorch takes it: the steps follow the tensor, and the tensor follows a schedule.
local accel = require "accel"
local optim = accel.optim

local function stepped(o, p)
  p.grad = accel.ones(1)
  o:step()
  return p:item()
end
local function near(got, want) assert(math.abs(got - want) < 1e-6, ("%g, wanted %g"):format(got, want)) end

local p, lr = accel.nn.Parameter(accel.ones(1)), accel.tensor(0.5)
local o = optim.SGD({ p }, { lr = lr })
near(stepped(o, p), 0.5)
lr:fill_(0.25) -- read at the next step
near(stepped(o, p), 0.25)
near(o.param_groups[1].lr, 0.25)
o.param_groups[1].lr = 0.125 -- an assignment reaches the tensor
near(stepped(o, p), 0.125)
near(lr:item(), 0.125)

-- a schedule begins at the tensor's value and writes to it
p, lr = accel.nn.Parameter(accel.ones(1)), accel.tensor { 0.5 }
o = optim.SGD({ p }, { lr = lr })
local s = optim.lr_scheduler.StepLR(o, { step_size = 1, gamma = 0.5 })
near(stepped(o, p), 0.5)
s:step()
near(stepped(o, p), 0.25)
near(lr:item(), 0.25)

-- of a group, and in every optimizer that has one
local q = accel.nn.Parameter(accel.ones(1))
o = optim.AdamW({ { params = { p }, lr = accel.tensor(0.1) }, { params = { q } } }, { lr = 0.2 })
near(o.param_groups[1].lr, 0.1)
near(o.param_groups[2].lr, 0.2)
assert(math.type(o:state_dict().param_groups[1].lr) == "float")
o:load_state_dict(o:state_dict())
stepped(o, p)

local ok, err = pcall(optim.SGD, { p }, { lr = accel.ones(2) })
assert(not ok and tostring(err):find "one element", tostring(err))
ok, err = pcall(optim.SGD, { p }, { lr = accel.tensor(-1.0) })
assert(not ok, "a negative rate is taken")
ok, err = pcall(optim.SGD, { p }, { momentum = accel.tensor(0.1) })
assert(not ok and tostring(err):find "must be a number", tostring(err))
