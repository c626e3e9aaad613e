-- accel.autograd.functional against numbers computed by PyTorch (torch.autograd.functional, f64), forms of inputs,
-- options.
--   accel-run tests/stdlib/autograd/functional_test.lua
local accel = require "accel"
local F = accel.autograd.functional

local function f64(list) return accel.tensor(list, { dtype = "f64" }) end
local function close(got, want)
  assert(accel.allclose(got, f64(want), 1e-12, 1e-12), ("got %s"):format(tostring(got)))
end
local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end

local x, w = f64 { { 0.5, -1.0 }, { 2.0, 0.25 } }, f64 { 1.5, -0.5 }
local function f(a, b) return (a * b):exp():sum(2), a:sin():matmul(b):sum() * b end
local function s(a, b) return (a * b):tanh():sum() ^ 2 + (b ^ 3):sum() end
local v = { f64 { { 1, 2 }, { 3, 4 } }, f64 { -1, 0.5 } }
local u = { f64 { 1, -2 }, f64 { 0.5, 3 } }

local y, g = F.vjp(f, { x, w }, u)
close(y[1], f(x, w):tolist())
close(g[1], { { 2.188219642792343, -0.6217472706495117 }, { -59.788445578447465, 1.2458390607260872 } })
close(g[2], { -79.13513092805599, 5.495934429937146 })
y, g = F.jvp(f, { x, w }, v)
close(y[2], select(2, f(x, w)):tolist())
close(g[1], { -0.3560818894375175, 48.55916061562306 })
close(g[2], { -9.460373784605387, 3.5501442550220483 })
local J = F.jacobian(f, { x, w })
assert(#J == 2 and #J[1] == 2)
close(J[1][2], { { 1.0585000083063374, -1.6487212707001282 }, { 40.171073846375336, 0.22062422564614886 } })
close(J[2][1], { { { 1.9745607642533387, -0.4052267294011048 }, { -0.9363303822310705, -0.7266843162829836 } },
  { { -0.6581869214177796, 0.13507557646703494 }, { 0.3121101274103568, 0.24222810542766118 } } })
local H = F.hessian(s, { x, w })
close(H[1][2], { { { 0.6801987898767485, -0.967030367240713 }, { -0.25011002334548527, 2.089895152709281 } },
  { { -0.1835952964104276, -0.015992263662441997 }, { -0.31310714545495383, 4.286560934478213 } } })
close(H[2][2], { { 8.14745528567023, -0.34366647396349365 }, { -0.3436664739634936, -5.216769757071889 } })
for _, product in ipairs { F.hvp, F.vhp } do
  y, g = product(s, { x, w }, v)
  close(y, s(x, w):item())
  close(g[1], { { -11.125687593966006, 1.2929979620366616 }, { -0.39979897052696844, 5.208299923653567 } })
  close(g[2], { -9.942524250517296, 18.046308480530925 })
end

-- Forms: one tensor in, one tensor out; a list from fn; v left out for numbers; nothing recorded, nothing accumulated.
local t = f64 { 1, 2 }:requires_grad_()
local function square(a) return a * a end
assert(F.jacobian(square, t).shape[2] == 2 and not F.jacobian(square, t).requires_grad)
close(F.jacobian(square, { t })[1], { { 2, 0 }, { 0, 4 } })
close(F.jacobian(function(a) return { a, a:sum() } end, t)[2], { 1, 1 })
local value, slope = accel.no_grad(F.vjp, function(a) return (a * a):sum() end, t)
close(value, 5)
close(slope, { 2, 4 })
close(select(2, F.jvp(square, f64 { 3 })), { 6 })
assert(t.grad == nil and not slope.requires_grad)
-- create_graph: a third derivative
local function cube(a) return (a ^ 3):sum() end
local third = accel.grad(F.hessian(cube, t, { create_graph = true }):sum(), t)
close(third, { 6, 6 })
local moved = select(2, F.jvp(square, t, accel.ones(2, { dtype = "f64" }), { create_graph = true }))
close(accel.grad(moved:sum(), t), { 2, 2 })
-- what does not depend on the inputs: zeros, or an error
close(F.jacobian(function() return f64 { 1, 2 } end, t), { { 0, 0 }, { 0, 0 } })
close(F.hessian(function(a) return a:sum() end, t), { { 0, 0 }, { 0, 0 } })
close(select(2, F.jvp(function(a) return a * 3 end, t, f64 { 1, 2 })), { 3, 6 })
fails("output 1 does not depend on the inputs, and strict = true", F.jacobian,
  function() return f64 { 1 } end, t, { strict = true })
fails("do not depend on input 2", F.vjp, function(a) return a end, { t, t }, f64 { 1, 2 }, { strict = true })
fails("v may only be left out for one output of one element", F.vjp, square, t)
fails("v[1] has shape (1), the output (2)", F.vjp, square, t, f64 { 1 })
fails("v has 2 tensors for 1 inputs", F.jvp, square, t, { t, t })
fails("fn must return one number", F.hessian, square, t)
fails("inputs must be a tensor or a list of tensors, got 3", F.jacobian, square, 3)
fails("inputs[2] must be a tensor, got 3", F.jacobian, square, { t, 3 })
fails("unknown option 'strikt'; did you mean 'strict'?", F.jacobian, square, t, { strikt = true })
