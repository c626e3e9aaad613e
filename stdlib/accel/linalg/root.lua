--- Functions of linear algebra that PyTorch has at its root and as methods of tensors: accel.det, x:det(). accel/init.lua loads
--- them on first use, and lua/meta/linalg.lua describes them.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local decompositions = require "accel.linalg.decompositions"
local factors = require "accel.linalg.factors"
local functions = require "accel.linalg.functions"
local raise = require "accel.util.raise"
local solvers = require "accel.linalg.solvers"

local M = {
  cholesky_inverse = solvers.cholesky_inverse, cholesky_solve = solvers.cholesky_solve,
  det = functions.det, logdet = functions.logdet, slogdet = functions.slogdet, matrix_exp = functions.matrix_exp,
  matrix_power = functions.matrix_power, inverse = solvers.inv, orgqr = factors.householder_product,
}

function M.pinverse(x, ...)
  return solvers.pinv(x, { rtol = arguments("pinverse", { "rcond", 1e-15 })(...).rcond })
end

function M.lu_solve(b, LU_data, LU_pivots, ...)
  check.surplus("lu_solve", ...)
  return factors.lu_solve(LU_data, LU_pivots, b)
end

function M.lu(A, ...)
  local o = arguments("lu", { "pivot", true }, { "get_infos", false })(...)
  local LU, pivots, info = factors.lu_factor_ex(A, o.pivot)
  if o.get_infos then return LU, pivots, info end
  common.succeed("lu", info, common.singular)
  return LU, pivots
end

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

function M.triangular_solve(b, A, ...)
  local o = arguments("triangular_solve", { "upper", true }, { "transpose", false }, { "unitriangular", false })(...)
  common.matrix("triangular_solve", "A", A, true)
  local upper, x = o.upper, A
  if o.transpose then upper, x = not upper, common.mT(A) end
  return decompositions.solve_triangular(x, b, upper, true, o.unitriangular), A:clone()
end

function M.ormqr(x, tau, other, ...)
  local o = arguments("ormqr", { "left", true }, { "transpose", false })(...)
  common.matrix("ormqr", "x", x)
  common.tensor("ormqr", "tau", tau)
  common.matrix("ormqr", "other", other)
  if o.left then return factors._reflect(x, tau, other, not o.transpose) end
  return common.mH(factors._reflect(x, tau, common.mH(other), o.transpose))
end

function M.frobenius_norm(x, ...)
  local o = arguments("frobenius_norm", { "dim", list = true }, { "keepdim", false })(...)
  return functions.vector_norm(x, { ord = 2, dim = o.dim, keepdim = o.keepdim })
end

function M.nuclear_norm(x, ...)
  local o = arguments("nuclear_norm", { "dim", list = true }, { "keepdim", false })(...)
  return functions.matrix_norm(x, { ord = "nuc", dim = o.dim, keepdim = o.keepdim })
end

-- Halko, Martinsson and Tropp, 2009, algorithms 4.4 and 5.1.
function M.svd_lowrank(A, ...)
  local o = arguments("svd_lowrank", { "q", 6 }, { "niter", 2 }, { "M" })(...)
  common.matrix("svd_lowrank", "A", A)
  if o.M then A = A - o.M end
  local m, n = A.shape[A.ndim - 1], A.shape[A.ndim]
  local q = check.positive("svd_lowrank", "q", o.q)
  if q > math.min(m, n) then raise("svd_lowrank: q must be at most %d, the smaller extent of A, got %d", math.min(m, n), q) end
  if m < n then
    local U, S, V = M.svd_lowrank(common.mH(A), { q = q, niter = o.niter })
    return V, S, U
  end
  local shape = { table.unpack(A.shape) }
  shape[#shape - 1], shape[#shape] = n, q
  local Q = decompositions.qr(A:matmul(accel.randn(shape, { dtype = A.dtype, device = A.device })), "reduced")
  for _ = 1, check.count("svd_lowrank", "niter", o.niter) do
    Q = decompositions.qr(common.mH(A):matmul(Q), "reduced")
    Q = decompositions.qr(A:matmul(Q), "reduced")
  end
  local U, S, Vh = decompositions.svd(common.mH(Q):matmul(A))
  return Q:matmul(U), S, common.mH(Vh)
end

function M.pca_lowrank(A, ...)
  local o = arguments("pca_lowrank", { "q" }, { "center", true }, { "niter", 2 })(...)
  common.matrix("pca_lowrank", "A", A)
  local q = o.q or math.min(6, A.shape[A.ndim - 1], A.shape[A.ndim])
  if o.center then A = A - A:mean { dim = -2, keepdim = true } end
  return M.svd_lowrank(A, { q = q, niter = o.niter })
end

return M
