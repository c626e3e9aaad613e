-- accel.linalg beyond the single calls of reference/calls_linalg: second derivatives against differences, gradients where PyTorch's formulas have a
-- special case, errors that name a matrix of a batch, and a PCA on data of known directions.
local accel = require "accel"
local L = accel.linalg
accel.manual_seed(11)
local function real(...) return accel.randn({ ... }, { dtype = "f64" }) end
local function mT(x) return x:transpose(-1, -2) end
local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end

-- Second derivatives of everything that is composed here.
local function definite(x) return x:matmul(mT(x)) + 2 * accel.eye(x.shape[x.ndim], { dtype = "f64" }) end
local second = {
  det = { L.det, real(3, 3) }, slogdet = { function(x) return (select(2, L.slogdet(x))) end, real(2, 3, 3) },
  inv = { L.inv, real(3, 3) }, solve = { L.solve, real(3, 3), real(3, 2) },
  ["pinv, tall"] = { L.pinv, real(4, 2) }, ["pinv, wide"] = { L.pinv, real(2, 3) },
  cholesky = { function(x) return L.cholesky(definite(x)) end, real(3, 3) },
  cholesky_solve = { function(x, b) return L.cholesky_solve(b, L.cholesky(definite(x))) end, real(2, 2), real(2, 1) },
  lu = { function(x) return select(2, L.lu(x)) end, real(3, 3) },
  lu_solve = { function(x, b)
    local LU, pivots = L.lu_factor(x)
    return L.lu_solve(LU, pivots, b, { adjoint = true })
  end, real(3, 3), real(3, 2) },
  eigvalsh = { function(x) return L.eigvalsh(x + mT(x)) end, real(3, 3) },
  svdvals = { L.svdvals, real(3, 2) },
  lstsq = { function(a, b) return (L.lstsq(a, b)) end, real(4, 2), real(4, 2) },
  matrix_exp = { L.matrix_exp, real(2, 2) }, matrix_power = { function(x) return L.matrix_power(x, -2) end, real(2, 2) },
  matrix_norm = { function(x) return L.matrix_norm(x, "nuc") end, real(3, 2) },
  householder_product = { L.householder_product, real(3, 2), real(2) },
  matrix_sqrth = { function(x) return L.matrix_sqrth(definite(x)) end, real(2, 2) },
  polar = { function(x) return L.polar(x) end, real(3, 2) },
}
for name, row in pairs(second) do
  local inputs = {}
  for i = 2, #row do inputs[i - 1] = row[i]:requires_grad_() end
  local ok, err = pcall(accel.autograd.gradgradcheck, row[1], inputs, { atol = 1e-3, rtol = 1e-3 })
  assert(ok and err, name .. ": " .. tostring(err))
end

-- The gradient of a determinant that is zero: the cofactors.
local flat = accel.tensor({ { 1.0, 2.0, 3.0 }, { 4.0, 5.0, 6.0 }, { 5.0, 7.0, 9.0 } }, { dtype = "f64", requires_grad = true })
local both = accel.stack({ flat, accel.zeros(3, 3, { dtype = "f64" }), accel.eye(3, { dtype = "f64" }) }, 1)
L.det(both):sum():backward()
local want = accel.tensor({ { 3.0, -6.0, 3.0 }, { 3.0, -6.0, 3.0 }, { -3.0, 6.0, -3.0 } }, { dtype = "f64" })
assert(most(flat.grad - want) < 1e-13, tostring(flat.grad))
flat.grad = nil
L.det(mT(flat)):backward() -- whose last pivot is zero
assert(most(flat.grad - want) < 1e-13, tostring(flat.grad))
-- A pseudo-inverse keeps its rank: the derivative along the missing direction does not enter.
local low = (real(4, 2):matmul(real(2, 3))):detach():requires_grad_()
local P = L.pinv(low, { rtol = 1e-10 })
P:sum():backward()
local e = 1e-6 * low.grad / low.grad:norm()
e = low:detach():matmul(P:detach()):matmul(e):matmul(P:detach()):matmul(low:detach()) -- a change within the rank
local there = (L.pinv(low:detach() + e, { rtol = 1e-4 }):sum() - P:sum()):item()
assert(math.abs(there - (low.grad * e):sum():item()) < 1e-4 * math.abs(there))

local function fails(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), tostring(err))
end
local batch = accel.eye(3):expand(2, 2, 3, 3):clone()
batch[2][1]:zero_()
fails("linalg.inv: matrix [2, 1] of the batch is singular: element 1 of the diagonal of U is zero", L.inv, batch)
batch[2][1][3][3] = -1
batch[2][1][1][1], batch[2][1][2][2] = 1, 1
fails("linalg.cholesky: matrix [2, 1] of the batch is not positive definite: its leading block of order 3", L.cholesky, batch)
fails("linalg.solve: the matrix is singular", L.solve, accel.zeros(2, 2), accel.ones(2))
fails("linalg.solve: A is of size 2 and does not fit B of shape (3)", L.solve, accel.ones(2, 2), accel.ones(3))
fails('linalg.inv: expected a real float tensor, got i64; convert it by x:to "f32"', L.inv, accel.tensor { { 1 } })
fails("linalg.svd: the input contains NaN", L.svd, accel.full({ 2, 2 }, 0 / 0))
fails("linalg.det: A must be square, or a batch of square matrices, got shape (2, 3)", L.det, accel.zeros(2, 3))
fails("upper must be true or false, got nil", L.solve_triangular, accel.eye(2), accel.eye(2))
fails("unknown option 'fullmatrices'; did you mean 'full_matrices'?", L.svd, accel.eye(2), { fullmatrices = false })
fails("driver must be gels, gelsy, gelsd or gelss", L.lstsq, accel.eye(2), accel.eye(2), { driver = "x" })
fails("pivots must lie between 1 and 2, got 3", L.lu_solve, accel.eye(2), accel.tensor({ 3, 2 }, { dtype = "i32" }), accel.eye(2))

-- Batches of nothing, and the meta device, which knows shapes.
for _, f in ipairs { L.det, L.inv, L.matrix_exp, L.pinv, L.svdvals, L.eigvalsh, L.cholesky } do
  assert(f(accel.zeros(0, 2, 2)).shape[1] == 0)
  assert(f(accel.zeros(3, 2, 2, { device = "meta" })).shape[1] == 3)
end

-- A PCA: points that vary by 3 along one direction of 20 and by 1 along another one, seen through svd, pca_lowrank and eigh of the covariance.
local n, d = 400, 20
local q = L.qr(real(d, 2))
local x = (real(n, 2) * accel.tensor({ 3.0, 1.0 }, { dtype = "f64" })):matmul(mT(q)) + 0.01 * real(n, d) + 5
local centred = x - x:mean { dim = 1, keepdim = true }
local _, s, vh = L.svd(centred, { full_matrices = false })
local w, v = L.eigh(mT(centred):matmul(centred) / (n - 1))
local U, S, V = accel.pca_lowrank(x, { q = 2, niter = 4 })
for i = 1, 2 do
  assert(math.abs(vh[i]:dot(q:select(2, i)):item()) > 0.99)
  assert(math.abs(v:select(2, d + 1 - i):dot(vh[i]):item()) > 1 - 1e-10 and math.abs(w[d + 1 - i]:item() - (s[i] ^ 2):item() / (n - 1)) < 1e-10)
  assert(math.abs(S[i]:item() / s[i]:item() - 1) < 1e-6 and math.abs(V:select(2, i):dot(vh[i]):item()) > 1 - 1e-6)
end
assert(most(U:matmul(accel.diag(S)):matmul(mT(V)) - centred) < 0.2)
