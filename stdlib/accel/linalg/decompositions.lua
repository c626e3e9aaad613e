--- The factorisations of accel.linalg for real and complex matrices: the ops svd, eigh, qr, lu_factor_ex and solve_triangular for real ones, the
--- hidden ops linalg_svd, linalg_eigh, linalg_qr and linalg_lu, on LAPACK, for complex ones, with their gradients. Used by the other files.
local accel = require "accel.core"
local common = require "accel.linalg.common"
local complex = require "accel.linalg.complex"
local raise = require "accel.util.raise"

local mH, mT = common.mH, common.mT
local eigh, svd, lu, qr = accel.op "linalg_eigh", accel.op "linalg_svd", accel.op "linalg_lu", accel.op "linalg_qr"

local M = {}

local function whole(pairs_) return pairs_:view_as_complex():clone() end
local function eye_of(x, n) return common.eye(x:real(), n) end

--- X - X^H.
local function skew(x) return x - mH(x) end

-- dA = V (diag(dw) + skew(V^H dV) / 2 / E) V^H with E_ij = w_j - w_i, as of the real op.
local Eigh = accel.Function {
  name = "linalg.eigh",
  forward = function(ctx, A, upper)
    local w, V = eigh(A:view_as_real(), upper)
    V = whole(V)
    ctx:set_materialize_grads(false)
    ctx:save_for_backward(w, V)
    return w, V
  end,
  backward = function(ctx, dw, dV)
    local w, V = ctx:saved_tensors()
    if not dw and not dV then return nil end
    local H = mH(V)
    if not dV then return (V * dw:unsqueeze(-2)):matmul(H) end
    local eye, t = eye_of(V, V.shape[V.ndim]), H:matmul(dV)
    common.check_phases("linalg.eigh", t, "their magnitudes or products such as V V^H")
    local inner = skew(t) * (0.5 * (1 - eye) / (w:unsqueeze(-2) - w:unsqueeze(-1) + eye))
    if dw then inner = inner + dw:unsqueeze(-1) * eye end
    return V:matmul(inner:matmul(H))
  end,
}

-- The real op's formula with conjugates. The last term of inner is the part of the phases that U and Vh share (Wan and Zhang, 2019).
local Svd = accel.Function {
  name = "linalg.svd",
  forward = function(ctx, A)
    local U, S, Vh = svd(A:view_as_real())
    U, Vh = whole(U), whole(Vh)
    ctx:set_materialize_grads(false)
    ctx:save_for_backward(U, S, Vh)
    return U, S, Vh
  end,
  backward = function(ctx, dU, dS, dVh)
    local U, S, Vh = ctx:saved_tensors()
    if not dU and not dS and not dVh then return nil end
    if not dU and not dVh then return (U * dS:unsqueeze(-2)):matmul(Vh) end
    local m, k, n = U.shape[U.ndim - 1], S.shape[S.ndim], Vh.shape[Vh.ndim]
    local row, column, eye = S:unsqueeze(-2), S:unsqueeze(-1), eye_of(U, k)
    local gap = row * row - column * column + eye
    local u = dU and skew(mH(U):matmul(dU))
    local v = dVh and skew(Vh:matmul(mH(dVh)))
    common.check_phases("linalg.svd", u and v and u + v or u or v, "their magnitudes or products such as U Vh")
    local inner = u and u * row
    if v then inner = inner and inner + v * column or v * column end
    inner = inner / gap * (1 - eye)
    if dS then inner = inner + dS:unsqueeze(-1) * eye end
    if u and v then inner = inner + u * (eye / (2 * column)) end
    local dA = U:matmul(inner):matmul(Vh)
    if dU and m > k then
      local t = dU / row
      dA = dA + (t - U:matmul(mH(U):matmul(t))):matmul(Vh)
    end
    if dVh and n > k then
      local t = dVh / column
      dA = dA + U:matmul(t - t:matmul(mH(Vh)):matmul(Vh))
    end
    return dA
  end,
}

local function triangles(LU)
  local m, n = LU.shape[LU.ndim - 1], LU.shape[LU.ndim]
  local k = math.min(m, n)
  return LU:narrow(-1, 1, k):tril(-1) + common.eye(LU, m, k), LU:narrow(-2, 1, k):triu()
end

-- As lu_factor_ex, with conjugates.
local Lu = accel.Function {
  name = "linalg.lu",
  forward = function(ctx, A)
    local LU, pivots, info = lu(A:view_as_real())
    LU = whole(LU)
    ctx:save_for_backward(LU, pivots)
    return LU, pivots, info
  end,
  backward = function(ctx, g)
    local LU, pivots = ctx:saved_tensors()
    local m, n = LU.shape[LU.ndim - 1], LU.shape[LU.ndim]
    local k = math.min(m, n)
    local L, U = triangles(LU)
    local dL, dU = g:narrow(-1, 1, k):tril(-1), g:narrow(-2, 1, k):triu()
    local L1, U1 = L:narrow(-2, 1, k), U:narrow(-1, 1, k)
    local low, up = mH(L1):matmul(dL:narrow(-2, 1, k)), dU:narrow(-1, 1, k):matmul(mH(U1))
    if n > k then low = low - dU:narrow(-1, k + 1, n - k):matmul(mH(U:narrow(-1, k + 1, n - k))) end
    if m > k then up = up - mH(L:narrow(-2, k + 1, m - k)):matmul(dL:narrow(-2, k + 1, m - k)) end
    local function left(x) return M.solve_triangular(mH(L1), x, true, true, true) end
    local function right(x) return M.solve_triangular(mH(U1), x, false, false, false) end
    local dA = right(left(low:tril(-1) + up:triu()))
    if n > k then dA = accel.cat({ dA, left(dU:narrow(-1, k + 1, n - k)) }, -1) end
    if m > k then dA = accel.cat({ dA, right(dL:narrow(-2, k + 1, m - k)) }, -2) end
    return common.rows(dA, common.order(pivots, m):argsort(-1))
  end,
}

-- dA = (dQ + Q S) R^-H, S the Hermitian matrix whose upper triangle is that of dR R^H - Q^H dQ, for A that is not wider than tall.
local Qr = accel.Function {
  name = "linalg.qr",
  forward = function(ctx, A, complete)
    local Q, R = qr(A:view_as_real(), complete)
    Q, R = whole(Q), whole(R)
    ctx.complete = complete and A.shape[A.ndim - 1] > A.shape[A.ndim]
    ctx:set_materialize_grads(false)
    ctx:save_for_backward(Q, R)
    return Q, R
  end,
  backward = function(ctx, dQ, dR)
    local Q, R = ctx:saved_tensors()
    if not dQ and not dR then return nil end
    if ctx.complete then raise 'linalg.qr: mode "complete" of a tall matrix has no gradient; use "reduced"' end
    local x = dR and dR:matmul(mH(R))
    if dQ then
      local t = mH(Q):matmul(dQ)
      x = x and x - t or -t
    end
    local strict = x:triu(1)
    local dA = Q:matmul(strict + mH(strict) + x:real() * eye_of(x, x.shape[x.ndim]))
    if dQ then dA = dA + dQ end
    return M.solve_triangular(mH(R), dA, false, false, false)
  end,
}

---@param A accel.Tensor
---@param uplo string
function M.eigh(A, uplo)
  if not A:is_complex() then return accel.eigh(A, uplo) end
  if uplo ~= "L" and uplo ~= "U" then raise("linalg.eigh: UPLO must be L or U, got %s", tostring(uplo)) end
  return Eigh(A, uplo == "U")
end

---@param A accel.Tensor
function M.svd(A)
  if A:is_complex() then return Svd(A) end
  return accel.svd(A)
end

--- LU, pivots, info and order, as lu_factor_ex.
---@param A accel.Tensor
---@param pivot boolean
function M.lu(A, pivot)
  if not A:is_complex() then return accel.lu_factor_ex(A, pivot) end
  if not pivot then raise "linalg.lu: pivot = false of complex matrices is not in accel; leave it out" end
  local LU, pivots, info = Lu(A)
  return LU, pivots, info, common.order(pivots, A.shape[A.ndim - 1])
end

M.triangles = triangles

---@param A accel.Tensor
---@param mode string
function M.qr(A, mode)
  if not A:is_complex() then return accel.qr(A, mode) end
  if mode ~= "reduced" and mode ~= "complete" and mode ~= "r" then
    raise("linalg.qr: mode must be reduced, complete or r, got %s", tostring(mode))
  end
  local m, n = A.shape[A.ndim - 1], A.shape[A.ndim]
  local Q, R
  if m >= n then
    Q, R = Qr(A, mode == "complete")
  else
    Q, R = Qr(A:narrow(-1, 1, m), false)
    R = accel.cat({ R, mH(Q):matmul(A:narrow(-1, m + 1, n - m)) }, -1)
  end
  if mode == "r" then Q = accel.empty({ 0 }, { dtype = A.dtype, device = A.device }) end
  return Q, R
end

--- As the op, for complex matrices by the real op: rows are divided by the diagonal first, so that the blocks are triangular as well.
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor (..., n, k), or (..., k, n) with left = false
---@param upper boolean
---@param left? boolean
---@param unitriangular? boolean
function M.solve_triangular(A, B, upper, left, unitriangular)
  if not A:is_complex() and not B:is_complex() then return accel.solve_triangular(A, B, upper, left, unitriangular) end
  common.matrix("linalg.solve_triangular", "A", A, true)
  common.matrix("linalg.solve_triangular", "B", B)
  if left == false then return mT(M.solve_triangular(mT(A), mT(B), not upper, true, unitriangular)) end
  return complex.solve_triangular(A, B, upper, unitriangular or false)
end

return M
