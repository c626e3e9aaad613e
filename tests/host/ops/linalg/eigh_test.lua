-- eigh: A = V diag(w) V^T with orthonormal V for sizes on both sides of LAPACK's, w in order; closed forms; the triangle that is read; sizes whose
-- squares are no numbers; NaN; a matrix of a batch has the bits that it has alone.
local accel = require "accel"

local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end
accel.manual_seed(3)
for _, shape in ipairs { { 1, 1 }, { 2, 2 }, { 7, 7 }, { 16, 16 }, { 17, 17 }, { 60, 60 }, { 2, 3, 5, 5 }, { 2, 20, 20 } } do
  for dtype, bar in pairs { f64 = 1e-13, f32 = 1e-5 } do
    local what, n = ("%d of %s"):format(#shape, dtype), shape[#shape]
    local x = accel.randn(shape, { dtype = dtype })
    x = x + x:transpose(-1, -2)
    local w, v = x:eigh()
    assert(most((v * w:unsqueeze(-2)):matmul(v:transpose(-1, -2)) - x) < bar * n * most(w), what)
    assert(most(v:transpose(-1, -2):matmul(v) - accel.eye(n, { dtype = dtype })) < bar * n, what)
    assert(n == 1 or (w:narrow(-1, 2, n - 1) - w:narrow(-1, 1, n - 1)):ge(0):all():item(), what)
    assert(most(x:tril():eigh() - w) == 0 and most(x:triu():eigh "U" - w) < bar * n * most(w), what)
  end
end

-- The second difference has the eigenvalues 2 - 2 cos(k pi / (n + 1)).
for _, n in ipairs { 12, 40 } do
  local a = 2 * accel.eye(n, { dtype = "f64" })
  for i = 2, n do a[i][i - 1] = -1 end
  local w = a:eigh()
  for k = 1, n do assert(math.abs(w[k]:item() - (2 - 2 * math.cos(k * math.pi / (n + 1)))) < 1e-14) end
end

for _, size in ipairs { 1e-200, 1e200 } do
  local w = (accel.tensor({ { 2.0, 1.0 }, { 1.0, 2.0 } }, { dtype = "f64" }) * size):eigh()
  assert(math.abs(w[1]:item() / size - 1) < 1e-15 and math.abs(w[2]:item() / size - 3) < 1e-15)
end
local bad, vectors = accel.full({ 3, 3 }, 0 / 0):eigh()
assert(bad:ne(bad):all():item() and vectors:ne(vectors):all():item())

for _, n in ipairs { 9, 24 } do
  local batch = accel.randn(4, n, n)
  local w, v = batch:eigh()
  for i = 1, 4 do
    local a, b = batch[i]:eigh()
    assert(accel.equal(w[i], a) and accel.equal(v[i], b))
  end
end

local ok, err = pcall(accel.eigh, accel.zeros(2, 3))
assert(not ok and tostring(err):find("needs square matrices, got shape (2, 3)", 1, true), err)
