-- Options of accel.func: each one changes results, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/func_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "func"

local x = accel.tensor { { 1.0, 2.0 }, { 3.0, 0.5 } }
local function fn(a, b) return (a * a * (b or 1)):sum(), a * 3 end
local values = { argnums = { 2, { 1, 2 } }, has_aux = { true }, chunk_size = { 1 }, randomness = { "same" } }
s:recipe({ "accel.func.grad", "accel.func.grad_and_value", "accel.func.jacrev", "accel.func.jacfwd", "accel.func.hessian" },
  { run = function(call, given)
    given.fn = fn
    return call()(x, x + 1)
  end, values = values })
s:recipe("accel.func.vmap", { run = function(call, given)
  given.fn = function(a) return a * (given.randomness and accel.rand(1) or 1) end
  local f = call()
  return pcall(f, x)
end, values = { in_dims = { 2 }, out_dims = { 2 }, randomness = { "same", "different" }, chunk_size = { 1 } } })
s:recipe("accel.func.jvp", { run = function(call, given)
  given.fn = given.strict and function() return x:sum() end or fn
  given.primals, given.tangents = { x }, { x }
  return call()
end, values = { strict = { true }, has_aux = { true } }, raises = { strict = "does not depend on the arguments" } })
s:recipe("accel.func.functional_call", { run = function(call, given)
  local net = accel.nn.Linear(2, 2)
  net.again = net.weight -- one tensor under two names
  given.module, given.state, given.args = net, { weight = x }, { x }
  net.forward = function(self, a, more) return a:matmul(self.again) + (more and more.add or 0) end
  return call()
end, values = { kwargs = { { add = 1 } }, tie_weights = { false }, strict = { true } }, raises = { strict = "is missing" } })
s:leave({ "accel.func.vjp", "accel.func.linearize" }, "their arguments are those of the function; func_test.lua has has_aux")
s:finish()
