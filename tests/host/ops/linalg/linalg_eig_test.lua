-- linalg_eig: A V = V diag(w) with columns of length 1, of real and complex matrices, strided ones and batches; closed forms; NaN; the bits of a
-- matrix alone; second derivatives of eigenvalues; losses that depend on the phases of vectors. Complex matrices of linalg: what is A again.
local accel = require "accel"
local says = dofile((arg[0]:match "^.*/" or "") .. "../../../support/ranks.lua").fails
local L = accel.linalg
if not pcall(L.eig, accel.ones(1, 1)) then
  print "skip: the system has no LAPACK"
  os.exit(77, true)
end

local function most(t) return t:numel() > 0 and t:abs():max():item() or 0 end
local function mH(x) return x:transpose(-1, -2):conj() end
local function real(...) return accel.randn({ ... }, { dtype = "f64" }) end
local function complex(...) return accel.complex(real(...), real(...)) end

accel.manual_seed(3)
for _, shape in ipairs { { 1, 1 }, { 2, 2 }, { 7, 7 }, { 40, 40 }, { 2, 3, 5, 5 }, { 0, 3, 3 }, { 0, 0 } } do
  for kind, make in pairs { real = real, complex = complex } do
    local x, what = make(table.unpack(shape)), ("%s %d"):format(kind, shape[#shape])
    for _, a in ipairs { x, x:transpose(-1, -2) } do
      local w, v = L.eig(a)
      assert(w.dtype == "c128" and v.dtype == "c128")
      local wide = a:is_complex() and a or accel.complex(a, accel.zeros_like(a))
      assert(most(wide:matmul(v) - v * w:unsqueeze(-2)) < 1e-12 * math.max(1, most(w)), what)
      assert(a:numel() == 0 or most(v:abs():square():sum { dim = -2 } - 1) < 1e-13, what)
      assert(a:numel() == 0 or most(w:sum(-1) - wide:diagonal(0, -2, -1):sum(-1)) < 1e-11 * shape[#shape], what)
    end
  end
end
local w32 = L.eigvals(real(4, 4):to "f32")
assert(w32.dtype == "c64")

-- The eigenvalues of a cyclic shift are the roots of unity.
for _, n in ipairs { 3, 8, 33 } do
  local shift = accel.eye(n, { dtype = "f64" }):roll(1, 1)
  local w = L.eigvals(shift)
  assert(most(w:abs() - 1) < 1e-13)
  local angles = (w:angle() * n / (2 * math.pi)):sort()
  assert(most(angles - angles:round()) < 1e-11 * n and most(angles:round():unique() - angles:round()) == 0)
end

says("contains NaN or infinity", L.eig, accel.full({ 3, 3 }, 0 / 0))
says("must be square", L.eig, accel.ones(2, 3))
says("expected a float or complex tensor", L.eigvals, accel.ones(2, 2, { dtype = "i64" }))
local batch = complex(3, 9, 9)
local all = L.eigvals(batch)
for i = 1, 3 do assert(accel.equal(all[i]:view_as_real(), L.eigvals(batch[i]):view_as_real())) end
assert(L.eigvals(accel.ones(2, 4, 4, { device = "meta" })).shape == { 2, 4 })

do -- the gradients of both orders
  local x = real(3, 3):requires_grad_()
  assert(accel.autograd.gradgradcheck(function(a)
    local w = L.eigvals(a)
    return (w * w * w):real():sum() + w:abs():sum()
  end, { x }, { atol = 1e-3, rtol = 1e-3 }))
  local _, v = L.eig(x)
  local loss = v:real():sum()
  says("the loss depends on the phases of the vectors", loss.backward, loss)
end

-- complex matrices: factors give the matrix again, and inverses the identity
local a = complex(2, 4, 4)
local eye = accel.eye(4, { dtype = "f64" })
assert(most(L.inv(a):matmul(a) - eye) < 1e-12)
local q, r = L.qr(a)
assert(most(q:matmul(r) - a) < 1e-13 and most(mH(q):matmul(q) - eye) < 1e-13 and most(r:tril(-1)) == 0 and most(r:diagonal(0, -2, -1):imag()) < 1e-14)
local h = a:matmul(mH(a)) + eye
for _, upper in ipairs { false, true } do
  local f = L.cholesky(h, upper)
  assert(most((upper and mH(f):matmul(f) or f:matmul(mH(f))) - h) < 1e-12 and most(upper and f:tril(-1) or f:triu(1)) == 0)
end
local sign, logabs = L.slogdet(a)
assert(most(sign:abs() - 1) < 1e-13 and most(sign * logabs:exp() - L.det(a)) < 1e-12)
assert(most(L.det(accel.complex(eye, eye)) - accel.complex(accel.tensor(-4.0, { dtype = "f64" }), accel.tensor(0.0, { dtype = "f64" }))) < 1e-13)
says("is singular", L.inv, a * 0)
says("is not positive definite", L.cholesky, accel.complex(-eye, 0 * eye))
assert(most(L.det(a * 0)) == 0)
