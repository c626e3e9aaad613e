-- svd: the factors of every shape multiply to what they came from and are orthonormal; singular values are in order, of any size; ranks
-- that are missing; batches; threads; what is refused.
local accel = require "accel"

local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end
local function orthonormal(columns, what)
  local product = columns:transpose(-1, -2):matmul(columns)
  local eye = accel.eye(columns.shape[columns.ndim], { dtype = columns.dtype })
  assert(most(product - eye) < (columns.dtype == "f64" and 1e-13 or 1e-5), what)
end
accel.manual_seed(1)
for _, shape in ipairs { { 1, 1 }, { 3, 3 }, { 5, 3 }, { 3, 5 }, { 40, 33 }, { 33, 70 }, { 1, 6 }, { 6, 1 }, { 2, 3, 7, 4 }, { 130, 90 } } do
  for dtype, bar in pairs { f64 = 1e-13, f32 = 1e-5 } do
    local x = accel.randn(shape, { dtype = dtype })
    local what = ("svd of %s (%s)"):format(table.concat(shape, " x "), dtype)
    local u, s, vh = x:svd()
    local k = math.min(shape[#shape], shape[#shape - 1])
    assert(u.shape[#shape] == k and s.shape[#shape - 1] == k and vh.shape[#shape - 1] == k and vh.shape[#shape] == shape[#shape], what)
    assert(most((u * s:unsqueeze(-2)):matmul(vh) - x) < bar * math.sqrt(shape[#shape]) * most(s), what)
    orthonormal(u, what .. ": u")
    orthonormal(vh:transpose(-1, -2), what .. ": vh")
    assert(s:ge(0):all() and (k == 1 or (s:narrow(-1, 1, k - 1) - s:narrow(-1, 2, k - 1)):ge(0):all()), what .. ": order")
  end
end

-- Closed forms: a diagonal, a rotation times a scale, a product of known factors.
local s = select(2, accel.tensor({ { 0.0, 2.0, 0.0 }, { -3.0, 0.0, 0.0 } }, { dtype = "f64" }):svd())
assert(most(s - accel.tensor({ 3.0, 2.0 }, { dtype = "f64" })) < 1e-15)
local q1, q2 = accel.randn(20, 8, { dtype = "f64" }):qr(), accel.randn(9, 8, { dtype = "f64" }):qr()
local known = accel.tensor({ 1e6, 10.0, 3.0, 1.0, 0.5, 1e-3, 1e-6, 1e-8 }, { dtype = "f64" })
local _, found = (q1 * known):matmul(q2:t()):svd()
assert(most(found:narrow(1, 1, 8) - known) < 1e-8)

-- Missing ranks: zero values, vectors that are orthonormal all the same.
for _, x in ipairs { accel.zeros(4, 3), accel.ones(5, 4), accel.tensor { { 3.0, 0.0 }, { 4.0, 0.0 } }, accel.zeros(2, 3) } do
  local u, values, vh = x:svd()
  orthonormal(u, "u of a missing rank")
  orthonormal(vh:t(), "vh of a missing rank")
  assert(most((u * values):matmul(vh) - x) < 1e-6)
end

-- Sizes whose squares are no numbers, other strides, nothing at all, NaN.
for _, size in ipairs { 1e-200, 1e200 } do
  local values = select(2, (accel.tensor({ { 1.0, 0.0 }, { 0.0, 2.0 } }, { dtype = "f64" }) * size):svd())
  assert(values[1]:item() == 2 * size and values[2]:item() == size, size)
end
local x = accel.randn(6, 4, { dtype = "f64" })
assert(most(select(2, x:t():svd()) - select(2, x:svd())) < 1e-14)
local u, none, vh = accel.zeros(0, 3):svd()
assert(u:numel() == 0 and none:numel() == 0 and vh:numel() == 0)
local bad = select(2, accel.tensor({ { 1.0, 0 / 0 }, { 0.0, 1.0 } }):svd())
assert(bad:ne(bad):all())

-- A matrix of a batch has the bits that it has alone.
local batch = accel.randn(5, 30, 20)
for i = 1, 5 do assert(most(select(2, batch:svd())[i] - select(2, batch[i]:svd())) == 0) end

local function fails(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end
fails("needs a float tensor", accel.svd, accel.ones(2, 2, { dtype = "i64" }))
fails("needs a matrix", accel.svd, accel.ones(3))
