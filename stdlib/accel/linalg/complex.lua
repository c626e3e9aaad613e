--- Complex matrices by real ones of twice the size, which add and multiply as they do: A + iB as [[A, -B], [B, A]], or each element a + ib as a
--- block [[a, -b], [b, a]], which keeps triangles. So solutions and factors come from the real ops, with their gradients of both orders, on each
--- device that has them. Used by the other files of the folder.
local accel = require "accel.core"

local M = {}

--- The real matrix (..., 2n, 2m) of a complex one.
---@param x accel.Tensor (..., n, m)
---@return accel.Tensor
function M.doubled(x)
  local a, b = x:real(), x:imag()
  return accel.cat({ accel.cat({ a, -b }, -1), accel.cat({ b, a }, -1) }, -2)
end

--- Real and imaginary part, one above the other: the first half of the columns of `doubled`.
local function stacked(x) return accel.cat({ x:real(), x:imag() }, -2) end

local function joined(x)
  local n = x.shape[x.ndim - 1] // 2
  return accel.complex(x:narrow(-2, 1, n), x:narrow(-2, n + 1, n))
end

local function as_complex(x) return x:is_complex() and x or accel.complex(x, accel.zeros_like(x)) end

--- X with A X = B, either of them complex, and info as solve_ex gives it, for the matrix of twice the size.
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor (..., n, k)
---@return accel.Tensor, accel.Tensor
function M.solve(A, B)
  local X, info = accel.solve_ex(M.doubled(as_complex(A)), stacked(as_complex(B)))
  return joined(X), info
end

--- Each element a + ib as a block [[a, -b], [b, a]].
local function blocks(x)
  local a, b = x:real(), x:imag()
  local shape, n = { table.unpack(x.shape) }, x.ndim
  shape[n - 1], shape[n] = 2 * shape[n - 1], 2 * shape[n]
  local rows = accel.stack({ accel.stack({ a, -b }, -1), accel.stack({ b, a }, -1) }, -3) -- (..., n, 2, m, 2)
  return rows:reshape(shape)
end

--- The complex matrix of blocks: their first columns.
local function unblocked(x)
  local shape, n = { table.unpack(x.shape) }, x.ndim
  shape[n - 1], shape[n], shape[n + 1], shape[n + 2] = shape[n - 1] // 2, 2, shape[n] // 2, 2
  local first = x:reshape(shape):select(-1, 1) -- (..., n, 2, m)
  return accel.complex(first:select(-2, 1), first:select(-2, 2))
end

-- The Hermitian matrix of which a triangle is given. Its gradient is Hermitian as well, as of the real op.
local Hermitian = accel.Function {
  name = "linalg.cholesky",
  forward = function(_, A, upper)
    local strict = upper and A:triu(1) or A:tril(-1)
    local diagonal = accel.diag_embed(A:real():diagonal(0, -2, -1))
    return strict + strict:transpose(-1, -2):conj() + accel.complex(diagonal, accel.zeros_like(diagonal))
  end,
  backward = function(_, g) return (g + g:transpose(-1, -2):conj()) * 0.5 end,
}

--- The lower factor L with A = L L^H, or U with A = U^H U, of a Hermitian matrix, of which the lower triangle (the upper one) is read: its blocks
--- are the factor of the blocks of A, because the factor with a positive diagonal is unique. info: as cholesky_ex.
---@param A accel.Tensor (..., n, n)
---@param upper boolean
---@return accel.Tensor, accel.Tensor
function M.cholesky(A, upper)
  local L, info = accel.cholesky_ex(blocks(Hermitian(A, upper)), upper)
  return unblocked(L), (info + 1):div(2, "floor"):to(info.dtype)
end

--- X with A X = B for triangular A, either of them complex.
---@param A accel.Tensor (..., n, n)
---@param B accel.Tensor (..., n, k)
---@param upper boolean
---@param unitriangular boolean
---@return accel.Tensor
function M.solve_triangular(A, B, upper, unitriangular)
  A, B = as_complex(A), as_complex(B)
  if not unitriangular then
    local d = A:diagonal(0, -2, -1):unsqueeze(-1)
    A, B = A / d, B / d
  end
  local shape, n = { table.unpack(B.shape) }, B.ndim
  shape[n - 1] = 2 * shape[n - 1]
  local rows = accel.stack({ B:real(), B:imag() }, -2):reshape(shape) -- (..., 2n, k), real and imaginary part in turn
  local X = accel.solve_triangular(blocks(upper and A:triu(1) or A:tril(-1)), rows, upper, true, true)
  shape, n = { table.unpack(X.shape) }, X.ndim
  shape[n - 1], shape[n], shape[n + 1] = shape[n - 1] // 2, 2, shape[n]
  X = X:reshape(shape)
  return accel.complex(X:select(-2, 1), X:select(-2, 2))
end

-- d log det(A) = tr(A^-1 dA): its real part is that of the logarithm of the magnitude, its imaginary part the angle of the sign.
local Slogdet = accel.Function {
  name = "linalg.slogdet",
  forward = function(ctx, A)
    local w = accel.op "linalg_eig"(A:view_as_real(), true):view_as_complex()
    local size = w:abs()
    local sign = accel.polar(size:ne(0):all(-1):to(size.dtype), w:angle():sum { dim = -1 }) -- 0 of a singular matrix
    ctx:save_for_backward(A, sign)
    ctx:set_materialize_grads(false)
    return sign, size:log():sum { dim = -1 }
  end,
  backward = function(ctx, gsign, glog)
    local A, sign = ctx:saved_tensors()
    local H = A:transpose(-1, -2):conj()
    local inverse = M.solve(H, accel.eye(A.shape[A.ndim], { dtype = A:real().dtype, device = A.device }))
    local zeros = accel.zeros_like(sign:real())
    local by = accel.complex(glog or zeros, gsign and -(gsign:conj() * sign):imag() or zeros)
    return inverse * by:unsqueeze(-1):unsqueeze(-1)
  end,
}

--- The sign of the determinant, of magnitude 1, and the logarithm of its magnitude, from the eigenvalues.
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor, accel.Tensor
function M.slogdet(A) return Slogdet(A) end

return M
