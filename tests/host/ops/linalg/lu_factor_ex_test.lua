-- lu_factor_ex and solve_ex: the factors of every shape multiply to the rows of A in the given order, pivots are LAPACK's, singular matrices are
-- reported by position, solutions are accurate, and neither depends on the batch around a matrix.
local accel = require "accel"

local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end
accel.manual_seed(5)
for _, shape in ipairs { { 1, 1 }, { 3, 3 }, { 5, 3 }, { 3, 5 }, { 40, 33 }, { 33, 70 }, { 100, 100 }, { 2, 3, 7, 4 }, { 0, 3 } } do
  local x = accel.randn(shape, { dtype = "f64" })
  local lu, pivots, info, order = x:lu_factor_ex()
  local m, n = shape[#shape - 1], shape[#shape]
  local k = math.min(m, n)
  local low = lu:narrow(-1, 1, k):tril(-1) + accel.eye(m, k, { dtype = "f64" })
  local rows = x:gather(-2, order:unsqueeze(-1):expand(shape))
  assert(most(low:matmul(lu:narrow(-2, 1, k):triu()) - rows) < 1e-13 * math.max(m, n, 1))
  assert(low:abs():le(1):all():item() and info:eq(0):all():item(), "partial pivoting leaves no element above 1")
  assert(k == 0 or pivots:ge(1):all():item() and pivots:le(m):all():item())
end

-- Without exchanges, a zero on the diagonal is reported and the rows keep their order.
local zero = accel.tensor({ { 0.0, 1.0 }, { 1.0, 0.0 } }, { dtype = "f64" })
local _, pivots, info, order = zero:lu_factor_ex(false)
assert(info:item() == 1 and accel.equal(pivots, accel.tensor({ 1, 2 }, { dtype = "i32" })) and accel.equal(order, accel.tensor { 0, 1 }))
assert(select(3, zero:lu_factor_ex()):item() == 0)
local singular = accel.stack({ accel.eye(3), accel.ones(3, 3), accel.zeros(3, 3) }, 1)
assert(accel.equal(select(3, singular:lu_factor_ex()), accel.tensor({ 0, 2, 1 }, { dtype = "i32" })))
assert(accel.equal(select(2, singular:solve_ex(accel.ones(3, 1))), accel.tensor({ 0, 2, 1 }, { dtype = "i32" })))

for _, n in ipairs { 1, 31, 33, 64, 130 } do
  local a, b = accel.randn(n, n, { dtype = "f64" }) + n * accel.eye(n, { dtype = "f64" }), accel.randn(n, 5, { dtype = "f64" })
  assert(most(a:matmul((a:solve_ex(b))) - b) < 1e-13, n)
  local t = a:t():contiguous():t() -- by columns in memory
  assert(accel.equal((t:solve_ex(b)), (a:solve_ex(b))))
end

local batch, b = accel.randn(4, 50, 50), accel.randn(4, 50, 3)
local x, lu = batch:solve_ex(b), batch:lu_factor_ex()
for i = 1, 4 do assert(accel.equal(x[i], (batch[i]:solve_ex(b[i]))) and accel.equal(lu[i], (batch[i]:lu_factor_ex()))) end
