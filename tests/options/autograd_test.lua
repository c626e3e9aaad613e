-- Options of accel.autograd: each one changes what is seen, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/autograd_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "autograd"

local function x(...) return ((accel.arange(accel.zeros(...):numel()):to "f32" * 0.7):sin() * 1.5):reshape(...) end

-- ---- checkpoints: how often the function runs, what random numbers it draws, what it keeps, what it moves to host memory ----
local offload, moved = require "accel.offload.core", 0
local move = offload.move
function offload.move(...)
  moved = moved + 1
  return move(...)
end
local function checkpointed(call, given, sequential)
  local calls, drawn, finished = 0, {}, 0
  local input = x(32, 64):requires_grad_(true)
  moved = 0
  local function fn(t)
    calls = calls + 1
    drawn[#drawn + 1] = accel.rand(1)
    if given.determinism_check then t = t * accel.ones(calls > 1 and 1 or 32, 64) end
    return (t * t):exp() -- the last result that backward needs is made before the end of body
  end
  local function body(t)
    local y = fn(t)
    finished = finished + 1
    return y
  end
  local out
  if sequential then
    given.functions, given.segments, given.x = { body, function(t) return t * 2 end }, 2, input * 1
    out = call()
  else
    out = call(body, input * 1)
  end
  local ok, why = pcall(function() out:sum():backward() end)
  return calls, drawn, finished, ok, not ok and tostring(why) or nil, input.grad, moved
end
local values = { determinism_check = { "none" }, preserve_rng_state = { false }, early_stop = { false }, use_reentrant = { true },
  offload = { "host" } }
s:recipe("accel.autograd.checkpoint", { run = function(call, given) return checkpointed(call, given) end, values = values, passes_on = true,
  raises = { use_reentrant = "use_reentrant = true is not supported" }, with = { determinism_check = { determinism_check = "default" } } })
s:recipe("accel.autograd.checkpoint_sequential", { run = function(call, given) return checkpointed(call, given, true) end, values = values,
  raises = { use_reentrant = "use_reentrant = true is not supported" }, with = { determinism_check = { determinism_check = "default" } } })

-- ---- anomaly mode ----
local function nan_backward()
  local t = accel.zeros(1, { requires_grad = true })
  local ok, why = pcall(function() (t:sqrt() * 0):sum():backward() end)
  return ok, not ok and tostring(why):match "gave NaN" or nil
end
s:recipe("accel.autograd.detect_anomaly", { passes_on = true, run = function(call)
  local _ <close> = call()
  return nan_backward()
end })
s:recipe("accel.autograd.set_detect_anomaly", { passes_on = true, base = function() return { mode = true } end, run = function(call)
  local guard = call()
  if type(guard) ~= "table" then return guard end
  local _ <close> = guard
  return nan_backward()
end, values = { check_nan = { false }, fn = { function() return "ran" end } } })
s:recipe("accel.autograd.graph.saved_tensors_hooks", { passes_on = true, base = function()
  return { pack_hook = function(t) return t end, unpack_hook = function(t) return t end }
end, values = { fn = { function() return "ran" end } } })

-- ---- functional ----
local function of_inputs(t) return (t * t * t):sum() end
local function functional(name, fn, v, inputs)
  s:recipe("accel.autograd.functional." .. name, {
    base = function()
      return { fn = fn, inputs = inputs and inputs() or x(3):requires_grad_(true), v = v and v() or nil }
    end,
    run = function(call, given)
      if given.strict == nil then return call() end
      given.fn = function(t) return accel.ones(fn == of_inputs and {} or t.shape) end
      local ok, a, b = pcall(call)
      return ok, ok and a or tostring(a):match "[^:]*$", b
    end,
    values = { v = { x(3) * 2 }, strict = { true } },
    with = { strict = { strict = false } },
  })
end
local function squares(t) return t * t end
functional("vjp", squares, function() return x(3) end)
functional("jvp", squares, function() return x(3) end)
functional("jacobian", squares)
functional("hessian", of_inputs)
functional("vhp", of_inputs, function() return x(3) end)
functional("hvp", of_inputs, function() return x(3) end)

-- ---- gradcheck: each option decides whether a function passes ----
local function wrong(gradient)
  local f = accel.Function {
    forward = function(ctx, t)
      ctx:save_for_backward(t)
      return t * t
    end,
    backward = function(ctx, g)
      local t = ctx:saved_tensors()
      return gradient(g, t)
    end,
  }
  return f
end
local flips = 0
local functions = {
  eps = function(t) return t * t * t end, atol = wrong(function(g, t) return g * t * 2 + g * 2e-6 end),
  rtol = wrong(function(g, t) return g * t * 2.0005 end),
  nondet_tol = wrong(function(g, t)
    flips = flips + 1
    return g * t * 2 + (flips % 2) * 1e-7 * g
  end),
  check_undefined_grad = wrong(function(g, t) return g * t * 2 + (g:abs():sum():item() == 0 and 1 or 0) end),
  raise_exception = wrong(function(g, t) return g * t * 3 end),
  check_grad_dtypes = wrong(function(g, t) return (g * t * 2):to "f32" end),
}
local checks = {
  base = function()
    return { fn = functions.eps, inputs = { x(3):to("f64"):detach():requires_grad_(true) }, raise_exception = false }
  end,
  run = function(call, given)
    for name, fn in pairs(functions) do
      if given.watched == name then given.fn = fn end
    end
    local watched = given.watched
    given.watched, flips = nil, 0
    if not watched then return call() end
    local ok, result = pcall(call)
    return ok, ok and result
  end,
  values = {
    eps = { 0.5 }, atol = { 1e-9 }, rtol = { 1e-9 }, nondet_tol = { 1e-3 }, check_undefined_grad = { false }, raise_exception = { true },
    check_grad_dtypes = { true }, grad_outputs = { { accel.full({ 3 }, 1e3, { dtype = "f64", requires_grad = true }) } },
  },
  with = { grad_outputs = { eps = 0.02 } },
}
for name in pairs(functions) do checks.with[name] = { watched = name } end
s:recipe("accel.autograd.gradcheck", checks)
s:recipe("accel.autograd.gradgradcheck", { base = checks.base, values = checks.values, -- the rest is gradcheck of gradients
  elsewhere = setmetatable({ check_grad_dtypes = false }, { __index = function() return "tests/stdlib/autograd/gradcheck_test.lua" end }) })
s:finish()
