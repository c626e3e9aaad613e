-- Anomaly mode: the line of the forward and the line of the backward for a NaN, in functions of the script, of the
-- library and in custom ones; on and off.
--   accel-run tests/stdlib/autograd/anomaly_test.lua
local accel = require "accel"
local autograd = accel.autograd
local detect_anomaly = autograd.detect_anomaly

local function here() return debug.getinfo(2, "l").currentline end
local function fails(f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "no error")
  return tostring(err)
end
local function says(text, ...)
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), text) end
end

local x = accel.zeros(2, { requires_grad = true })
local forward, back
local function step()
  local r = x:sqrt() forward = here()
  local loss = (r * 0):sum()
  loss:backward() back = here()
end
step() -- quietly
assert(x.grad:isnan():all():item())
says(fails(detect_anomaly, step), ("anomaly_test.lua:%d: "):format(back),
  "backward of sqrt gave NaN as gradient of its input 1, shape (2)", ("anomaly_test.lua:%d"):format(forward))
assert(not autograd.is_anomaly_enabled())

-- for a block, in every form
do
  local _ <close> = detect_anomaly()
  assert(autograd.is_anomaly_enabled() and autograd.is_anomaly_check_nan_enabled())
  says(fails(step), "backward of sqrt")
  do
    local _ <close> = detect_anomaly { check_nan = false }
    assert(autograd.is_anomaly_enabled() and not autograd.is_anomaly_check_nan_enabled())
    step()
  end
  assert(autograd.is_anomaly_check_nan_enabled())
  detect_anomaly(false, step)
end
assert(not autograd.is_anomaly_enabled())
assert(detect_anomaly(function(a, b) return a + b end, 1, 2) == 3)
autograd.set_detect_anomaly(true)
says(fails(step), "backward of sqrt")
autograd.set_detect_anomaly(false)
step()
says(fails(autograd.set_detect_anomaly, 3), "mode must be true or false, got 3")
says(fails(detect_anomaly, { chek_nan = true }), "did you mean 'check_nan'")

-- called by the library: the script's line and the library's
do
  local lin, line = accel.nn.Linear(2, 2), nil
  accel.nn.init.zeros_(lin.weight)
  accel.nn.init.zeros_(lin.bias)
  local Root = accel.nn.Module:extend "Root"
  function Root:forward(t) return t:sqrt() end
  local chain = accel.nn.Sequential(lin, Root())
  says(fails(detect_anomaly, function()
    local y = chain(accel.ones(1, 2)) line = here();
    (y * 0):sum():backward()
  end), "backward of sqrt")
  local text = fails(detect_anomaly, function()
    local loss = accel.nn.MSELoss()(accel.full({ 2 }, math.huge) * lin.bias, accel.zeros(2)) line = here()
    loss:backward()
  end)
  says(text, ("anomaly_test.lua:%d (accel/nn/"):format(line))
end

-- a custom function, a gradient that is NaN from the start, a second derivative
local Nan = accel.Function {
  name = "Nan", forward = function(_, t) return t * 1 end, backward = function(_, d) return d / 0 * 0 end,
}
says(fails(detect_anomaly, function() Nan(x):sum():backward() end), "backward of Nan gave NaN as gradient")
says(fails(detect_anomaly, function() (x * 2):backward(accel.tensor { 0 / 0, 1 }) end),
  "the gradient given for output 1 has NaN")
says(fails(detect_anomaly, function()
  local t = accel.zeros(1, { requires_grad = true })
  local g = accel.grad((t ^ 1.5):sum(), t, { create_graph = true })
  return accel.grad((g * 0):sum(), t)
end), "gave NaN")

-- other errors of a backward say where the forward was
do
  local line
  local text = fails(detect_anomaly, function()
    local t = x * 1
    local y = t:exp() line = here()
    accel.no_grad(function() y:add_(1) end)
    y:sum():backward()
  end)
  says(text, "changed in place", "(backward of exp, called at ", ("anomaly_test.lua:%d"):format(line))
end

-- errors of a backward in Lua as well; an object of the script's own goes on as it is
do
  local line
  local mine = setmetatable({ message = "mine" }, { __tostring = function(e) return e.message end })
  for _, what in ipairs { "oops", mine, function(d) return d:matmul(accel.ones(9, 9)) end } do
    local Bad = accel.Function { name = "Bad", forward = function(_, t) return t * 1 end, backward = function(_, d)
      if type(what) == "function" then return what(d) end
      error(what)
    end }
    local function run()
      local y = Bad(x) line = here()
      y:sum():backward()
    end
    local text = fails(detect_anomaly, run)
    local at = "(backward of Bad, called at "
    if what == mine then
      assert(text == "mine", text)
    else
      says(text, at, ("anomaly_test.lua:%d)"):format(line))
    end
    assert(not fails(run):find(at, 1, true))
  end
end

-- the mode inside a checkpoint: the forward's line is that of the first run
says(fails(detect_anomaly, function()
  accel.checkpoint(function(t) return (t:sqrt() * 0):sum() end, x):backward()
end), "backward of sqrt gave NaN")
accel.collect()
