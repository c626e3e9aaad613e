-- accel.autograd.means: the count of a mean of cross entropy by the call that made it, behind views and casts; marks; losses without labels.
--   accel-run tests/stdlib/autograd/means_test.lua
-- tier: every change
local accel = require "accel"
local means = require "accel.autograd.means"

local x = accel.randn(4, 5, { requires_grad = true })
local head = accel.randn(5, 5, { requires_grad = true })
local target = accel.tensor { 1, -100, 2, 3 }

local function count(loss)
  local n = means.count(loss)
  return n and n:item()
end

local loss = accel.cross_entropy(x, target)
assert(count(loss) == 3 and count(loss:view(1)) == 3 and count(loss:to "f64") == 3)
assert(count(accel.linear_cross_entropy(x, head, target)) == 3)
assert(count(accel.cross_entropy(x, accel.tensor { 1, 2, 2, 3 }, { ignore_index = 2 })) == 2)
assert(count(accel.cross_entropy(x, target, { weight = accel.tensor { 1.0, 2, 3, 4, 5 } })) == 9)
assert(count(accel.nn.CrossEntropyLoss()(x, target)) == 3)
for _, other in ipairs { accel.cross_entropy(x, target, { reduction = "sum" }), x:sum(), x, accel.ones(2), loss * 2, loss:detach() } do
  assert(count(other) == nil)
end
loss:backward()
assert(count(loss) == nil, "what it saved is gone")

local none = means.over(accel.cross_entropy(x, accel.full({ 4 }, -100, { dtype = "i64" })), accel.full({ 4 }, -100, { dtype = "i64" }))
assert(none:item() == 0 and count(none) == 0)
x.grad = nil
none:backward()
assert(not x.grad:ne(0):any():item(), "gradients of no label")
assert(#means.of(none) == 1 and means.of(loss) == nil)
