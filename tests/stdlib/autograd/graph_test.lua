-- accel.autograd.graph.saved_tensors_hooks: half the bytes, values of any kind, when they are freed, custom
-- functions, wrong answers, errors, coroutines, hooks that misbehave.
--   accel-run tests/stdlib/autograd/graph_test.lua
local accel = require "accel"
local hooks = accel.autograd.graph.saved_tensors_hooks

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end
local function id(t) return t end
local function leaf(...) return accel.tensor({ ... }, { dtype = "f32", requires_grad = true }) end

-- A block, a function; packed values are whatever the script likes.
do
  local x, store, n = leaf(1, 2, 3), {}, 0
  local function pack(t)
    assert(not accel.is_grad_enabled() and not t.requires_grad)
    n = n + 1
    store[n] = t:tolist()
    return n
  end
  local function unpack(k) return accel.tensor(store[k], { dtype = "f32" }) end
  local y
  do
    local _ <close> = hooks(pack, unpack)
    y = (x * x):exp()
  end
  assert(n == 3)
  assert((x * x).requires_grad and n == 3)
  y:sum():backward()
  for i = 1, 3 do assert(math.abs(x.grad[i]:item() / (2 * i * math.exp(i * i)) - 1) < 1e-6) end
  assert(hooks(pack, unpack, function(a, b) return a + b end, 1, 2) == 3)
  -- nil is a value, too
  x.grad = nil
  hooks(function() return nil end, function(v)
    assert(v == nil)
    return accel.tensor({ 1.0, 2, 3 })
  end, function() return (x * x):sum() end):backward()
  assert(accel.equal(x.grad, accel.tensor { 2.0, 4, 6 }))
end

-- What is packed is all that is kept; it goes as backward consumes it, and with the graph.
do
  accel.collect()
  local x = accel.ones(1000, { requires_grad = true })
  local function make()
    return hooks(function(t) return t:to "f16" end, function(h) return h:to "f32" end,
      function() return x:exp():sum() end)
  end
  local before = accel.mem_stats().live_bytes
  local y = make()
  accel.collect()
  local kept = accel.mem_stats().live_bytes - before
  assert(kept >= 2000 and kept < 4000, kept)
  y:backward()
  accel.collect()
  assert(accel.mem_stats().live_bytes - before < 4000 + 1000) -- the gradient
  x.grad, y = nil, nil
  y = make()
  y = nil
  accel.collect()
  assert(y == nil and accel.mem_stats().live_bytes <= before)
end

-- Leaves keep their place in the graph, second derivatives too; a custom function's save_for_backward is packed.
do
  local x = accel.tensor({ 0.5, -0.2 }, { dtype = "f64", requires_grad = true })
  local function copied(f)
    return function(...) return hooks(function(t) return t:clone() end, id, f, ...) end
  end
  local n = 0
  local Sq = accel.Function {
    forward = function(ctx, t)
      local e = t:exp()
      ctx:save_for_backward(t, e)
      return e
    end,
    backward = function(ctx, d)
      n = n + 1
      local t, e = ctx:saved_tensors()
      assert(accel.equal(e, t:exp()))
      return d * e
    end,
  }
  for _, f in ipairs { function(t) return t * t * t end, function(t) return t:exp() * t end, Sq,
    function(t) return accel.cat { t, t * 2 } * accel.stack({ t, t }):reshape(-1) end,
    function(t) return (t:clone():mul_(t) * t):tanh_() end } do
    assert(accel.autograd.gradcheck(copied(f), x))
    assert(accel.autograd.gradgradcheck(copied(f), x))
  end
  assert(n > 0)
end

-- Wrong hooks: an error names what happened; the op is as if it had not run.
do
  local x = leaf(1, 2)
  local function y_of(pack, unpack) return hooks(pack, unpack, function() return x:exp():sum() end) end
  fails("no place", y_of, function() error "no place" end, id)
  fails("changed the tensor", y_of, function(t) return t:zero_() end, id)
  fails("lost", function() y_of(id, function() error "lost" end):backward() end)
  fails("unpack must return the tensor that pack was given, got nil",
    function() y_of(id, function() end):backward() end)
  fails("was unpacked as f64 (2) on cpu, but it was f32 (2) on cpu",
    function() y_of(id, function(t) return t:to "f64" end):backward() end)
  fails("was unpacked as f32 () on cpu", function() y_of(id, accel.sum):backward() end)
  fails("expected function", hooks, 1, id)
  fails("expected function", hooks, id)
  x.grad = nil
  x:exp():sum():backward()
  assert(math.abs(x.grad[1]:item() - math.exp(1)) < 1e-5)
end

-- A hook may release what the call works on, collect, start a backward of its own through the same graph.
do
  local x = leaf(1, 2)
  local y = x * 1
  local z = hooks(function(t)
    y:release()
    accel.collect()
    return t:clone()
  end, function(t)
    accel.collect()
    return t
  end, function() return (y * y):sum() end)
  z:backward()
  assert(accel.equal(x.grad, accel.tensor { 2.0, 4 }))
  x.grad = nil
  local busy, loss = false, nil
  loss = hooks(id, function(t)
    if not busy then
      busy = true
      loss:backward()
    end
    return t
  end, function() return x:exp():sum() end)
  loss:backward()
  assert(math.abs(x.grad[1]:item() - 2 * math.exp(1)) < 1e-4)
end

-- In a coroutine; forgotten without close, they end when they are collected.
do
  local x, n = leaf(3), 0
  local function count(t)
    n = n + 1
    return t
  end
  local y = coroutine.wrap(function() return hooks(count, id, function() return x:exp() end) end)()
  coroutine.wrap(function() y:backward() end)()
  assert(n == 1)
end
accel.collect()
