-- accel.func beyond the single calls of reference/calls_func: models as functions, gradients of single samples, ensembles, transforms in each
-- other, tied weights, and what is refused.
local accel = require "accel"
local func, nn = accel.func, accel.nn
accel.manual_seed(5)
local function close(a, b) assert(accel.allclose(a, b, { rtol = 1e-5, atol = 1e-6 }), tostring(a) .. "\n" .. tostring(b)) end
local function fails(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end

local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
local params = {}
for name, p in net:named_parameters() do params[name] = p:detach() end
local x, y = accel.randn(5, 3), accel.randn(5, 1)
local function loss(p, a, b) return ((func.functional_call(net, p, a) - b) ^ 2):sum() end

-- Gradients of single samples: the rows of a loop, and their sum is the gradient of the whole batch.
local single = func.vmap(func.grad(loss), { in_dims = { false, 1, 1 } })(params, x, y)
net:zero_grad();
((net(x) - y) ^ 2):sum():backward()
for name, p in net:named_parameters() do close(single[name]:sum { dim = 1 }, p.grad) end
net:zero_grad();
((net(x[2]) - y[2]) ^ 2):sum():backward()
for name, p in net:named_parameters() do close(single[name][2], p.grad) end

-- The module keeps its own tensors, also after an error.
local before = net[1].weight
fails("oops", function()
  local bad = nn.Linear(3, 3)
  bad.forward = function(_, _) error("oops", 0) end
  func.functional_call(bad, { weight = accel.zeros(3, 3) }, x)
end)
func.functional_call(net, { ["0.weight"] = accel.zeros(4, 3) }, x)
assert(net[1].weight == before)

-- An ensemble: one call for several models.
local models = {}
for i = 1, 3 do models[i] = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)):eval() end
local stacked, buffers = func.stack_module_state(models)
assert(stacked["0.weight"].requires_grad and stacked["0.weight"].is_leaf and buffers["1.running_mean"].shape == { 3, 2 })
local out = func.vmap(function(p, b, a) return func.functional_call(models[1], { p, b }, a) end, { in_dims = { 1, 1, false } })(stacked, buffers, x)
for i = 1, 3 do close(out[i], models[i](x)) end
out:sum():backward()
assert(stacked["0.weight"].grad)
fails("module 2 is in another mode", func.stack_module_state, { models[1], nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) })
fails("'weight' of module 2 differs in shape", func.stack_module_state, { nn.Linear(2, 2), nn.Linear(3, 2) })

-- A tensor under two names is replaced under both of them.
local tied = nn.Sequential(nn.Linear(2, 2, { bias = false }), nn.Linear(2, 2, { bias = false }))
tied[2].weight = tied[1].weight
close(func.functional_call(tied, { ["0.weight"] = accel.eye(2) * 3 }, accel.ones(1, 2)), accel.full({ 1, 2 }, 9.0))
local two = { ["0.weight"] = accel.eye(2) * 3, ["1.weight"] = accel.eye(2) }
close(func.functional_call(tied, two, accel.ones(1, 2), { tie_weights = false }), accel.full({ 1, 2 }, 3.0))
fails("are one tensor in the module, but two are given", func.functional_call, tied, two, x)

-- Transforms in each other agree with each other and with formulas.
local function f(t) return (t:sin() * t:flip(1)):sum() end
local point = accel.randn(4, { dtype = "f64" })
local H = func.hessian(f)(point)
assert(accel.allclose(H, func.jacfwd(func.jacrev(f))(point)) and accel.allclose(H, H:t()))
local v = accel.randn(4, { dtype = "f64" })
local _, hv = func.jvp(func.grad(f), { point }, { v })
assert(accel.allclose(hv, H:mv(v)))
local _, pull = func.vjp(func.grad(f), point)
assert(accel.allclose((pull(v)), H:mv(v)))
local xs = accel.randn(3, 4, { dtype = "f64" })
local jac = func.vmap(func.jacrev(function(t) return t * t end))(xs)
for i = 1, 3 do assert(accel.allclose(jac[i], accel.diag(xs[i] * 2))) end
assert(not func.grad(f)(point).requires_grad, "nothing asked for a graph")
assert(func.grad(f)(point:clone():requires_grad_()).requires_grad)
do
  local _ <close> = accel.no_grad()
  assert(accel.allclose(func.grad(f)(point), func.grad(f)(point)), "gradients inside no_grad, as in PyTorch")
end

-- Random numbers.
local function noisy(t) return t + accel.rand(1) end
local same = func.vmap(noisy, { randomness = "same" })(accel.zeros(3))
assert(same[1][1]:item() == same[3][1]:item())
local different = func.vmap(noisy, { randomness = "different" })(accel.zeros(3))
assert(different[1][1]:item() ~= different[3][1]:item())

fails("the mapped dims must have one size, got 2 in argument 1 and 3 in argument 2", func.vmap(accel.add), accel.ones(2), accel.ones(3))
fails("at least one tensor must be mapped", func.vmap(accel.neg, { in_dims = false }), accel.ones(2))
fails("in_dims has 1 entries for 2 arguments", func.vmap(accel.add, { in_dims = { 1 } }), accel.ones(2), accel.ones(2))
fails("the mapped dims are empty", func.vmap(accel.neg), accel.ones(0))
fails("fn must return a tensor without dims, got shape (2)", func.grad(function(t) return t end), accel.ones(2))
fails("argnums must lie between 1 and 1, the number of arguments, got 2", func.grad(f, 2), point)
fails("argument 1 has dtype i64; only floats have gradients", func.grad(f), accel.arange(3))
fails("tangent 1 has shape (2), its argument (4)", func.jvp, f, { point }, { accel.ones(2) })
fails("does not depend on the arguments, and strict = true", func.jvp, function() return accel.ones(1) end, { point }, { v }, { strict = true })
fails("did you mean 'weight'?", func.functional_call, nn.Linear(1, 1), { weigth = accel.ones(1, 1) }, x)
