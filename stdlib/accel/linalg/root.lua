--- Functions of linear algebra that PyTorch has at its root and as methods of tensors: accel.det, x:det(). accel/init.lua loads
--- them on first use.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local factors = require "accel.linalg.factors"
local functions = require "accel.linalg.functions"
local raise = require "accel.util.raise"
local solvers = require "accel.linalg.solvers"

local M = {
  cholesky_inverse = solvers.cholesky_inverse, cholesky_solve = solvers.cholesky_solve,
  det = functions.det, logdet = functions.logdet, slogdet = functions.slogdet, matrix_exp = functions.matrix_exp,
  matrix_power = functions.matrix_power, inverse = solvers.inv, orgqr = factors.householder_product,
}

--- The pseudo-inverse, with singular values up to rcond times the largest as zero: linalg.pinv.
--- example: accel.pinverse(accel.tensor { { 2.0 } }) --> { { 0.5 } }
---@param x accel.Tensor (..., m, n)
---@param ... any rcond = 1e-15, or a table of it
---@return accel.Tensor
function M.pinverse(x, ...)
  return solvers.pinv(x, { rtol = arguments("pinverse", { "rcond", 1e-15 })(...).rcond })
end

--- linalg.lu_solve with its arguments in the older order.
--- example: accel.lu_solve(accel.tensor { { 4.0 } }, accel.linalg.lu_factor(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param b accel.Tensor (..., n, k)
---@param LU_data accel.Tensor (..., n, n)
---@param LU_pivots accel.Tensor (..., n)
---@return accel.Tensor
function M.lu_solve(b, LU_data, LU_pivots, ...)
  check.surplus("lu_solve", ...)
  return factors.lu_solve(LU_data, LU_pivots, b)
end

--- The factors and pivots of linalg.lu_factor, and with get_infos = true its info.
--- example: return (accel.lu(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param A accel.Tensor (..., m, n)
---@param ... any pivot = true, get_infos = false, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor?
function M.lu(A, ...)
  local o = arguments("lu", { "pivot", true }, { "get_infos", false })(...)
  local LU, pivots, info = factors.lu_factor_ex(A, o.pivot)
  if o.get_infos then return LU, pivots, info end
  common.succeed("lu", info, common.singular)
  return LU, pivots
end

--- P, L and U from the results of linalg.lu_factor. unpack_data = false: L and U are empty. unpack_pivots = false: P is empty.
--- example: local P, L, U = accel.lu_unpack(accel.linalg.lu_factor(accel.tensor { { 2.0 } })) return P, L, U --> { { 1 } }, { { 1 } }, { { 2 } }
---@param LU_data accel.Tensor (..., m, n)
---@param LU_pivots accel.Tensor (..., k)
---@param ... any unpack_data = true, unpack_pivots = true, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.lu_unpack(LU_data, LU_pivots, ...)
  local o = arguments("lu_unpack", { "unpack_data", true }, { "unpack_pivots", true })(...)
  common.matrix("lu_unpack", "LU_data", LU_data)
  common.tensor("lu_unpack", "LU_pivots", LU_pivots)
  local function none() return accel.empty({ 0 }, { dtype = LU_data.dtype, device = LU_data.device }) end
  local P, L, U = none(), none(), none()
  if o.unpack_data then L, U = factors._triangles(LU_data) end
  if o.unpack_pivots then P = factors._permutation(common.order(LU_pivots, LU_data.shape[LU_data.ndim - 1]), LU_data) end
  return P, L, U
end

--- The solution of a triangular system with its arguments in the older order, and a copy of A: linalg.solve_triangular.
--- example: return (accel.triangular_solve(accel.tensor { { 4.0 } }, accel.tensor { { 2.0 } })) --> { { 2 } }
---@param b accel.Tensor (..., n, k)
---@param A accel.Tensor (..., n, n)
---@param ... any upper = true, transpose = false, unitriangular = false, or a table of them
---@return accel.Tensor, accel.Tensor
function M.triangular_solve(b, A, ...)
  local o = arguments("triangular_solve", { "upper", true }, { "transpose", false }, { "unitriangular", false })(...)
  common.matrix("triangular_solve", "A", A, true)
  local upper, x = o.upper, A
  if o.transpose then upper, x = not upper, common.mT(A) end
  return accel.solve_triangular(x, b, upper, true, o.unitriangular), A:clone()
end

--- Q other, or Q^T other with transpose = true, or the products from the right with left = false, for the square Q of the
--- reflections in x and tau (see linalg.householder_product).
--- example: accel.ormqr(accel.tensor { { 1.0 }, { 1.0 } }, accel.tensor { 1.0 }, accel.tensor { { 1.0 }, { 0.0 } }) --> { { 0 }, { -1 } }
---@param x accel.Tensor (..., m, k)
---@param tau accel.Tensor (..., k)
---@param other accel.Tensor (..., m, n), or (..., n, m) with left = false
---@param ... any left = true, transpose = false, or a table of them
---@return accel.Tensor
function M.ormqr(x, tau, other, ...)
  local o = arguments("ormqr", { "left", true }, { "transpose", false })(...)
  common.matrix("ormqr", "x", x)
  common.tensor("ormqr", "tau", tau)
  common.matrix("ormqr", "other", other)
  if o.left then return factors._reflect(x, tau, other, not o.transpose) end
  return common.mT(factors._reflect(x, tau, common.mT(other), o.transpose))
end

--- The length of all elements, or along dims.
--- example: accel.frobenius_norm(accel.tensor { { 3.0, 4.0 } }) --> 5
---@param x accel.Tensor
---@param ... any dim, keepdim = false, or a table of them
---@return accel.Tensor
function M.frobenius_norm(x, ...)
  local o = arguments("frobenius_norm", { "dim", list = true }, { "keepdim", false })(...)
  return functions.vector_norm(x, { ord = 2, dim = o.dim, keepdim = o.keepdim })
end

--- The sum of the singular values.
--- example: accel.nuclear_norm(accel.tensor { { 3.0, 0.0 }, { 0.0, 4.0 } }) --> 7
---@param x accel.Tensor
---@param ... any dim = { -2, -1 }, keepdim = false, or a table of them
---@return accel.Tensor
function M.nuclear_norm(x, ...)
  local o = arguments("nuclear_norm", { "dim", list = true }, { "keepdim", false })(...)
  return functions.matrix_norm(x, { ord = "nuc", dim = o.dim, keepdim = o.keepdim })
end

--- U, S and V of the largest q singular values of A - M, near them for q below its rank: singular values of a projection on q
--- random directions, after niter subspace iterations (Halko, Martinsson and Tropp, 2009, algorithms 4.4 and 5.1).
--- example: local U, S, V = accel.svd_lowrank(accel.eye(3) * 2, { q = 2 }) return S --> { 2, 2 }
---@param A accel.Tensor (..., m, n)
---@param ... any q = 6, niter = 2, M, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.svd_lowrank(A, ...)
  local o = arguments("svd_lowrank", { "q", 6 }, { "niter", 2 }, { "M" })(...)
  common.matrix("svd_lowrank", "A", A)
  if o.M then A = A - o.M end
  local m, n = A.shape[A.ndim - 1], A.shape[A.ndim]
  local q = check.positive("svd_lowrank", "q", o.q)
  if q > math.min(m, n) then raise("svd_lowrank: q must be at most %d, the smaller extent of A, got %d", math.min(m, n), q) end
  if m < n then
    local U, S, V = M.svd_lowrank(common.mT(A), { q = q, niter = o.niter })
    return V, S, U
  end
  local shape = { table.unpack(A.shape) }
  shape[#shape - 1], shape[#shape] = n, q
  local Q = accel.qr(A:matmul(accel.randn(shape, { dtype = A.dtype, device = A.device })))
  for _ = 1, check.count("svd_lowrank", "niter", o.niter) do
    Q = accel.qr(common.mT(A):matmul(Q))
    Q = accel.qr(A:matmul(Q))
  end
  local U, S, Vh = accel.svd(common.mT(Q):matmul(A))
  return Q:matmul(U), S, common.mT(Vh)
end

--- U, S and V of A whose columns have their means taken off, or of A with center = false: a principal component analysis. Column i
--- of V is the i-th direction, and A:matmul(V) has the coordinates.
--- example: local U, S, V = accel.pca_lowrank(accel.tensor { { 1.0, 0.0 }, { -1.0, 0.0 }, { 0.0, 0.0 } }, { q = 1 })
---   return V:abs() --> { { 1 }, { 0 } }
---@param A accel.Tensor (..., m, n)
---@param ... any q = min(6, m, n), center = true, niter = 2, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function M.pca_lowrank(A, ...)
  local o = arguments("pca_lowrank", { "q" }, { "center", true }, { "niter", 2 })(...)
  common.matrix("pca_lowrank", "A", A)
  local q = o.q or math.min(6, A.shape[A.ndim - 1], A.shape[A.ndim])
  if o.center then A = A - A:mean { dim = -2, keepdim = true } end
  return M.svd_lowrank(A, { q = q, niter = o.niter })
end

return M
