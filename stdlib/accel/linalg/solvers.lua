--- accel.linalg: systems of equations, inverses and least squares. The kernels are the ops solve_ex, solve_triangular and svd.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local complex = require "accel.linalg.complex"
local decompositions = require "accel.linalg.decompositions"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local matrix, mH, mT = common.matrix, common.mH, common.mT
local solve_triangular = decompositions.solve_triangular

local M = {}

local parse_solve = arguments("linalg.solve", { "left", true })
local parse_solve_ex = arguments("linalg.solve_ex", { "left", true }, { "check_errors", false })
local parse_inv_ex = arguments("linalg.inv_ex", { "check_errors", false })
local parse_triangular = arguments("linalg.solve_triangular", { "upper" }, { "left", true }, { "unitriangular", false })
local parse_pinv = arguments("linalg.pinv", { "rcond", any = true }, { "hermitian", false }, { "atol", any = true },
  { "rtol", any = true })
local parse_rank = arguments("linalg.matrix_rank", { "tol", any = true }, { "hermitian", false }, { "atol", any = true },
  { "rtol", any = true })
local parse_cholesky = arguments("cholesky_solve", { "upper", false })
local parse_inverse = arguments("cholesky_inverse", { "upper", false })
local parse_tensorinv = arguments("linalg.tensorinv", { "ind", 2 })
local parse_tensorsolve = arguments("linalg.tensorsolve", { "dims", list = true })
local parse_lstsq = arguments("linalg.lstsq", { "rcond", any = true }, { "driver" })

--- Solves for matrices and for vectors, which B is if it has the shape of A without the last dim.
local function solved(who, A, B, left)
  matrix(who, "A", A, true)
  common.tensor(who, "B", B)
  local pairs_ = A:is_complex() or B:is_complex()
  if not A:is_complex() then common.real(who, A) end
  if not B:is_complex() then common.real(who, B) end
  local vector = B.ndim == 1
  if B.ndim == A.ndim - 1 then
    vector = tensors.same_sizes(B.shape, table.move(A.shape, 1, A.ndim - 1, 1, {}))
  end
  if vector and not left then raise("%s: left must be true if B is a vector or a batch of them", who) end
  if vector then B = B:unsqueeze(-1) end
  if not left then A, B = mT(A), mT(B) end
  if B.ndim < 2 or B.shape[B.ndim - 1] ~= A.shape[A.ndim] then
    raise("%s: A is of size %d and does not fit B of shape %s", who, A.shape[A.ndim], tensors.shape_string(vector and B:squeeze(-1) or B))
  end
  local X, info = (pairs_ and complex.solve or accel.solve_ex)(A, B)
  if not left then X = mT(X) end
  return vector and X:squeeze(-1) or X, info
end

--- X with A X = B, or X A = B with left = false. Singular matrices raise an error that names them.
--- example: accel.linalg.solve(accel.tensor { { 2.0, 0.0 }, { 1.0, 1.0 } }, accel.tensor { 4.0, 3.0 }) --> { 2, 1 }
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor (..., n, k), (..., n), or (..., k, n) with left = false. Batches broadcast
---@param ... any left = true, or a table of it
---@return accel.Tensor
function M.solve(A, B, ...)
  local X, info = solved("linalg.solve", A, B, parse_solve(...).left)
  common.succeed("linalg.solve", info, X:is_complex() and common.singular_complex or common.singular)
  return X
end

--- As solve, with info (...) instead of an error: 0, or the position from 1 of the first zero on the diagonal of U.
--- example: return (select(2, accel.linalg.solve_ex(accel.zeros(2, 2), accel.ones(2, 1)))) --> 1
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor
---@param ... any left = true, check_errors = false (true: raise), or a table of them
---@return accel.Tensor, accel.Tensor
function M.solve_ex(A, B, ...)
  local o = parse_solve_ex(...)
  local X, info = solved("linalg.solve_ex", A, B, o.left)
  if o.check_errors then common.succeed("linalg.solve_ex", info, X:is_complex() and common.singular_complex or common.singular) end
  return X, info
end

--- X with A X = B for triangular A, or X A = B with left = false. unitriangular: the diagonal counts as ones.
--- example: accel.linalg.solve_triangular(accel.tensor { { 2.0, 1.0 }, { 0.0, 4.0 } }, accel.tensor { { 4.0 }, { 8.0 } },
---   { upper = true }) --> { { 1 }, { 2 } }
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor (..., n, k), or (..., k, n) with left = false
---@param ... any upper (required), left = true, unitriangular = false, or a table of them
---@return accel.Tensor
function M.solve_triangular(A, B, ...)
  local o = parse_triangular(...)
  if type(o.upper) ~= "boolean" then raise("linalg.solve_triangular: upper must be true or false, got %s", check.shown(o.upper)) end
  return solve_triangular(A, B, o.upper, o.left, o.unitriangular)
end

local function inverse(who, A)
  matrix(who, "A", A, true)
  if A:is_complex() then return complex.solve(A, common.eye(A:detach():real(), A.shape[A.ndim])) end
  common.real(who, A)
  return accel.solve_ex(A, common.eye(A, A.shape[A.ndim]))
end

--- The inverse. Singular matrices raise an error that names them.
--- example: accel.linalg.inv(accel.tensor { { 2.0, 0.0 }, { 0.0, 4.0 } }) --> { { 0.5, 0 }, { 0, 0.25 } }
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function M.inv(A, ...)
  check.surplus("linalg.inv", ...)
  local X, info = inverse("linalg.inv", A)
  common.succeed("linalg.inv", info, A:is_complex() and common.singular_complex or common.singular)
  return X
end

--- As inv, with info (...) instead of an error.
--- example: return (accel.linalg.inv_ex(accel.tensor { { 2.0 } })) --> { { 0.5 } }
---@param A accel.Tensor (..., n, n)
---@param ... any check_errors = false (true: raise), or a table of it
---@return accel.Tensor, accel.Tensor
function M.inv_ex(A, ...)
  local o = parse_inv_ex(...)
  local X, info = inverse("linalg.inv_ex", A)
  if o.check_errors then common.succeed("linalg.inv_ex", info, A:is_complex() and common.singular_complex or common.singular) end
  return X, info
end

--- X with A X = B from a triangular factor of A: A = L L^T, or U^T U with upper = true. Also accel.cholesky_solve.
--- example: accel.linalg.cholesky_solve(accel.tensor { { 8.0 } }, accel.tensor { { 2.0 } }) --> { { 2 } }
---@param B accel.Tensor (..., n, k)
---@param L accel.Tensor (..., n, n)
---@param ... any upper = false, or a table of it
---@return accel.Tensor
function M.cholesky_solve(B, L, ...)
  local upper = parse_cholesky(...).upper
  matrix("cholesky_solve", "B", B)
  matrix("cholesky_solve", "L", L, true)
  if upper then return solve_triangular(L, solve_triangular(mH(L), B, false), true) end
  return solve_triangular(mH(L), solve_triangular(L, B, false), true)
end

--- The inverse of A from its triangular factor. Also accel.cholesky_inverse.
--- example: accel.linalg.cholesky_inverse(accel.tensor { { 2.0 } }) --> { { 0.25 } }
---@param L accel.Tensor (..., n, n)
---@param ... any upper = false, or a table of it
---@return accel.Tensor
function M.cholesky_inverse(L, ...)
  local upper = parse_inverse(...).upper
  matrix("cholesky_inverse", "L", L, true)
  return M.cholesky_solve(common.eye(L, L.shape[L.ndim]):expand(L.shape), L, upper)
end

local function part_dtype(A) return A:is_complex() and A:real().dtype or A.dtype end

-- A pseudo-inverse P of A that is known, with its gradient while the rank stays (Golub and Pereyra, 1973):
--   dA = -P^H G P^H + (I - A P) G^H P P^H + P^H P G^H (I - P A).
-- again(A) makes P anew where a second derivative is wanted.
local Inverse = accel.Function {
  name = "linalg.pinv",
  forward = function(ctx, A, P, again)
    ctx:save_for_backward(A)
    ctx.again = again
    return P
  end,
  backward = function(ctx, G)
    local A = ctx:saved_tensors()
    local P = ctx.again(A)
    local Pt, Gt = mH(P), mH(G)
    local left = Gt:matmul(P):matmul(Pt) -- G^H P P^H
    local right = Pt:matmul(P):matmul(Gt)
    return (left - A:matmul(P:matmul(left))) + (right - right:matmul(P):matmul(A)) - Pt:matmul(G):matmul(Pt)
  end,
}

local function inverse_of(who, A, o, again)
  local P, values, rank
  if A:numel() == 0 then
    local batch = table.move(A.shape, 1, A.ndim - 2, 1, {})
    rank = accel.zeros(batch, { dtype = "i64", device = A.device })
    batch[#batch + 1] = math.min(A.shape[A.ndim - 1], A.shape[A.ndim])
    return mH(A):clone(), accel.empty(batch, { dtype = part_dtype(A), device = A.device }), rank
  end
  do
    local _ <close> = accel.no_grad()
    local x = A:detach()
    if o.hermitian then
      local w, v = decompositions.eigh(x, "L")
      values = w:abs()
      local keep = values:gt(common.bounds(x, values:amax { dim = -1, keepdim = true }, o.atol, o.rtol))
      P = (v * accel.where(keep, 1 / w, 0.0):unsqueeze(-2)):matmul(mH(v))
      rank = keep:sum { dim = -1 }
    else
      local u, s, vh = decompositions.svd(x)
      values = s
      local keep = s:gt(common.bounds(x, s:narrow(-1, 1, 1), o.atol, o.rtol))
      P = (mH(vh) * accel.where(keep, 1 / s, 0.0):unsqueeze(-2)):matmul(mH(u))
      rank = keep:sum { dim = -1 }
    end
    common.finite(who, values)
  end
  if accel.is_grad_enabled() and A.requires_grad then P = Inverse(A, P, again) end
  return P, values, rank
end

--- A bound may have the shape of the batch.
local function of_batch(bound) return tensors.is_tensor(bound) and bound.ndim > 0 and bound:unsqueeze(-1) or bound end

--- The pseudo-inverse of Moore and Penrose. Singular values up to max(atol, rtol * largest) count as zero; by default rtol is
--- eps max(m, n), or 0 if atol is given. hermitian: A is symmetric, and its lower triangle is read.
--- example: accel.linalg.pinv(accel.tensor { { 2.0, 0.0 }, { 0.0, 0.0 } }) --> { { 0.5, 0 }, { 0, 0 } }
---@param A accel.Tensor (..., m, n)
---@param ... any rcond (rtol's older name), hermitian = false, atol, rtol, or a table of them
---@return accel.Tensor
function M.pinv(A, ...)
  local o = parse_pinv(...)
  matrix("linalg.pinv", "A", A, o.hermitian)
  o = { atol = of_batch(o.atol), rtol = of_batch(o.rtol or o.rcond), hermitian = o.hermitian }
  return (inverse_of("linalg.pinv", A, o, function(x) return M.pinv(x, o) end))
end

--- How many singular values exceed max(atol, rtol * largest), as i64. Defaults as pinv's; tol is atol's older name.
--- example: accel.linalg.matrix_rank(accel.tensor { { 1.0, 2.0 }, { 2.0, 4.0 } }) --> 1
---@param A accel.Tensor (..., m, n)
---@param ... any tol, hermitian = false, atol, rtol, or a table of them
---@return accel.Tensor
function M.matrix_rank(A, ...)
  local o = parse_rank(...)
  matrix("linalg.matrix_rank", "A", A, o.hermitian)
  local atol, rtol = o.atol, o.rtol
  if o.tol ~= nil then atol, rtol = o.tol, 0 end
  local _ <close> = accel.no_grad()
  if A:numel() == 0 then
    return accel.zeros(table.move(A.shape, 1, A.ndim - 2, 1, {}), { dtype = "i64", device = A.device })
  end
  local values
  if o.hermitian then values = decompositions.eigh(A:detach(), "L"):abs() else values = select(2, decompositions.svd(A:detach())) end
  common.finite("linalg.matrix_rank", values)
  local bounds = common.bounds(A, values:amax { dim = -1, keepdim = true }, of_batch(atol), of_batch(rtol))
  return values:gt(bounds):sum { dim = -1 }
end

local DRIVERS <const> = { gels = true, gelsy = true, gelsd = true, gelss = true }

--- The X that minimises |A X - B|, the shortest one if there are several, then squared residuals by column, ranks and singular values. All
--- drivers compute by singular values and differ only in the results that they leave empty: residuals for "gelsy" (and unless m > n and
--- all ranks are full), ranks for "gels", singular values unless the driver is "gelsd" or "gelss".
--- example: return (accel.linalg.lstsq(accel.tensor { { 1.0 }, { 1.0 } }, accel.tensor { { 1.0 }, { 3.0 } })) --> { { 2 } }
---@param A accel.Tensor (..., m, n)
---@param B accel.Tensor (..., m, k), or (..., m)
---@param ... any rcond = eps max(m, n), driver = "gelsy", or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor, accel.Tensor
function M.lstsq(A, B, ...)
  local o = parse_lstsq(...)
  local who = "linalg.lstsq"
  matrix(who, "A", A)
  common.tensor(who, "B", B)
  local driver = o.driver or "gelsy"
  if not DRIVERS[driver] then raise("%s: driver must be gels, gelsy, gelsd or gelss, got %s", who, check.shown(driver)) end
  local m, n = A.shape[A.ndim - 1], A.shape[A.ndim]
  local vector = A.ndim - 1 == B.ndim and tensors.same_sizes(B.shape, table.move(A.shape, 1, A.ndim - 1, 1, {}))
  if vector then B = B:unsqueeze(-1) end
  if B.ndim < 2 or B.shape[B.ndim - 1] ~= m then
    raise("%s: A of shape %s does not fit B of shape %s", who, tensors.shape_string(A), tensors.shape_string(B))
  end
  local none = accel.empty({ 0 }, { dtype = part_dtype(A), device = A.device })
  local keep = { rtol = driver ~= "gels" and of_batch(o.rcond) or nil }
  local P, values, rank = inverse_of(who, A, keep, function(x) return M.pinv(x, keep) end)
  local X = P:matmul(B)
  local residuals = X:reshape(-1):narrow(1, 1, 0) -- empty, with a gradient
  if X:is_complex() then residuals = residuals:real() end
  if m > n and driver ~= "gelsy" and rank:eq(n):all():item() then residuals = (A:matmul(X) - B):abs():square():sum { dim = -2 } end
  if vector then
    X = X:squeeze(-1)
    if residuals.ndim > 1 then residuals = residuals:squeeze(-1) end
  end
  if driver == "gels" then rank = accel.empty({ 0 }, { dtype = "i64", device = A.device }) end
  return X, residuals, rank, (driver == "gelsd" or driver == "gelss") and values or none
end

local function product(shape, from, to)
  local n = 1
  for i = from, to do n = n * shape[i] end
  return n
end

--- The B with tensordot(B, A) the identity: the inverse of A as a map from its last dims to its first `ind` ones.
--- example: accel.linalg.tensorinv(accel.eye(2):reshape(2, 1, 2) * 2, { ind = 1 }) --> { { { 0.5, 0 }, { 0, 0.5 } } }
---@param A accel.Tensor
---@param ... any ind = 2, or a table of it
---@return accel.Tensor
function M.tensorinv(A, ...)
  local ind = check.positive("linalg.tensorinv", "ind", parse_tensorinv(...).ind)
  common.tensor("linalg.tensorinv", "A", A)
  local shape = A.shape
  local rows, columns = product(shape, 1, math.min(ind, #shape)), product(shape, ind + 1, #shape)
  if rows ~= columns then
    raise("linalg.tensorinv: the first %d dims of shape %s must have as many elements as the others", ind, tensors.shape_string(A))
  end
  local out = table.move(shape, ind + 1, #shape, 1, {})
  table.move(shape, 1, ind, #out + 1, out)
  return M.inv(A:reshape(rows, columns)):reshape(out)
end

--- The X with tensordot(A, X) = B. dims: those of A that are moved to its end first.
--- example: accel.linalg.tensorsolve(accel.eye(4):reshape(2, 2, 4) * 2, accel.ones(2, 2)) --> { 0.5, 0.5, 0.5, 0.5 }
---@param A accel.Tensor
---@param B accel.Tensor
---@param ... any dims, or a table of it
---@return accel.Tensor
function M.tensorsolve(A, B, ...)
  local dims = parse_tensorsolve(...).dims
  common.tensor("linalg.tensorsolve", "A", A)
  common.tensor("linalg.tensorsolve", "B", B)
  if dims then
    local moved, order = {}, {}
    for i, d in ipairs(type(dims) == "table" and dims or { dims }) do
      moved[i] = check.integer("linalg.tensorsolve", "dims", d < 0 and d + A.ndim + 1 or d, 1, A.ndim)
    end
    for d = 1, A.ndim do
      local is = false
      for _, e in ipairs(moved) do is = is or e == d end
      if not is then order[#order + 1] = d end
    end
    A = A:permute(table.move(moved, 1, #moved, #order + 1, order))
  end
  local out = table.move(A.shape, B.ndim + 1, A.ndim, 1, {})
  if product(out, 1, #out) ~= B:numel() or A:numel() ~= B:numel() * B:numel() then
    raise("linalg.tensorsolve: A of shape %s is not square for B of shape %s", tensors.shape_string(A), tensors.shape_string(B))
  end
  return M.solve(A:reshape(B:numel(), B:numel()), B:reshape { -1 }):reshape(out)
end

return M
