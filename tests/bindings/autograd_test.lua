-- Gradients from Lua: backward, grad, modes, hooks, custom functions: bindings/autograd/lac_autograd.c,
-- bindings/autograd/lac_function.c.
local accel = require "accel"

local function fails(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok, "expected an error with '" .. part .. "'")
  assert(type(err) == "table" and err.code == code and tostring(err):find(part, 1, true),
    tostring(type(err) == "table" and err.code) .. ": " .. tostring(err))
  return err
end

local function values(t) return table.concat(t:tolist(), " ") end

-- d/dx x^3 = 3 x^2, accumulated.
local x = accel.tensor({ 1.0, 2.0 }, { requires_grad = true })
local y = (x * x * x):sum()
y:backward { retain_graph = true }
assert(values(x.grad) == "3.0 12.0")
y:backward()
assert(values(x.grad) == "6.0 24.0")
fails("autograd", "retain_graph", function() y:backward() end)
x.grad = nil
local z = x * 2
z:backward(accel.tensor { 1.0, 10.0 })
assert(values(x.grad) == "2.0 20.0")
fails("autograd", "", function() (x * 2):backward() end)
x.grad = nil
accel.backward({ x:sum(), (x * x):sum() }, { accel.tensor(1.0), accel.tensor(2.0) })
assert(values(x.grad) == "5.0 9.0")
x.grad = nil
local a, b = accel.ones(1, { requires_grad = true }), accel.ones(1, { requires_grad = true });
(a * b * 3):backward { inputs = { a } }
assert(a.grad:item() == 3 and b.grad == nil)

-- accel.grad leaves .grad alone; second derivatives; unused inputs.
local g = accel.grad((x * x * x):sum(), x, { create_graph = true })
assert(values(g) == "3.0 12.0" and values(accel.grad(g:sum(), x)) == "6.0 12.0" and x.grad == nil)
local list = accel.grad({ a * b }, { a, b, x }, { allow_unused = true })
assert(list[1]:item() == 1 and list[2]:item() == 1 and list[3] == nil)
fails("autograd", "", accel.grad, a * b, x)
list = accel.grad({ x }, { x }, { grad_outputs = { accel.tensor { 5.0, 6.0 } } })
assert(values(list[1]) == "5.0 6.0")
fails("invalid_argument", "did you mean 'retain_graph'", accel.grad, a, a, { retain_grap = true })

-- Modes end with their block, by error too, and nest.
assert(accel.is_grad_enabled())
do
  local _ <close> = accel.no_grad()
  assert(not accel.is_grad_enabled() and not (x * 2).requires_grad)
  do
    local _ <close> = accel.enable_grad()
    assert((x * 2).requires_grad)
  end
  assert(not accel.is_grad_enabled())
end
assert(accel.is_grad_enabled())
assert(select("#", accel.no_grad(function(...) return ... end, 1, nil, nil)) == 3)
assert(not pcall(accel.no_grad, function() error("out") end) and accel.is_grad_enabled())
assert(accel.set_grad_enabled(false, accel.is_grad_enabled) == false)
local co = coroutine.wrap(function() return accel.no_grad(function() coroutine.yield(1) return 2 end) end)
assert(co() == 1 and co() == 2 and accel.is_grad_enabled())

-- detach, retain_grad, requires_grad_.
local d = (x * 2):detach()
assert(not d.requires_grad and d.is_leaf and d.grad_fn == nil)
y = x * 2
assert(y.grad_fn == "mul" and not y.is_leaf)
y:retain_grad();
(y * y):sum():backward()
assert(values(y.grad) == "4.0 8.0")
fails("autograd", "", function() y:requires_grad_(false) end)
x.grad = nil

-- Hooks: see, replace, remove; errors keep their own value and leave the graph engine usable.
local seen
local handle = x:register_hook(function(grad) seen = grad return grad * 10 end);
(x * 2):sum():backward()
assert(values(seen) == "2.0 2.0" and values(x.grad) == "20.0 20.0")
handle:remove()
handle:remove()
x.grad = nil;
(x * 2):sum():backward()
assert(values(x.grad) == "2.0 2.0")
local token = setmetatable({}, { __tostring = function() return "token" end })
handle = x:register_hook(function() error(token) end)
local ok, err = pcall(function() (x * 2):sum():backward() end)
assert(not ok and rawequal(err, token))
handle:remove()
handle = x:register_hook(function() return 5 end)
fails("autograd", "must return a tensor or nothing", function() (x * 2):sum():backward() end)
handle:remove()
handle = x:register_hook(function() error("in the hook") end)
err = fails("callback", "in the hook", function() (x * 2):sum():backward() end)
assert(err.traceback:find("autograd_test.lua", 1, true))
handle:remove()
x.grad = nil
local inner
handle = x:register_hook(function()
  assert(not accel.is_grad_enabled())
  inner = accel.enable_grad(function() return accel.grad((b * b):sum(), b) end)
end);
(x * 3):sum():backward()
assert(values(inner) == "2.0" and values(x.grad) == "3.0 3.0")
handle:remove()
fails("autograd", "requires gradients", function() accel.ones(1):register_hook(print) end)
fails("autograd", "leaves", function() (x * 2):register_post_accumulate_grad_hook(print) end)
fails("invalid_argument", "expected function", function() x:register_hook(3) end)

-- A hook may release what backward is working on.
y = (x * 2):sum()
handle = x:register_hook(function() y:release() end)
y:backward()
handle:remove()

-- Custom functions.
local freed = setmetatable({}, { __mode = "v" })
local Cube = accel.Function {
  name = "Cube",
  forward = function(ctx, t, scale)
    assert(not accel.is_grad_enabled() and ctx.needs_input_grad[1] and not ctx.needs_input_grad[2])
    ctx.scale = scale
    ctx:save_for_backward(t, nil)
    return t * t * t * scale
  end,
  backward = function(ctx, dy)
    local t, none = ctx:saved_tensors()
    assert(none == nil)
    freed.t = t
    return dy * 3 * t * t * ctx.scale
  end,
}
x.grad = nil
y = Cube(x, 2)
assert(y.grad_fn == "Cube" and values(y) == "2.0 16.0")
y:sum():backward()
assert(values(x.grad) == "6.0 24.0")
fails("autograd", "second time", function() y:sum():backward() end)
-- numbers by finite differences, through a chain
local function f(v) return Cube(v:tanh(), 0.5):sum() end
local p = accel.tensor({ 0.3, -0.7 }, { dtype = "f64", requires_grad = true })
local grad = accel.grad(f(p), p):tolist()
for i = 1, 2 do
  local h = 1e-6
  local up, down = p:detach():clone(), p:detach():clone()
  up[i] = up[i] + h
  down[i] = down[i] - h
  up:requires_grad_()
  down:requires_grad_()
  local numeric = (f(up):item() - f(down):item()) / (2 * h)
  assert(math.abs(numeric - grad[i]) < 1e-8)
end
-- several results, one without a gradient: zeros come
local Two = accel.Function {
  forward = function(_, t) return t * 2, t * 3, "text" end,
  backward = function(_, da, db)
    assert(values(db) == "0.0 0.0")
    return da * 2
  end,
}
x.grad = nil
local r1, r2, r3 = Two(x)
assert(r2.requires_grad and r3 == "text")
r1:sum():backward()
assert(values(x.grad) == "2.0 2.0")
-- a result that is an input gets a life of its own
local Same = accel.Function { forward = function(_, t) return t end,
  backward = function(_, dy) return dy * 7 end }
x.grad = nil
y = Same(x)
assert(y ~= x and x.is_leaf)
y:sum():backward()
assert(values(x.grad) == "7.0 7.0")
-- saved results do not keep themselves alive, changes in place are noticed
local Exp = accel.Function {
  forward = function(ctx, t)
    local out = t:exp()
    ctx:save_for_backward(out)
    return out
  end,
  backward = function(ctx, dy) return dy * ctx:saved_tensors() end,
}
y = Exp(x)
y:sum():backward()
y = Exp(x)
accel.no_grad(function() y:add_(1) end)
fails("modified_in_place", "changed in place", function() y:sum():backward() end)
-- misuse
fails("autograd", "2 gradients for 1 arguments", function()
  accel.Function { forward = function(_, t) return t * 1 end, backward = function(_, dy) return dy,
    dy end }(x):sum():backward()
end)
fails("autograd", "returned number", function()
  accel.Function { forward = function(_, t) return t * 1 end,
    backward = function() return 1 end }(x):sum():backward()
end)
fails("invalid_argument", "expected function", accel.Function, { forward = print })
fails("invalid_argument", "did you mean 'backward'", accel.Function, { forward = print, backwrd = print })
assert(not pcall(Cube, "no tensor"))
-- without gradients nothing is recorded
assert(accel.no_grad(Same, x).requires_grad == false)

-- Nothing is left: handles, bytes, callbacks.
-- luacheck: push ignore
x, y, z, a, b, d, g, p, list, seen, inner, r1, r2, r3, handle, err, grad = nil
-- luacheck: pop
accel.collect()
assert(accel.live() == 0, accel.live())
assert(accel.mem_stats().live_bytes == 0 and accel.mem_stats().live_tensors == 0,
  accel.inspect(accel.mem_stats()))
