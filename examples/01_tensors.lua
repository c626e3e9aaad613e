--- Tensors and gradients in one page:   accel-run examples/01_tensors.lua
---
--- Positions and dimensions count from 1, as in Lua. Values that name things (labels) count from 0, as in files.
local accel = require "accel"

-- Making and indexing. t[i] is a view: writing to it writes to t.
local t = accel.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
t[2][3] = 60
print(t, t.shape[1], t.dtype)
print("sum over dimension 2:", t:sum(2))

-- Parts: one entry per dimension, {first, last} with both ends, {} for all, masks and tensors of row numbers (from 0).
local columns = t[{ {}, { 1, 3, 2 } }]
print("columns 1 and 3:", columns, "last column:", t[{ {}, -1 }])
t[t:gt(50)] = 6
t[{ 1, { 2, 3 } }] = accel.tensor { 20, 30 }
print("rows 2, 1, 2:", t[accel.tensor { 1, 0, 1 }])

-- Arithmetic broadcasts. Comparisons are methods, since Lua converts == to a boolean.
local x = accel.linspace(-1, 1, 5)
print("x^2 where x > 0:", accel.where(x:gt(0), x ^ 2, 0))

-- Gradients: a quadratic whose minimum gradient descent finds.
local target = accel.tensor { 3.0, -2.0 }
local w = accel.zeros(2, { requires_grad = true })
for _ = 1, 60 do
  local loss = ((w - target) ^ 2):sum()
  loss:backward()
  do
    local _ <close> = accel.no_grad()
    w:sub_(w.grad * 0.1)
  end
  w.grad = nil
end
print("minimum found at", w)

-- Second derivatives: d/dx of d(x^3)/dx is 6x.
local v = accel.tensor({ 2.0 }, { requires_grad = true })
local first = accel.grad({ (v ^ 3):sum() }, { v }, { create_graph = true })[1]
local second = accel.grad({ first:sum() }, { v })[1]
print("derivatives of x^3 at 2:", first:item(), second:item())
