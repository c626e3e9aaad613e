-- accel.Function at its edges: second derivatives through saved results, a ctx that outlives its node, results
-- that share memory, inputs written in place (bindings/autograd/lac_function.c).
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

-- Gradients as PyTorch takes them: nil for arguments that there are not, and what broadcasting made larger is summed.
do
  local More = accel.Function {
    forward = function(_, t) return t:expand(2, 3, 4):clone() end,
    backward = function(_, d) return d * 2, nil, nil end,
  }
  for _, shape in ipairs { { 1 }, { 4 }, { 3, 1 }, { 1, 3, 1 } } do
    local t = accel.ones(shape, { requires_grad = true })
    More(t):sum():backward()
    local per = 24 // t:numel() * 2
    assert(table.concat(t.grad.shape, ",") == table.concat(shape, ",") and t.grad:eq(per):all():item())
  end
  local t = accel.full({ 3 }, 2.0, { requires_grad = true })
  local Square = accel.Function {
    forward = function(ctx, s)
      ctx:save_for_backward(s)
      return s * s
    end,
    backward = function(ctx, d) return (d * 2 * ctx:saved_tensors()):expand(5, 3) end,
  }
  local g = accel.grad(Square(t):sum(), t, { create_graph = true })
  assert(accel.grad(g:sum(), t):eq(10):all():item(), "the sum has a gradient of its own: 5 rows of 2")
  local Wrong = accel.Function { forward = function(_, s) return s * 1 end, backward = function(_, d)
    return accel.ones(3, 2) * d:sum()
  end }
  fails("shape", "has shape (3, 2), the input (3)", function() Wrong(t):sum():backward() end)
  local Much = accel.Function { forward = function(_, s) return s * 1 end, backward = function(_, d) return d, d end }
  fails("autograd", "2 gradients for 1 argument", function() Much(t):sum():backward() end)
end

-- The traceback of an error in forward or backward shows the lines that raised it.
do
  local function inner(t) return t:matmul(accel.ones(7, 7)) end
  local function outer(t)
    local r = inner(t)
    return r
  end
  local Fwd = accel.Function { forward = function(_, t) return (outer(t)) end, backward = twice }
  local Back = accel.Function { forward = function(_, t) return t * 1 end, backward = function(_, d) return (outer(d)) end }
  local t = accel.ones(2, 3, { requires_grad = true })
  local y = Back(t):sum()
  local none
  local Fail = accel.Function { forward = function() return none.field end, backward = twice }
  for _, f in ipairs { function() Fwd(t) end, function() y:backward() end } do
    local _, text = xpcall(f, accel.traceback)
    assert(text:find "stack traceback:.-in .-inner.-in .-outer", text)
  end
  local grad = accel.is_grad_enabled()
  local _, err = pcall(Fail, t)
  assert(type(err) == "string" and err:find "attempt to index", err)
  assert(accel.is_grad_enabled() == grad)
end

do -- complex results: saved ones have their history in a second derivative, and zeros stand for a gradient that did not come
  local Square = accel.Function {
    name = "ComplexSquare",
    forward = function(ctx, a)
      local y = accel.complex(a, a * a)
      local other = y * 2
      ctx:save_for_backward(y)
      return y, other
    end,
    backward = function(ctx, g, h)
      local y = ctx:saved_tensors()
      g = g + h * 2 -- h: no loss needs it
      return g:real() + 2 * g:imag() * y:real()
    end,
  }
  local x = accel.tensor({ 1.0, -2.0 }, { dtype = "f64", requires_grad = true })
  assert(accel.autograd.gradgradcheck(function(a)
    local y = Square(a)
    return (y * y * y):real():sum()
  end, { x }))
end
