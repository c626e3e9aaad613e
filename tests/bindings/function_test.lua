-- accel.Function at its edges: second derivatives through saved results, a ctx that outlives its node, results
-- that share memory, inputs written in place (bindings/lac_function.c).
local accel = require "accel"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code and tostring(err):find(part, 1, true), tostring(err))
end
local function twice(_, d) return d * 2 end

-- A ctx kept by a backward that raised knows no node any more.
local kept
local Bad = accel.Function {
  forward = function(ctx, x)
    ctx:save_for_backward(x)
    return x * 2
  end,
  backward = function(ctx)
    kept = ctx
    assert(ctx:saved_tensors()[1]:item() == 1)
    error "boom"
  end,
}
do
  local y = Bad(accel.ones(3, { requires_grad = true })):sum()
  assert(not pcall(y.backward, y))
end
accel.collect()
fails("autograd", "only inside backward", function() kept:saved_tensors() end)

-- d/dx of d/dx exp(x)^2 = 4 exp(2x), through the saved result.
local Exp = accel.Function {
  forward = function(ctx, x)
    local y = x:exp()
    ctx:save_for_backward(y)
    return y
  end,
  backward = function(ctx, dy) return dy * ctx:saved_tensors() end,
}
local x = accel.tensor({ 1.0 }, { dtype = "f64", requires_grad = true })
local y = Exp(x)
local g = accel.grad((y * y):sum(), x, { create_graph = true })
assert(math.abs(g:item() - 2 * math.exp(2)) < 1e-12)
assert(math.abs(accel.grad(g:sum(), x):item() - 4 * math.exp(2)) < 1e-12)

-- One tensor returned twice is two results, and nothing leaks.
local Two = accel.Function {
  forward = function(ctx, a)
    ctx:save_for_backward(a)
    local r = a * 2
    return r, r
  end,
  backward = function(_, a, b) return (a + b) * 2 end,
}
local a = accel.ones(2, { requires_grad = true })
local p, q = Two(a);
(p * 3 + q * 5):sum():backward()
assert(a.grad[1]:item() == 16)

-- A leaf returned as it is stays guarded against writes, and forward may not write it.
local Id = accel.Function { forward = function(_, t) return t end, backward = twice }
local w = accel.ones(2, { requires_grad = true })
local v = Id(w)
fails("autograd", "written in place", function() v:mul_(5) end)
assert(w[1]:item() == 1)
local In = accel.Function { forward = function(_, t) return t:mul_(2) end, backward = twice }
fails("autograd", "forward wrote argument 1 in place", In, accel.ones(2, { requires_grad = true }))
