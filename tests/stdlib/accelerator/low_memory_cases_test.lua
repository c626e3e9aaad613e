-- Accelerator { memory = "low" } in scripts that do more than forward, backward and step: shared blocks, no_sync, other backwards between
-- backward and step, options that change there, hooks that drop gradients, optimizers of the script, and errors half way.
--   accel-run tests/stdlib/accelerator/low_memory_cases_test.lua
local accel = require "accel"
local nn = accel.nn

local Net = nn.Module:extend "Net"
function Net:init()
  self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
  self.blocks = nn.ModuleList { self.a, self.a, self.b }
end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x):tanh() end
  return x
end

accel.manual_seed(5)
local X <const> = accel.randn(4, 8)

local function momentum(params) return accel.optim.SGD(params, { lr = 0.1, momentum = 0.9 }) end

-- What step(a, model, optimizer) does three times, and the warnings other than that on states.
local function run(memory, step, optimizer, times)
  accel.AcceleratorState._reset_state(true)
  accel.manual_seed(3)
  local a, net, said = accel.Accelerator { memory = memory }, Net(), {}
  rawset(a, "_warn", function(_, text)
    if not text:find "states stay" then said[#said + 1] = text end
  end)
  local model, o = a:prepare(net, (optimizer or momentum)(net:parameters()))
  for i = 1, times or 3 do step(a, model, o, i) end
  return net, table.concat(said, "\n")
end

local function loss_of(model) return model(X):pow(2):sum() end

-- The parameters of "reduced", and what "low" says.
local function same(what, step, optimizer)
  local low, said = run("low", step, optimizer)
  local other = run("reduced", step, optimizer)
  for name, p in low:named_parameters() do assert(accel.equal(p, other:get_parameter(name)), what .. ": " .. name) end
  return said
end

local function raises(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern, 1, true), ("expected '%s', got: %s"):format(pattern, tostring(err)))
end

local function plain(a, model, o)
  a:backward(loss_of(model))
  o:step()
  o:zero_grad()
end
assert(same("a block used twice", plain) == "")
do
  local calls, forward = 0, nn.Linear.forward
  rawset(nn.Linear, "forward", function(...)
    calls = calls + 1
    return forward(...)
  end)
  run("low", plain, nil, 1)
  rawset(nn.Linear, "forward", forward)
  assert(calls == 6, ("%d calls: each of three blocks is computed twice"):format(calls))
end

assert(same("no_sync", function(a, model, o)
  a:no_sync(model, function() a:backward(loss_of(model)) end)
  plain(a, model, o)
end):find "inside no_sync")
assert(same("no_sync in a block", function(a, model, o)
  do
    local _ <close> = a:no_sync(model)
    a:backward(loss_of(model))
  end
  plain(a, model, o)
end):find "inside no_sync")

assert(same("a closure", function(a, model, o)
  o:step(function()
    o:zero_grad()
    local loss = loss_of(model)
    a:backward(loss)
    return loss
  end)
end) == "")

-- gradients that were there before are part of the step, with the factor that clipping has put off
assert(same("an earlier backward", function(a, model, o)
  loss_of(model):backward()
  plain(a, model, o)
end) == "")
run("low", function(a, model, o, i)
  if i == 1 then return plain(a, model, o) end
  local p = o.param_groups[1].params[1]
  local before = p:detach():clone()
  p:sum():backward() -- a gradient of 64 ones, of norm 8
  nn.utils.clip_grad_norm_({ p }, 4, { optimizer = o.optimizer })
  a:backward(p:sum())
  assert(accel.allclose(p, before - 0.1 * 1.5, { rtol = 1e-4 }), "the factor is lost")
  o:step()
end, function(params) return accel.optim.SGD({ params[1] }, { lr = 0.1 }) end, 2)

run("low", function(a, model, o)
  a:backward(loss_of(model))
  loss_of(model):backward()
  raises("another backward has given the same parameters gradients since", o.step, o)
  o:zero_grad()
  o:step()
  plain(a, model, o)
end, nil, 1)

local _, said = run("low", function(a, model, o, i)
  a:backward(loss_of(model))
  o.param_groups[1].lr = 0.1 / i
  o:step()
end, nil, 2)
assert(select(2, said:gsub("lr of a parameter group has changed", "")) == 1, said)

run("low", function(a, model, o)
  local net = a:unwrap_model(model)
  local before = net.a.weight:detach():clone()
  local handle = net.a.weight:register_post_accumulate_grad_hook(function(p) p.grad = nil end)
  plain(a, model, o)
  handle:remove()
  assert(accel.equal(net.a.weight, before), "a dropped gradient has no step")
end, nil, 2)

assert(same("an optimizer that is no accel.optim.Optimizer", plain, function(params)
  local own = { param_groups = { { params = params, lr = 0.1 } }, state = {} }
  function own:step()
    local _ <close> = accel.no_grad()
    for _, p in ipairs(self.param_groups[1].params) do p:sub_(p.grad * self.param_groups[1].lr) end
  end
  function own:zero_grad()
    for _, p in ipairs(self.param_groups[1].params) do p.grad = nil end
  end
  function own:state_dict() return { param_groups = self.param_groups } end
  return own
end):find "a class of the script steps on all parameters together")

_, said = run("low", function(a, model, o)
  local handle = a:unwrap_model(model).a.weight:register_hook(function() error "half way" end)
  raises("half way", a.backward, a, loss_of(model))
  handle:remove()
  raises("the first backward of this update has stepped", a.backward, a, loss_of(model))
  o:step()
  plain(a, model, o)
end, nil, 1)
assert(said:find "backward failed after 2 of 4 parameters had stepped", said)
print "ok"
