-- What a ctx of accel.Function may say: mark_dirty, mark_non_differentiable, set_materialize_grads, setup_context,
-- needs_input_grad; second derivatives through a backward in Lua; once_differentiable (bindings/autograd/lac_function.c).
local accel = require "accel"

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end
local function values(t) return table.concat(t:tolist(), " ") end
local function leaf(...) return accel.tensor({ ... }, { dtype = "f64", requires_grad = true }) end
local function double(_, d) return d * 2 end

-- An argument that forward writes: the tensor itself comes back, with this call as its history.
do
  local Scale = accel.Function {
    name = "Scale",
    forward = function(ctx, x, k)
      x:mul_(k)
      ctx.k = k
      ctx:mark_dirty(x)
      return x
    end,
    backward = function(ctx, d) return d * ctx.k end,
  }
  local a = leaf(1, 2)
  local b = a * 3
  local r = Scale(b, 5)
  assert(r == b and b.grad_fn == "Scale" and values(b) == "15.0 30.0");
  (b * b):sum():backward()
  assert(values(a.grad) == "450.0 900.0") -- as PyTorch gives it
  -- twice in a row, retain_grad moves on
  a.grad = nil
  b = a * 1
  b:retain_grad()
  Scale(Scale(b, 2), 3):sum():backward()
  assert(values(a.grad) == "6.0 6.0" and values(b.grad) == "1.0 1.0")
  -- what saved the old value notices
  b = a * 3
  local y = b:exp() * b
  Scale(b, 2)
  fails("changed in place", function() y:sum():backward() end)
  -- views taken before are stale; a view and a leaf may not be written
  b = a * 3
  local view = b[1]
  Scale(b, 2)
  fails("take the view again", function() return view * 2 end)
  fails("a view: its base would keep the old history", function() Scale((a * 1):view(2, 1), 2) end)
  fails("forward wrote argument 1 in place, a leaf", Scale, a, 2)
  -- nothing to record: just written
  local plain = accel.ones(2)
  assert(Scale(plain, 4) == plain and values(plain) == "4.0 4.0" and not plain.requires_grad)
  accel.no_grad(function()
    b = a * 1
    assert(Scale(b, 2) == b)
  end)
  -- a constant that takes part gets a history
  local Add = accel.Function {
    forward = function(ctx, into, x)
      ctx:mark_dirty(into)
      return into:add_(x)
    end,
    backward = function(_, d) return d, d end,
  }
  a.grad = nil
  local sum = accel.zeros(2, { dtype = "f64" })
  Add(sum, a)
  Add(sum, a * 2)
  assert(sum.requires_grad)
  sum:sum():backward()
  assert(values(a.grad) == "3.0 3.0")
  -- unsaid, or not returned
  local Silent = accel.Function { forward = function(_, x) return x:mul_(2) end, backward = double }
  fails("in place; call ctx:mark_dirty", Silent, a * 1)
  local Kept = accel.Function {
    forward = function(ctx, x)
      ctx:mark_dirty(x)
      return x:mul_(2) * 1
    end,
    backward = double,
  }
  fails("argument 1 was marked dirty, but is not among the results", Kept, a * 1)
  assert(values(Silent(accel.ones(1))) == "2.0")
  assert(accel.autograd.gradcheck(function(x) return Scale(x * 1, 3):exp() end, leaf(0.3, 0.4)))
  assert(accel.autograd.gradgradcheck(function(x) return Scale(x * 1, 3):exp() end, leaf(0.3, 0.4)))
end

-- Results without gradient.
do
  local got
  local Sort = accel.Function {
    name = "Sort",
    forward = function(ctx, x)
      local v, i = x:sort()
      local positive = x:gt(0):to "f64"
      ctx:mark_non_differentiable(i, positive)
      ctx:save_for_backward(i)
      return v, i, positive
    end,
    backward = function(ctx, d, di, dp)
      got = { d, di, dp }
      local i = ctx:saved_tensors()
      return accel.zeros_like(d):scatter_add(1, i, d)
    end,
  }
  local x = leaf(3, -1, 2)
  local v, i, p = Sort(x)
  assert(v.requires_grad and not i.requires_grad and not p.requires_grad and p.grad_fn == nil);
  (v * accel.tensor { 1, 2, 3 }):sum():backward()
  assert(values(x.grad) == "3.0 1.0 2.0" and got[2] == nil and values(got[3]) == "0.0 0.0 0.0")
  local Same = accel.Function {
    forward = function(ctx, t)
      ctx:mark_non_differentiable(t)
      return t, t * 2
    end,
    backward = function(_, _, d) return d * 2 end,
  }
  local same, twice = Same(x)
  assert(not same.requires_grad and twice.requires_grad and values(same) == values(x))
end

-- nil instead of zeros.
do
  local seen
  local Two = accel.Function {
    forward = function(ctx, x)
      ctx:set_materialize_grads(false)
      return x * 2, x * 3
    end,
    backward = function(_, a, b)
      seen = { a, b }
      return (a and a * 2 or 0) + (b and b * 3 or 0)
    end,
  }
  local x = leaf(1)
  local _, b = Two(x)
  b:backward()
  assert(seen[1] == nil and seen[2] ~= nil and values(x.grad) == "3.0")
  -- saved, nil and other fields; which inputs need gradients
  local Linear = accel.Function {
    forward = function(ctx, w, t, bias)
      ctx:save_for_backward(w, t, nil)
      ctx.has_bias = bias ~= nil
      assert(ctx.needs_input_grad[1] and not ctx.needs_input_grad[2] and not ctx.needs_input_grad[3])
      return w * t + (bias or 0)
    end,
    backward = function(ctx, d)
      local w, t, none = ctx:saved_tensors()
      assert(none == nil and not ctx.has_bias and ctx.needs_input_grad[1])
      return d * t, ctx.needs_input_grad[2] and d * w or nil
    end,
  }
  x.grad = nil
  Linear(x, accel.tensor({ 4.0 }, { dtype = "f64" })):backward()
  assert(values(x.grad) == "4.0")
end

-- setup_context: forward is a plain function.
do
  local Exp = accel.Function {
    name = "Exp",
    forward = function(x, k) return (x * k):exp(), k end,
    setup_context = function(ctx, inputs, output)
      assert(inputs.n == 2 and output[2] == inputs[2] and not accel.is_grad_enabled())
      ctx.k = inputs[2]
      ctx:save_for_backward(output[1])
    end,
    backward = function(ctx, d) return d * ctx.k * ctx:saved_tensors() end,
  }
  local x = leaf(0.1, 0.2)
  local y, k = Exp(x, 2)
  assert(k == 2 and y.grad_fn == "Exp")
  assert(accel.autograd.gradcheck(function(t) return (Exp(t, 2)) end, x))
  assert(accel.autograd.gradgradcheck(function(t) return (Exp(t, 2)) end, x))
  local One = accel.Function {
    forward = function(t) return t * 2 end,
    setup_context = function(_, inputs, output) assert(accel.equal(output, inputs[1] * 2)) end, backward = double,
  }
  One(x):sum():backward()
  assert(values(x.grad) == "2.0 2.0")
  fails("expected function", accel.Function, { forward = print, backward = print, setup_context = 3 })
end

-- The object: callable, with apply and a name; the same under accel.autograd.
do
  local F = accel.autograd.Function { name = "Twice", forward = function(_, x) return x * 2 end, backward = double }
  assert(accel.autograd.Function == accel.Function and tostring(F) == "accel.Function Twice" and F.name == "Twice")
  assert(values(F.apply(leaf(2))) == values(F(leaf(2))))
  F.apply, F.name = nil, "other"
  assert(F(leaf(2)).grad_fn == "Twice")
  fails("expected accel.Function", getmetatable(F).__call, {}, leaf(1))
end

-- backward with gradients on: second and third derivatives; once_differentiable says that there are none.
do
  local Cube = accel.Function {
    forward = function(ctx, x)
      ctx:save_for_backward(x)
      return x * x * x
    end,
    backward = function(ctx, d)
      local x = ctx:saved_tensors()
      return d * 3 * x * x
    end,
  }
  local x = leaf(2)
  local g1 = accel.grad(Cube(x), x, { create_graph = true })
  local g2 = accel.grad(g1, x, { create_graph = true })
  local g3 = accel.grad(g2, x)
  assert(g1:item() == 12 and g2:item() == 12 and g3:item() == 6)
  local once = accel.autograd.once_differentiable
  local Once = accel.Function {
    forward = function(ctx, t)
      ctx:save_for_backward(t)
      return t * t
    end,
    backward = once(function(ctx, d)
      assert(not accel.is_grad_enabled())
      return d * 2 * ctx:saved_tensors()
    end),
  }
  assert(accel.grad(Once(x), x):item() == 4)
  local g = accel.grad(Once(x), x, { create_graph = true })
  assert(g:item() == 4 and g.requires_grad)
  fails("differentiated twice", accel.grad, g, x)
  fails("must be a function", once, 3)
end

-- ctx misused.
do
  local ctx
  local F = accel.Function {
    forward = function(c, x)
      ctx = c
      return x * 1
    end,
    backward = double,
  }
  F(leaf(1))
  for _, name in ipairs {
    "save_for_backward", "saved_tensors", "mark_dirty", "mark_non_differentiable", "set_materialize_grads",
  } do
    fails("expected ctx of an accel.Function", ctx[name], {}, true)
    fails("expected ctx of an accel.Function", ctx[name])
  end
  fails("expected tensor or nil, got integer 3 (other values: fields of ctx)", ctx.save_for_backward, ctx, 3)
  fails("expected tensor, got nil", ctx.mark_dirty, ctx, nil)
  fails("expected boolean", ctx.set_materialize_grads, ctx, 1)
  fails("only inside backward", ctx.saved_tensors, ctx)
end

-- Nothing stays.
accel.collect()
local m = accel.mem_stats()
assert(m.live_tensors == 0, ("%d tensors are left"):format(m.live_tensors))
