-- What lists of parameters and gradients refuse, because it would be stepped several times or not at all as meant.
local accel = require "accel"

local function refused(pattern, fn, ...)
  local ok, message = pcall(fn, ...)
  assert(not ok and tostring(message):find(pattern), tostring(message))
end

local w = accel.nn.Parameter(accel.ones(3))
local _ <close> = accel.no_grad()
refused("give the gradients, not the parameters", accel.clip_grad_norm_, { w }, 1)
refused("give the gradients, not the parameters", accel.clip_grad_value_, { w }, 0.5)
refused("give the gradients, not the parameters", accel.amp_foreach_unscale_, { w }, accel.zeros({}), accel.ones({}))
assert(w:sum():item() == 3)

local wide = accel.ones(1, 2):expand(3, 2)
refused("tensor 1 has elements that share memory", accel.clip_grad_norm_, { wide }, 1)
local lr, step = accel.full({}, 0.1, { dtype = "f64" }), accel.zeros({}, { dtype = "i64" })
local g, m, v = accel.ones(3, 2), accel.zeros(3, 2), accel.zeros(3, 2)
refused("params: tensor 1 has elements that share memory", accel.adamw_step_, { wide }, { g }, { m }, { v }, lr, step)
accel.adamw_step_({ m:clone() }, { wide }, { m }, { v }, lr, step) -- what is only read may be expanded

refused("net:parameters%(%)", accel.optim.SGD, accel.nn.Linear(2, 2), { lr = 0.1 })
refused("there are 'dampening', 'lr'", accel.optim.SGD, { w }, { learning_speed = 0.1 })
refused("zero_grad takes no arguments", function() accel.optim.SGD({ w }, { lr = 0.1 }):zero_grad(false) end)
accel.optim.SGD(accel.nn.Linear(2, 2):named_parameters(), { lr = 0.1 })
