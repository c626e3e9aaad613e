-- cholesky_ex: factors multiply to what they came from, only one triangle is read, the first block without a factor is named, and a matrix of a
-- batch has the bits that it has alone.
local accel = require "accel"

local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end
accel.manual_seed(7)
for _, shape in ipairs { { 1, 1 }, { 5, 5 }, { 31, 31 }, { 33, 33 }, { 67, 67 }, { 130, 130 }, { 2, 3, 4, 4 }, { 0, 0 } } do
  local n = shape[#shape]
  local x = accel.randn(shape, { dtype = "f64" })
  x = x:matmul(x:transpose(-1, -2)) + accel.eye(n, { dtype = "f64" })
  local l, info = x:cholesky_ex()
  assert((n == 0 or info:eq(0):all():item()) and accel.equal(l, l:tril()))
  assert(most(l:matmul(l:transpose(-1, -2)) - x) <= 1e-13 * n * n, n)
  assert(accel.equal((x:tril():cholesky_ex()), l) and accel.equal((x:triu():cholesky_ex(true)), l:transpose(-1, -2)))
end

for _, n in ipairs { 3, 50 } do
  for _, at in ipairs { 1, 2, n } do
    local x = accel.eye(n)
    x[at][at] = -1
    assert(select(2, x:cholesky_ex()):item() == at)
  end
end
assert(select(2, accel.tensor({ { 1.0, 0.0 }, { 0.0, 0 / 0 } }):cholesky_ex()):item() == 2)

local batch = accel.randn(4, 50, 50)
batch = batch:matmul(batch:transpose(-1, -2)) + accel.eye(50)
local l = batch:cholesky_ex()
for i = 1, 4 do assert(accel.equal(l[i], (batch[i]:cholesky_ex()))) end
