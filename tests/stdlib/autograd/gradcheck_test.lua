-- gradcheck and gradgradcheck: right and wrong functions of every kind, and what the messages say.
--   accel-run tests/stdlib/autograd/gradcheck_test.lua
local accel = require "accel"
local autograd = accel.autograd
local gradcheck, gradgradcheck = autograd.gradcheck, autograd.gradgradcheck

local function fails(f, ...)
  local args, n = { ... }, select("#", ...)
  local parts = table.remove(args)
  local ok, err = pcall(f, table.unpack(args, 1, n - 1))
  assert(not ok, "no error")
  for _, part in ipairs(parts) do assert(tostring(err):find(part, 1, true), tostring(err)) end
end
local function leaf(...)
  accel.manual_seed(3)
  return accel.randn(..., { dtype = "f64", requires_grad = true })
end

-- Right ones: several inputs and outputs, numbers and strings among the arguments, a list as result, a number as input.
local a, b = leaf { 2, 3 }, leaf { 3 }
assert(gradcheck(function(x, y) return (x * y):tanh(), x:sum() * y end, { a, b }))
assert(gradcheck(function(x, k, y) return { x:exp() * k, y * 2 } end, { a, 3, b }))
assert(gradcheck(function(x) return x:sin() end, accel.tensor(0.5, { dtype = "f64", requires_grad = true })))
assert(gradcheck(accel.matmul, { leaf { 2, 3 }, leaf { 3, 2 } }))
assert(gradcheck(accel.nn.Linear(3, 2):to "f64", a))
assert(gradgradcheck(function(x, y) return (x * y):tanh(), x:sum() * y end, { a, b }))
assert(gradgradcheck(function(x) return x ^ 3 end, a, { grad_outputs = leaf { 2, 3 } }))
-- without gradients around; inputs keep their values and get no grad
local before = a:detach():clone()
assert(accel.no_grad(gradcheck, accel.exp, a))
assert(accel.equal(a, before) and a.grad == nil)
-- a strided view that is a leaf, and a function that sees its input through a closure
local strided = accel.randn({ 3, 2 }, { dtype = "f64" }):t():detach():requires_grad_()
assert(not strided:is_contiguous() and gradcheck(accel.tanh, strided))
assert(gradcheck(function() return a * a end, a))
-- by position, as PyTorch has them
assert(gradcheck(accel.exp, a, 1e-6, 1e-5, 1e-3, true, 0.0))

-- Wrong ones.
local function wrong(fields)
  fields.forward = fields.forward or function(ctx, x)
    ctx:save_for_backward(x)
    return x * x
  end
  return accel.Function(fields)
end
local Factor = wrong { name = "Factor", backward = function(ctx, d) return d * 3 * ctx:saved_tensors() end }
local two = accel.tensor({ 1.0, 2.0 }, { dtype = "f64", requires_grad = true })
fails(gradcheck, Factor, two, { "gradcheck: Jacobian mismatch for output 1 with respect to input 1,\nnumerical:",
  "[[2.0000, 0.0000],", "\nanalytical:", "[[3., 0.],\n        [0., 6.]]" })
assert(gradcheck(Factor, two, { raise_exception = false }) == false)
assert(gradcheck(Factor, two, { rtol = 0.6 }))
fails(gradcheck, function(x, y) return x, Factor(y) end, { a, two }, { "output 2 with respect to input 2" })
local n = 0
local Unsteady = wrong { backward = function(ctx, d)
  n = n + 1
  return d * (2 + n * 1e-7) * ctx:saved_tensors()
end }
fails(gradcheck, Unsteady, two, { "backward is not deterministic for output 1 with respect to input 1" })
assert(gradcheck(Unsteady, two, { nondet_tol = 1e-4 }))
local Constant = wrong { backward = function(ctx) return 2 * ctx:saved_tensors() end }
fails(gradcheck, Constant, accel.tensor({ 1.0 }, { dtype = "f64", requires_grad = true }),
  { "not multiplied by the gradient" })
fails(gradcheck, function(x) return x * 2, x:detach() * 3 end, two,
  { "output 2 does not require gradients, but it changes" })
-- first derivatives are right, second ones are not: a detached factor
local Second = wrong { backward = function(ctx, d) return d * 2 * ctx:saved_tensors():detach() end }
assert(gradcheck(Second, two))
fails(gradgradcheck, Second, two, { "gradgradcheck: Jacobian mismatch" })
local Once = wrong { backward = autograd.once_differentiable(function(ctx, d) return d * 2 * ctx:saved_tensors() end) }
assert(gradcheck(Once, two))
fails(gradgradcheck, Once, two, { "differentiated twice" })

-- Options of second derivatives: each one decides whether a function passes.
local function second(backward) return wrong { backward = function(ctx, d) return backward(d, (ctx:saved_tensors())) end } end
local function decides(fn, options)
  assert(gradgradcheck(fn, two, options))
  fails(gradgradcheck, fn, two, { "gradgradcheck: " })
end
local Nearly = second(function(d, x) return d * 2 * (x * 0.99 + x:detach() * 0.01) end)
decides(Nearly, { rtol = 0.05 })
decides(Nearly, { atol = 0.5 })
decides(Second, { grad_outputs = accel.zeros({ 2 }, { dtype = "f64", requires_grad = true }) })
assert(gradgradcheck(Second, two, { raise_exception = false }) == false)
fails(gradgradcheck, function(x) return x ^ 4 end, two, { eps = 0.5 }, { "Jacobian mismatch" })
local doubles = 0
local Jitter = accel.Function {
  forward = function(ctx, d, x)
    ctx:save_for_backward(d, x)
    return d * 2 * x
  end,
  backward = function(ctx, g)
    local d, x = ctx:saved_tensors()
    doubles = doubles + 1
    return g * 2 * x * (1 + doubles * 1e-7), g * 2 * d
  end,
}
decides(second(function(d, x) return Jitter(d, x) end), { nondet_tol = 1e-3 })
local Offset = accel.Function { -- zeros give other than zeros
  forward = function(ctx, d, x)
    ctx:save_for_backward(d, x)
    return d * 2 * x
  end,
  backward = function(ctx, g)
    local d, x = ctx:saved_tensors()
    return g * 2 * x + (g:abs():sum():item() == 0 and 1 or 0), g * 2 * d
  end,
}
decides(second(function(d, x) return Offset(d, x) end), { check_undefined_grad = false })

-- Misuse.
fails(gradcheck, 3, two, { "fn must be a function, got 3" })
fails(gradcheck, accel.exp, 3, { "inputs must be a tensor or a list" })
fails(gradcheck, accel.exp, accel.ones(2), { "no input is a floating-point tensor that requires gradients" })
fails(gradcheck, accel.exp, two * 1, { "input 1 is not a leaf; give a leaf" })
fails(gradcheck, accel.exp, accel.ones(1, { dtype = "f64" }):expand(3):detach():requires_grad_(), { "is expanded" })
fails(gradcheck, function() return 1 end, two, { "fn's result must be a tensor or a list" })
fails(gradcheck, function() return {} end, two, { "returned no floating-point tensor" })
fails(gradcheck, accel.exp, two, { epz = 1 }, { "did you mean 'eps'" })
