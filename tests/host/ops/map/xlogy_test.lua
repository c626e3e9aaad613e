-- xlogy: 0 at 0 whatever the other operand is, NaN of either, gradients there, and the entropy that it is for.
local accel = require "accel"

local function list(t) return t:to("f64"):tolist() end
local function same(got, want)
  for i, w in ipairs(want) do
    local g = got[i]
    assert(g == w or (g ~= g and w ~= w) or math.abs(g - w) <= 1e-6 * math.abs(w), ("%d: %s, not %s"):format(i, g, w))
  end
end

local nan, inf = 0 / 0, math.huge
for _, dtype in ipairs { "f64", "f32" } do
  local x = accel.tensor({ 0, 0, 0, 0, 0, -0.0, 2, 2, 2, nan, -1.5 }, { dtype = dtype })
  local y = accel.tensor({ 0, -1, inf, 7, nan, 0, 0, -1, inf, 0, 3 }, { dtype = dtype })
  same(list(x:xlogy(y)), { 0, 0, 0, 0, nan, 0, -inf, nan, inf, nan, -1.5 * math.log(3) })
  assert(x:xlogy_(y).dtype == dtype and x[11]:item() < -1.6)
end
same(list(accel.xlogy(2, accel.tensor { 3.0 })), { 2 * math.log(3) })
same(list(accel.tensor({ 0, 2 }):xlogy(3)), { 0, 2 * math.log(3) }) -- integers are computed in f32
same({ accel.tensor({ 0.0, 0.0 }):xlogy(nan)[2]:item() }, { nan })

-- Gradients: by x the logarithm, but 0 where nothing happens; by other x / other, as PyTorch's.
local x = accel.tensor({ 0, 0, 0, 2, 2 }, { dtype = "f64", requires_grad = true })
local y = accel.tensor({ 0, -1, 4, 4, 0 }, { dtype = "f64", requires_grad = true })
x:xlogy(y):sum():backward()
same(list(x.grad), { 0, 0, math.log(4), math.log(4), -inf })
same(list(y.grad), { nan, 0, 0, 0.5, inf })

-- The gradient of the gradient, with a number too: d/dy of ln(y) dx.
x, y = accel.tensor({ 0, 2 }, { dtype = "f64", requires_grad = true }), accel.tensor({ 4, 4 }, { dtype = "f64", requires_grad = true })
local by_x = accel.grad({ x:xlogy(y):sum() }, { x }, { create_graph = true })[1]
by_x:sum():backward()
same(list(y.grad), { 0.25, 0.25 })
by_x = accel.grad({ x:xlogy(0):sum() }, { x }, { create_graph = true })[1]
same(list(by_x), { 0, -inf })

-- Entropies of rows of probabilities with zeros: ln 2 and 0 nats.
local p = accel.tensor { { 0.5, 0.5, 0 }, { 1, 0, 0 } }
same(list(-p:xlogy(p):sum(2)), { math.log(2), 0 })
