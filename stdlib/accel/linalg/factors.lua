--- accel.linalg: factorisations. The kernels are the ops svd, qr, eigh, cholesky_ex and lu_factor_ex, for complex matrices LAPACK's
--- (decompositions.lua), which must be installed then.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local complex = require "accel.linalg.complex"
local decompositions = require "accel.linalg.decompositions"
local raise = require "accel.util.raise"

local matrix, mH, mT = common.matrix, common.mH, common.mT

local solve_triangular = decompositions.solve_triangular

local M = {}

local parse_cholesky = arguments("linalg.cholesky", { "upper", false })
local parse_cholesky_ex = arguments("linalg.cholesky_ex", { "upper", false }, { "check_errors", false })
local parse_lu = arguments("linalg.lu", { "pivot", true })
local parse_lu_ex = arguments("linalg.lu_factor_ex", { "pivot", true }, { "check_errors", false })
local parse_lu_solve = arguments("linalg.lu_solve", { "left", true }, { "adjoint", false })
local parse_qr = arguments("linalg.qr", { "mode", "reduced" })
local parse_eigh = arguments("linalg.eigh", { "UPLO", "L" })
local parse_svd = arguments("linalg.svd", { "full_matrices", true })

--- L with A = L L^T and a lower triangle, or U with A = U^T U with upper = true. A matrix that is not positive definite
--- raises an error that names it.
--- example: accel.linalg.cholesky(accel.tensor { { 4.0, 2.0 }, { 2.0, 5.0 } }) --> { { 2, 0 }, { 1, 2 } }
---@param A accel.Tensor (..., n, n), symmetric
---@param ... any upper = false, or a table of it
---@return accel.Tensor
function M.cholesky(A, ...)
  local o = parse_cholesky(...)
  matrix("linalg.cholesky", "A", A, true)
  local L, info = (A:is_complex() and complex.cholesky or accel.cholesky_ex)(A, o.upper)
  common.succeed("linalg.cholesky", info, common.indefinite)
  return L
end

--- As cholesky, with info (...) instead of an error: 0, or the order of the first leading block without a factor.
--- example: local L, info = accel.linalg.cholesky_ex(accel.tensor { { 4.0 } }) return L, info --> { { 2 } }, 0
---@param A accel.Tensor (..., n, n), symmetric
---@param ... any upper = false, check_errors = false (true: raise), or a table of them
---@return accel.Tensor, accel.Tensor
function M.cholesky_ex(A, ...)
  local o = parse_cholesky_ex(...)
  matrix("linalg.cholesky_ex", "A", A, true)
  local L, info = (A:is_complex() and complex.cholesky or accel.cholesky_ex)(A, o.upper)
  if o.check_errors then common.succeed("linalg.cholesky_ex", info, common.indefinite) end
  return L, info
end

--- P, L and U with A = P L U. With pivot = false P is empty and A = L U.
--- example: local P, L, U = accel.linalg.lu(accel.tensor { { 1.0, 2.0 }, { 2.0, 2.0 } }) return U --> { { 2, 2 }, { 0, 1 } }
---@param A accel.Tensor (..., m, n)
---@param ... any pivot = true, or a table of it
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.lu(A, ...)
  local o = parse_lu(...)
  local LU, _, _, order = decompositions.lu(matrix("linalg.lu", "A", A), o.pivot)
  local L, U = M._triangles(LU)
  if not o.pivot then return accel.empty({ 0 }, { dtype = A.dtype, device = A.device }), L, U end
  return M._permutation(order, A), L, U
end

M._triangles = decompositions.triangles

--- The matrix with ones at (order[i], i).
function M._permutation(order, like)
  local n = order.shape[order.ndim]
  return mT(common.rows(common.eye(like, n), order))
end

--- L and U in one matrix (the ones of L are left out), and LAPACK's pivots: row i was exchanged with row pivots[i], from 1.
--- example: local LU, pivots = accel.linalg.lu_factor(accel.tensor { { 1.0, 2.0 }, { 2.0, 2.0 } }) return pivots --> { 2, 2 }
---@param A accel.Tensor (..., m, n)
---@param ... any pivot = true, or a table of it
---@return accel.Tensor, accel.Tensor
function M.lu_factor(A, ...)
  local o = parse_lu(...)
  local LU, pivots, info = decompositions.lu(matrix("linalg.lu_factor", "A", A), o.pivot)
  common.succeed("linalg.lu_factor", info, common.singular)
  return LU, pivots
end

--- As lu_factor, with info (...) instead of an error: 0, or the position from 1 of the first zero on the diagonal of U.
--- example: return (select(3, accel.linalg.lu_factor_ex(accel.zeros(2, 2)))) --> 1
---@param A accel.Tensor (..., m, n)
---@param ... any pivot = true, check_errors = false (true: raise), or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.lu_factor_ex(A, ...)
  local o = parse_lu_ex(...)
  local LU, pivots, info = decompositions.lu(matrix("linalg.lu_factor_ex", "A", A), o.pivot)
  if o.check_errors then common.succeed("linalg.lu_factor_ex", info, common.singular) end
  return LU, pivots, info
end

--- X with A X = B from the factors of A, or X A = B with left = false. adjoint: with A^T in place of A.
--- example: local LU, p = accel.linalg.lu_factor(accel.tensor { { 2.0, 0.0 }, { 1.0, 1.0 } })
---   return accel.linalg.lu_solve(LU, p, accel.tensor { { 4.0 }, { 3.0 } }) --> { { 2 }, { 1 } }
---@param LU accel.Tensor (..., n, n)
---@param pivots accel.Tensor (..., n)
---@param B accel.Tensor (..., n, k), or (..., k, n) with left = false
---@param ... any left = true, adjoint = false, or a table of them
---@return accel.Tensor
function M.lu_solve(LU, pivots, B, ...)
  local o = parse_lu_solve(...)
  local who = "linalg.lu_solve"
  matrix(who, "LU", LU, true)
  common.tensor(who, "pivots", pivots)
  matrix(who, "B", B)
  if not o.left then return mH(M.lu_solve(LU, pivots, mH(B), { adjoint = not o.adjoint })) end
  local n = LU.shape[LU.ndim]
  local order = common.order(pivots, n)
  if not o.adjoint then
    return solve_triangular(LU, solve_triangular(LU, common.rows(B, order), false, true, true), true)
  end
  local x = solve_triangular(mH(LU), solve_triangular(mH(LU), B, false), true, true, true)
  return common.rows(x, order:argsort(-1))
end

--- q with orthonormal columns and upper triangular r with A = q r. mode "complete": square q. mode "r": r alone, q is empty.
--- example: local q, r = accel.linalg.qr(accel.tensor { { 3.0 }, { 4.0 } }) return q, r --> { { -0.6 }, { -0.8 } }, { { -5 } }
---@param A accel.Tensor (..., m, n)
---@param ... any mode = "reduced", or a table of it
---@return accel.Tensor, accel.Tensor
function M.qr(A, ...)
  local mode = parse_qr(...).mode
  matrix("linalg.qr", "A", A)
  return decompositions.qr(A, mode)
end

--- The first n columns of H_1 H_2 ... H_k with H_i = I - tau_i v_i v_i^H: column i of A below its diagonal is v_i, with
--- one on the diagonal. They are made of operations on vectors, from the last reflection to the first.
--- example: accel.linalg.householder_product(accel.tensor { { 1.0 }, { 1.0 } }, accel.tensor { 1.0 }) --> { { 0 }, { -1 } }
---@param A accel.Tensor (..., m, n) with m >= n
---@param tau accel.Tensor (..., k) with k <= n
---@return accel.Tensor
function M.householder_product(A, tau, ...)
  check.surplus("linalg.householder_product", ...)
  local who = "linalg.householder_product"
  matrix(who, "A", A)
  common.tensor(who, "tau", tau)
  local m, n, k = A.shape[A.ndim - 1], A.shape[A.ndim], tau.shape[tau.ndim]
  if m < n or k > n then
    raise("%s: needs at least as many rows as columns, and at most as many reflections, got %d rows, %d columns, %d reflections",
      who, m, n, k)
  end
  return M._reflect(A, tau, common.same(common.eye(A, m, n), A), true)
end

--- H_1 ... H_k x, or with forward = false the product of the (conjugate) transposes, H_k' ... H_1' x, for x of as many rows as A.
function M._reflect(A, tau, x, forward)
  local m, k = A.shape[A.ndim - 1], tau.shape[tau.ndim]
  local low = A:narrow(-1, 1, k):tril(-1) + common.eye(A, m, k)
  local first, last, step = 1, k, 1
  if forward then first, last, step = k, 1, -1
  elseif tau:is_complex() then tau = tau:conj() end
  for i = first, last, step do
    local v = low:narrow(-1, i, 1)
    x = x - (v * tau:narrow(-1, i, 1):unsqueeze(-1)):matmul(mH(v):matmul(x))
  end
  return x
end

--- Eigenvalues, ascending, and eigenvectors in columns of a symmetric or Hermitian matrix. Only the lower triangle is read, with
--- UPLO = "U" the upper one. Signs of vectors are free, of complex ones phases: a loss that depends on them raises in backward.
--- Gradients by vectors of equal eigenvalues are infinite. NaN gives NaN.
--- example: local w = accel.linalg.eigh(accel.tensor { { 2.0, 1.0 }, { 1.0, 2.0 } }) return w --> { 1, 3 }
---@param A accel.Tensor (..., n, n)
---@param ... any UPLO = "L", or a table of it
---@return accel.Tensor, accel.Tensor
function M.eigh(A, ...)
  return decompositions.eigh(matrix("linalg.eigh", "A", A, true), parse_eigh(...).UPLO)
end

--- The eigenvalues of a symmetric or Hermitian matrix, ascending.
--- example: accel.linalg.eigvalsh(accel.tensor { { 2.0, 1.0 }, { 1.0, 2.0 } }) --> { 1, 3 }
---@param A accel.Tensor (..., n, n)
---@param ... any UPLO = "L", or a table of it
---@return accel.Tensor
function M.eigvalsh(A, ...)
  return (decompositions.eigh(matrix("linalg.eigvalsh", "A", A, true), parse_eigh(...).UPLO))
end

--- The columns that complete orthonormal ones to a square matrix.
local function complete(u)
  local m, k = u.shape[u.ndim - 1], u.shape[u.ndim]
  if m == k then return u end
  local q = decompositions.qr(u:detach(), "complete")
  return accel.cat({ u, q:narrow(-1, k + 1, m - k) }, -1)
end

--- U, S and Vh with A = U diag(S) Vh: orthonormal columns in U, orthonormal rows in Vh, values descending. full_matrices
--- = false: only the first min(m, n) columns and rows. No gradient passes through the columns and rows after those.
--- example: local U, S, Vh = accel.linalg.svd(accel.tensor { { 0.0, 2.0 }, { 3.0, 0.0 } }) return S --> { 3, 2 }
---@param A accel.Tensor (..., m, n)
---@param ... any full_matrices = true, or a table of it
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.svd(A, ...)
  local o = parse_svd(...)
  local u, s, vh = decompositions.svd(matrix("linalg.svd", "A", A))
  common.finite("linalg.svd", s)
  if o.full_matrices then u, vh = complete(u), mH(complete(mH(vh))) end
  return u, s, vh
end

--- The singular values, descending.
--- example: accel.linalg.svdvals(accel.tensor { { 0.0, 2.0 }, { 3.0, 0.0 } }) --> { 3, 2 }
---@param A accel.Tensor (..., m, n)
---@return accel.Tensor
function M.svdvals(A, ...)
  check.surplus("linalg.svdvals", ...)
  local _, s = decompositions.svd(matrix("linalg.svdvals", "A", A))
  common.finite("linalg.svdvals", s)
  return s
end

--- U and H with A = U H: orthonormal columns in U and symmetric positive-semidefinite H, from the singular values.
--- example: local U, H = accel.linalg.polar(accel.tensor { { 0.0, 2.0 }, { 3.0, 0.0 } }) return H --> { { 3, 0 }, { 0, 2 } }
---@param A accel.Tensor (..., m, n) with m >= n
---@return accel.Tensor, accel.Tensor
function M.polar(A, ...)
  check.surplus("linalg.polar", ...)
  if matrix("linalg.polar", "A", A).shape[A.ndim] > A.shape[A.ndim - 1] then
    raise("linalg.polar: needs at least as many rows as columns, got %d and %d", A.shape[A.ndim - 1], A.shape[A.ndim])
  end
  local u, s, vh = M.svd(A, false)
  return u:matmul(vh), (mH(vh) * s:unsqueeze(-2)):matmul(vh)
end

--- The symmetric positive-definite X with X X = A, for symmetric positive-definite A, from its eigenvalues.
--- example: accel.linalg.matrix_sqrth(accel.tensor { { 4.0, 0.0 }, { 0.0, 9.0 } }) --> { { 2, 0 }, { 0, 3 } }
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function M.matrix_sqrth(A, ...)
  check.surplus("linalg.matrix_sqrth", ...)
  local w, v = M.eigh(A)
  return (v * w:sqrt():unsqueeze(-2)):matmul(mH(v))
end

return M
