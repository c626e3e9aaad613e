-- accel.checkpoint: gradients and random numbers to the last bit, nesting, options, arguments, what fn may do, and the
-- messages when it does something else the second time.
--   accel-run tests/stdlib/autograd/checkpoint_test.lua
local accel = require "accel"
local nn = accel.nn
local checkpoint = accel.checkpoint

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "no error")
  assert(tostring(err):find(part, 1, true), tostring(err))
  return tostring(err)
end
local function leaf(v) return accel.tensor({ v }, { dtype = "f32", requires_grad = true }) end
local function same(a, b) return accel.equal(a, b) end

--- Loss and gradients of fn(x) for a fixed seed, and the random number that comes afterwards.
local function measure(fn, x, params)
  for _, p in ipairs(params or {}) do p.grad = nil end
  accel.manual_seed(5)
  local input = x:detach():requires_grad_()
  local loss = fn(input):sum()
  loss:backward()
  local out = { loss:detach(), input.grad }
  for _, p in ipairs(params or {}) do out[#out + 1] = p.grad end
  out[#out + 1] = accel.rand(1)
  return out
end
local function agree(what, a, b)
  assert(#a == #b, what)
  for i = 1, #a do assert(same(a[i], b[i]), ("%s: value %d differs"):format(what, i)) end
end

-- A network with dropout, in f32 and under autocast, as one checkpoint, in pieces, nested, for all options.
local net = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16),
  nn.Dropout(0.2), nn.Linear(16, 4), nn.Softmax(2))
local x, params = accel.randn(5, 6), net:parameters()
local function part(i, j)
  return function(t)
    for k = i, j do t = net[k](t) end
    return t
  end
end
local ways = {
  whole = function(t) return checkpoint(net, t) end,
  pieces = function(t) return checkpoint(part(4, 8), checkpoint(part(1, 3), t)) end,
  ["no early stop"] = function(t) return checkpoint(net, t, { early_stop = false }) end,
  ["no check"] = function(t) return checkpoint(net, t, { determinism_check = "none" }) end,
  ["use_reentrant"] = function(t) return checkpoint(net, t, { use_reentrant = false }) end,
  sequential = function(t) return accel.checkpoint_sequential(net, 3, t) end,
  ["sequential, each"] = function(t) return accel.checkpoint_sequential(net, 8, t, { early_stop = false }) end,
  ["sequential, one"] = function(t) return accel.checkpoint_sequential(net, 1, t) end,
  nested = function(t)
    return checkpoint(function(u) return part(5, 8)(checkpoint(function(v)
      return part(3, 4)(checkpoint(part(1, 2), v))
    end, u)) end, t)
  end,
  ["nested without early stop"] = function(t)
    local o = { early_stop = false }
    return checkpoint(function(u) return checkpoint(part(5, 8), checkpoint(part(1, 4), u, o), o) end, t, o)
  end,
}
for _, dtype in ipairs { "f32", "bf16" } do
  local function cast(fn)
    return function(t) return accel.autocast({ dtype = "bf16", enabled = dtype == "bf16" }, fn, t):to "f32" end
  end
  local want = measure(cast(net), x, params)
  for name, way in accel.pairs(ways) do agree(name .. " " .. dtype, measure(cast(way), x, params), want) end
end
-- autocast only inside the checkpoint's surroundings, backward outside of them or inside others
do
  local function run(other)
    local input = x:detach():requires_grad_()
    local y = accel.autocast({ dtype = "bf16" }, checkpoint, part(4, 4), part(1, 1)(input))
    local loss = y:to("f32"):sum()
    if other then accel.autocast({ dtype = "f16" }, loss.backward, loss) else loss:backward() end
    return input.grad
  end
  local input = x:detach():requires_grad_()
  accel.autocast({ dtype = "bf16" }, part(4, 4), part(1, 1)(input)):to("f32"):sum():backward()
  assert(same(run(), input.grad) and same(run(true), input.grad))
end

-- Without the state of the generator dropout draws anew: other gradients, and later numbers have moved on.
do
  local drop = nn.Dropout(0.5)
  local ones = accel.ones(1000)
  local kept = measure(function(t) return checkpoint(drop, t) end, ones)
  agree("dropout", kept, measure(drop, ones))
  local moved = measure(function(t)
    return checkpoint(function(u) return drop(u) * drop(u) end, t, { preserve_rng_state = false })
  end, ones)
  local plain = measure(function(t) return drop(t) * drop(t) end, ones)
  assert(same(moved[1], plain[1]) and not same(moved[2], plain[2]) and not same(moved[3], plain[3]))
end

-- How often fn runs, and how far the second time: not beyond what is needed.
do
  local runs, log = 0, {}
  local function fn(t)
    runs = runs + 1
    local a = t:exp()
    log[#log + 1] = "a"
    local b = a:exp()
    log[#log + 1] = "b"
    return b * 2 -- saves nothing that is needed
  end
  local t = leaf(0.5)
  local y = checkpoint(fn, t)
  assert(runs == 1)
  y:backward { retain_graph = true }
  assert(runs == 2 and table.concat(log) == "aba", table.concat(log))
  y:backward()
  assert(runs == 3 and math.abs(t.grad:item() - 4 * math.exp(math.exp(0.5)) * math.exp(0.5)) < 1e-4)
  fails("second time", function() y:backward() end)
  -- nothing to keep for: fn runs once, here and without gradients
  runs = 0
  checkpoint(fn, accel.ones(1))
  accel.no_grad(checkpoint, fn, t)
  assert(runs == 2)
  -- two that are alive at once, backward in the other order
  local p, q = leaf(0.1), leaf(0.2)
  local a, b = checkpoint(fn, p), checkpoint(fn, q)
  a:backward()
  b:backward()
  assert(math.abs(q.grad:item() - 2 * math.exp(math.exp(0.2)) * math.exp(0.2)) < 1e-5)
end

-- Arguments and results of any kind; nil among them; a table of fn's own at the end, with options beside.
do
  local t, u = leaf(2), leaf(3)
  local got
  local function fn(a, n, none, b, list, o)
    got = { n, none, list, o and o.scale, o and o.early_stop }
    return a * b:exp() * n, "text", nil, list[1] * a
  end
  local y, text, none, z = checkpoint(fn, t, 5, nil, u, { accel.ones(1) }, { scale = 7, early_stop = false })
  assert(text == "text" and none == nil and got[1] == 5 and got[2] == nil and got[4] == 7 and got[5] == nil);
  (y + z):backward()
  assert(math.abs(t.grad:item() - (5 * math.exp(3) + 1)) < 1e-4 and got[4] == 7)
  checkpoint(function(a, o)
    assert(o == nil)
    return a
  end, t, { early_stop = true })
  checkpoint(function(a, o)
    assert(o.anything)
    return a
  end, t, { anything = true })
  fails("unknown option 'preserve_rng'; did you mean 'preserve_rng_state'?", checkpoint, fn, t, { preserve_rng = false })
  fails("unknown option 'early_stopp'; did you mean 'early_stop'?", checkpoint, nn.Linear(1, 1), t, { early_stopp = true })
  assert(checkpoint(function(_, o) return o.mask end, t, { mask = 3 }) == 3, "options of fn's own pass")
  fails("fn must be a function, got a tensor; pass function and arguments separately", checkpoint, t * 2)
  fails("use_reentrant = true is not supported", checkpoint, fn, t, { use_reentrant = true })
  fails("determinism_check must be 'default' or 'none', got 'non'; did you mean 'none'", checkpoint, fn, t,
    { determinism_check = "non" })
  fails("option 'early_stop' must be a boolean, got 1", checkpoint, fn, t, { early_stop = 1 })
  fails("checkpoint: fn must be a function, got 3", checkpoint, 3, t)
  fails("segments must be a positive integer", accel.checkpoint_sequential, net, 0, x)
  fails("9 segments for 8 functions", accel.checkpoint_sequential, net, 9, x)
  fails("functions[2] must be a function", accel.checkpoint_sequential, { print, 3 }, 1, x)
end

-- Second derivatives, gradients inside fn, custom functions inside, hooks of others around.
do
  local function fn(t) return t:exp():sin() * t end
  local t = accel.tensor({ 0.3, -0.4 }, { dtype = "f64", requires_grad = true })
  assert(accel.autograd.gradcheck(function(v) return checkpoint(fn, v) end, t))
  assert(accel.autograd.gradgradcheck(function(v) return checkpoint(fn, v) end, t))
  assert(accel.autograd.gradgradcheck(function(v)
    return checkpoint(function(w) return checkpoint(fn, w:tanh()) * w end, v)
  end, t))
  -- fn itself differentiates (a penalty on gradients)
  local function inner(v)
    local y = v:tanh()
    return accel.grad((y * y:exp()):sum(), v, { create_graph = true })
  end
  local function penalty(v) return inner(v):sin():sum() end
  local want = accel.grad(penalty(t), t)
  assert(accel.allclose(accel.grad(checkpoint(penalty, t * 1), t), want))
  assert(accel.allclose(accel.grad(checkpoint(function(v) return checkpoint(penalty, v) end, t * 1), t), want))

  local Cube = accel.Function {
    name = "Cube",
    forward = function(ctx, v)
      local y = v * v * v
      ctx:save_for_backward(v, y)
      return y
    end,
    backward = function(ctx, d)
      local v = ctx:saved_tensors()
      local again, y = ctx:saved_tensors()
      assert(again == v or same(again, v))
      assert(same(y, v * v * v))
      return d * 3 * v * v
    end,
  }
  local calls = 0
  local function with_cube(v)
    calls = calls + 1
    return Cube(v:exp()):sum()
  end
  want = accel.grad(with_cube(t), t)
  calls = 0
  assert(same(accel.grad(checkpoint(with_cube, t), t), want) and calls == 2)
  assert(accel.autograd.gradgradcheck(function(v) return checkpoint(function(w) return Cube(w:exp()) end, v) end, t))

  local packs = 0
  local y = accel.autograd.graph.saved_tensors_hooks(function(v)
    packs = packs + 1
    return v
  end, function(v) return v end, function() return checkpoint(fn, t * 2) end)
  assert(packs == 1) -- the argument alone; inside, the checkpoint's own hooks count
  want = accel.grad(fn(t * 2):sum(), t)
  assert(same(accel.grad(y:sum(), t), want))
end

-- Part of the gradients; a result that is not used; hooks on parameters run once.
do
  local w, v = leaf(2), leaf(3)
  local count = 0
  w:register_hook(function() count = count + 1 end)
  local function fn(t) return (t * w):exp(), (t * v):exp() end
  local t = leaf(0.5)
  local a = checkpoint(fn, t)
  assert(accel.grad(a, v, { allow_unused = true }) == nil)
  a = checkpoint(fn, t)
  a:backward()
  assert(count == 1 and math.abs(w.grad:item() - 0.5 * math.exp(1)) < 1e-5 and v.grad == nil)
end

-- What changed meanwhile is noticed: an argument, a parameter.
do
  local w = leaf(2)
  local t = leaf(1) * 1
  local y = checkpoint(function(u) return (u * w):exp() end, t)
  accel.no_grad(function() t:add_(1) end)
  fails("checkpoint: argument 1 was changed in place", function() y:backward() end)
  t = leaf(1) * 1
  y = checkpoint(function(u) return (u * w):exp() end, t)
  accel.no_grad(function() w:add_(1) end)
  fails("changed in place", function() y:backward() end)
end

-- fn does something else the second time; errors point at the line and can be tried again.
do
  local t = leaf(1)
  local function changing(second)
    local n = 0
    return function(u)
      n = n + 1
      return n == 2 and second(u) or u:exp():exp():exp()
    end
  end
  local function backward(second, ...)
    local y = checkpoint(changing(second), t, ...)
    t.grad = nil
    local ok, err = pcall(y.backward, y)
    if not ok then y:backward() end -- the third time it is as it was
    assert(math.abs(t.grad:item() / math.exp(1 + math.exp(1) + math.exp(math.exp(1))) - 1) < 1e-5)
    return not ok and tostring(err) or nil
  end
  local err = backward(function(u) return accel.cat({ u, u }):exp():exp():exp() end)
  assert(err:find("saved tensor 1 of 3 is f32 (2) on cpu; in the forward it was f32 (1) on cpu", 1, true), err)
  assert(err:find("checkpoint_test.lua:%d+: exp: "), err)
  err = backward(function(u) return u:to("f64"):exp():exp():exp() end)
  assert(err:find("is f64 (1) on cpu; in the forward it was f32", 1, true), err)
  err = backward(function(u) return u:exp() end)
  assert(err:find("the function saved 1 tensors, in the forward 3: it must do the same every time", 1, true), err)
  err = backward(function(u) return u:exp():exp():exp():exp() end, { early_stop = false })
  assert(err:find("more tensors than the 3 of its forward", 1, true), err)
  assert(backward(function(u) return u:exp():exp():exp():exp() end) == nil)
  err = backward(function() error("the script's own", 0) end)
  assert(err == "the script's own", err)
  err = backward(function() error { code = 7 } end)
  assert(err:find "^table", err)
end

-- fn may catch the error that ends it; blocks inside are left properly.
do
  local closed = 0
  local t = leaf(0.5)
  local function fn(u)
    local _ <close> = setmetatable({}, { __close = function() closed = closed + 1 end })
    local ok, y = pcall(function() return u:exp():exp() end)
    if not ok then error(y, 0) end
    return y
  end
  checkpoint(fn, t):backward()
  assert(closed == 2 and accel.is_grad_enabled() and not accel.is_autocast_enabled())
  local function stubborn(u)
    local y = u:exp()
    local ok, z = pcall(function() return y:exp() end)
    return ok and z or y:exp()
  end
  t.grad = nil
  checkpoint(stubborn, t):backward()
  assert(math.abs(t.grad:item() - math.exp(0.5 + math.exp(0.5))) < 1e-5)
end

-- Running statistics move once.
for _, momentum in ipairs { 0.1, false } do
  local function run(recompute)
    accel.manual_seed(1)
    local norm = nn.Sequential(nn.BatchNorm1d(3, { momentum = momentum }),
      nn.InstanceNorm1d(3, { track_running_stats = true }))
    for _ = 1, 2 do
      local t = accel.randn(4, 3, 5):requires_grad_()
      local y = recompute and checkpoint(norm, t) or norm(t)
      y:sin():sum():backward()
    end
    return norm:state_dict()
  end
  local want, got = run(false), run(true)
  for key, t in pairs(want) do assert(same(t, got[key]), key) end
  assert(got["0.num_batches_tracked"]:item() == 2 and not accel.autograd.is_recomputing())
end

-- In a scope of the script, and where an inner coroutine runs fn.
do
  local t = leaf(0.5)
  local want = math.exp(0.5 + math.exp(0.5))
  local function fn(u) return u:exp():exp() end
  do
    local _ <close> = accel.scope()
    checkpoint(fn, t * 1):backward()
  end
  assert(math.abs(t.grad:item() - want) < 1e-5)
  t.grad = nil
  local y = coroutine.wrap(function() return checkpoint(fn, t) end)()
  coroutine.wrap(function() y:backward() end)()
  assert(math.abs(t.grad:item() - want) < 1e-5)
end

-- A region that is left by an error leaves nothing on.
do
  fails("oh", checkpoint, function() error "oh" end, leaf(1))
  local t = leaf(2)
  local y = t:exp()
  y:backward()
  assert(math.abs(t.grad:item() - math.exp(2)) < 1e-4)
end
accel.collect()
