--- accel.linalg: determinants, powers, the exponential and norms of matrices, products of vectors.
local accel = require "accel.core"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local complex = require "accel.linalg.complex"
local factors = require "accel.linalg.factors"
local raise = require "accel.util.raise"
local solvers = require "accel.linalg.solvers"
local tensors = require "accel.util.tensors"

local matrix, mT = common.matrix, common.mT

local M = {}

local parse_vecdot = arguments("linalg.vecdot", { "dim", -1 })
local parse_cross = arguments("linalg.cross", { "dim", -1 })
local parse_diagonal = arguments("linalg.diagonal", { "offset", 0 }, { "dim1", -2 }, { "dim2", -1 })
local parse_vander = arguments("linalg.vander", { "N" })
local parse_vector_norm = arguments("linalg.vector_norm", { "ord", 2 }, { "dim", list = true }, { "keepdim", false }, { "dtype" })
local parse_norm = arguments("linalg.norm", { "ord", any = true }, { "dim", list = true }, { "keepdim", false }, { "dtype" })
local parse_cond = arguments("linalg.cond", { "p", any = true })

--- +1 or -1 for each permutation, by its exchanges.
local function parity(LU, pivots)
  local own = accel.arange(1, pivots.shape[pivots.ndim] + 1, { device = pivots.device })
  local odd = pivots:ne(own):sum { dim = -1 } % 2
  return (1 - 2 * odd):to(LU.dtype)
end

local function diagonal(x) return x:diagonal(0, -2, -1) end

--- The matrix of cofactors by singular values: det(U) det(Vh) U diag(products of the other values) Vh. It exists for every A.
local function cofactors(A)
  local u, s, vh = accel.svd(A)
  local n = A.shape[A.ndim]
  local others = s:unsqueeze(-2):masked_fill(accel.eye(n, { dtype = "bool", device = A.device }), 1):prod { dim = -1 }
  local sign = M.det(u) * M.det(vh)
  return (u * (others * sign:unsqueeze(-1)):unsqueeze(-2)):matmul(vh)
end

-- dA = g det(A) A^-T, for singular A g times its cofactors.
local Det = accel.Function {
  name = "linalg.det",
  forward = function(ctx, A)
    ctx:save_for_backward(A)
    local LU, pivots = accel.lu_factor_ex(A)
    return diagonal(LU):prod { dim = -1 } * parity(LU, pivots)
  end,
  backward = function(ctx, g)
    local A = ctx:saved_tensors()
    local eye, d = common.eye(A, A.shape[A.ndim]), M.det(A)
    g, d = g:unsqueeze(-1):unsqueeze(-1), d:unsqueeze(-1):unsqueeze(-1)
    -- by the factors that gave d: what rounding left of a zero pivot cancels
    local inverse, info = accel.solve_ex(A, eye * d)
    local singular = info:ne(0):unsqueeze(-1):unsqueeze(-1)
    if d.device:find "^meta" or not singular:any():item() then return g * mT(inverse) end
    inverse = accel.solve_ex(accel.where(singular, eye, A), eye * d) -- no infinities in what is not taken
    return g * accel.where(singular, cofactors(A), mT(inverse))
  end,
}

--- The determinant. Its gradient exists for singular matrices as well.
--- example: accel.linalg.det(accel.tensor { { 2.0, 1.0 }, { 1.0, 3.0 } }) --> 5
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function M.det(A, ...)
  check.surplus("linalg.det", ...)
  matrix("linalg.det", "A", A, true)
  if A:is_complex() then
    local sign, logabsdet = complex.slogdet(A)
    return sign * logabsdet:exp()
  end
  return Det(A)
end

--- The sign of the determinant and the logarithm of its magnitude, which cannot overflow: -inf for singular matrices.
--- example: local sign, logabsdet = accel.linalg.slogdet(accel.tensor { { 0.0, 1.0 }, { 1.0, 0.0 } }) return sign, logabsdet --> -1, 0
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor, accel.Tensor
function M.slogdet(A, ...)
  check.surplus("linalg.slogdet", ...)
  matrix("linalg.slogdet", "A", A, true)
  if A:is_complex() then return complex.slogdet(A) end
  local LU, pivots = accel.lu_factor_ex(A)
  local d = diagonal(LU)
  local sign = d:sign():prod { dim = -1 } * parity(LU, pivots)
  return sign, d:abs():log():sum { dim = -1 }
end

--- The logarithm of the determinant: NaN if it is negative. Also accel.logdet.
--- example: accel.linalg.logdet(accel.tensor { { 1.0, 0.0 }, { 0.0, 1.0 } }) --> 0
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function M.logdet(A, ...)
  check.surplus("linalg.logdet", ...)
  local sign, value = M.slogdet(A)
  return accel.where(sign:lt(0), 0 / 0, value)
end

--- A to the power n, by squaring. Negative powers take the inverse first.
--- example: accel.linalg.matrix_power(accel.tensor { { 1.0, 1.0 }, { 0.0, 1.0 } }, 5) --> { { 1, 5 }, { 0, 1 } }
---@param A accel.Tensor (..., n, n)
---@param n integer
---@return accel.Tensor
function M.matrix_power(A, n, ...)
  check.surplus("linalg.matrix_power", ...)
  matrix("linalg.matrix_power", "A", A, true)
  n = check.integer("linalg.matrix_power", "n", n)
  if n == 0 then return common.same(common.eye(A, A.shape[A.ndim]), A) end
  if n < 0 then A, n = solvers.inv(A), -n end
  local out
  while true do
    if n % 2 == 1 then out = out and out:matmul(A) or A end
    n = n // 2
    if n == 0 then return out end
    A = A:matmul(A)
  end
end

--- e^A = I + A + A^2 / 2 + ..., by Taylor's polynomial of degree 16 for A / 2^s, whose 1-norm is at most 1/2, squared s times.
--- example: accel.linalg.matrix_exp(accel.tensor { { 0.0, 1.0 }, { 0.0, 0.0 } }) --> { { 1, 1 }, { 0, 1 } }
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function M.matrix_exp(A, ...)
  check.surplus("linalg.matrix_exp", ...)
  matrix("linalg.matrix_exp", "A", A, true)
  local n, dtype = A.shape[A.ndim], A.dtype
  if A:numel() == 0 then return A:clone() end
  if dtype == "f16" or dtype == "bf16" then A = A:to "f32" end
  local squarings = 0
  if not A.device:find "^meta" then
    local size = A:detach():abs():sum { dim = -2 }:amax():item()
    if size > 0.5 and size < math.huge then squarings = math.ceil(math.log(size / 0.5, 2)) end
  end
  local x, eye = A * 2.0 ^ -squarings, common.eye(A, n)
  local y = eye + x / 16
  for k = 15, 1, -1 do y = eye + x:matmul(y) / k end
  for _ = 1, squarings do y = y:matmul(y) end
  return y:to(dtype)
end

--- The product of a list of matrices, in the order of the fewest multiplications. The first and the last may be vectors.
--- example: accel.linalg.multi_dot { accel.ones(2, 3), accel.ones(3, 4), accel.ones(4) } --> { 12, 12 }
---@param list accel.Tensor[]
---@return accel.Tensor
function M.multi_dot(list, ...)
  check.surplus("linalg.multi_dot", ...)
  return accel.multi_dot(list)
end

--- The product of matrices or batches of them: accel.matmul.
--- example: accel.linalg.matmul(accel.ones(1, 2), accel.ones(2, 1)) --> { { 2 } }
---@param x accel.Tensor
---@param y accel.Tensor
---@return accel.Tensor
function M.matmul(x, y, ...)
  check.surplus("linalg.matmul", ...)
  return accel.matmul(x, y)
end

--- Sums of products along dim, of batches that broadcast. Complex x is conjugated.
--- example: accel.linalg.vecdot(accel.tensor { { 1.0, 2.0 } }, accel.tensor { { 3.0, 4.0 } }) --> { 11 }
---@param x accel.Tensor
---@param y accel.Tensor
---@param ... any dim = -1, or a table of it
---@return accel.Tensor
function M.vecdot(x, y, ...)
  local dim = parse_vecdot(...).dim
  common.tensor("linalg.vecdot", "x", x)
  common.tensor("linalg.vecdot", "y", y)
  return ((x:is_complex() and x:conj() or x) * y):sum { dim = dim }
end

--- The vector product along a dim of 3 elements, of batches that broadcast.
--- example: accel.linalg.cross(accel.tensor { 1.0, 0.0, 0.0 }, accel.tensor { 0.0, 1.0, 0.0 }) --> { 0, 0, 1 }
---@param x accel.Tensor
---@param y accel.Tensor
---@param ... any dim = -1, or a table of it
---@return accel.Tensor
function M.cross(x, y, ...)
  local dim = parse_cross(...).dim
  common.tensor("linalg.cross", "x", x)
  common.tensor("linalg.cross", "y", y)
  if x.ndim ~= y.ndim then
    raise("linalg.cross: x and y must have as many dims, got shapes %s and %s", tensors.shape_string(x), tensors.shape_string(y))
  end
  if x:size(dim) ~= 3 or y:size(dim) ~= 3 then
    raise("linalg.cross: dim %d must have 3 elements, got shapes %s and %s", dim, tensors.shape_string(x), tensors.shape_string(y))
  end
  local function turned(t, by) return t:roll(by, dim) end
  return turned(x, -1) * turned(y, -2) - turned(x, -2) * turned(y, -1)
end

--- The diagonals of matrices, as a view.
--- example: accel.linalg.diagonal(accel.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }) --> { 1, 4 }
---@param A accel.Tensor
---@param ... any offset = 0, dim1 = -2, dim2 = -1, or a table of them
---@return accel.Tensor
function M.diagonal(A, ...)
  local o = parse_diagonal(...)
  return common.tensor("linalg.diagonal", "A", A):diagonal(o.offset, o.dim1, o.dim2)
end

--- The matrices whose column j holds the powers j - 1 of x.
--- example: accel.linalg.vander(accel.tensor { 2.0, 3.0 }, { N = 3 }) --> { { 1, 2, 4 }, { 1, 3, 9 } }
---@param x accel.Tensor (..., n)
---@param ... any N = n, or a table of it
---@return accel.Tensor
function M.vander(x, ...)
  local N = parse_vander(...).N
  common.tensor("linalg.vander", "x", x)
  if x.ndim == 0 then x = x:reshape(1) end
  N = N == nil and x.shape[x.ndim] or check.positive("linalg.vander", "N", N)
  local shape = { table.unpack(x.shape) }
  shape[#shape + 1] = N
  local ones = accel.ones_like(x:unsqueeze(-1))
  if N == 1 then return ones end
  shape[#shape] = N - 1
  return accel.cat({ ones, x:unsqueeze(-1):expand(shape):cumprod(-1) }, -1)
end

--- The p-norm of the elements along dim (all of them if dim is left out): any number, math.huge and -math.huge the largest and
--- smallest magnitude, 0 the number of elements that are not 0. dtype: they are cast to it first.
--- example: accel.linalg.vector_norm(accel.tensor { { 3.0, 4.0 }, { 0.0, -2.0 } }, { dim = 2 }) --> { 5, 2 }
---@param x accel.Tensor
---@param ... any ord = 2, dim, keepdim = false, dtype, or a table of them
---@return accel.Tensor
function M.vector_norm(x, ...)
  local o = parse_vector_norm(...)
  common.tensor("linalg.vector_norm", "x", x)
  if o.dtype then x = x:to(o.dtype) end
  if x:numel() == 0 and (o.ord < 0 or o.ord == math.huge) then
    local empty = o.dim == nil
    for _, d in ipairs(type(o.dim) == "table" and o.dim or { o.dim }) do empty = empty or x:size(d) == 0 end
    if empty then raise("linalg.vector_norm: the norm of order %s of no elements is not defined", check.shown(o.ord)) end
  end
  return x:norm(o.ord, o.dim, o.keepdim)
end

local function nuclear(A) return factors.svdvals(A):sum { dim = -1 } end

--- Norms of matrices that lie in the last two dims.
local function norm_of(A, ord)
  if ord == "fro" then return A:norm(2, { -2, -1 }) end
  if ord == "nuc" then return nuclear(A) end
  if ord == 2 then return factors.svdvals(A):amax { dim = -1 } end
  if ord == -2 then return factors.svdvals(A):amin { dim = -1 } end
  if ord == 1 or ord == -1 then
    local sums = A:abs():sum { dim = -2 }
    return ord > 0 and sums:amax { dim = -1 } or sums:amin { dim = -1 }
  elseif ord == math.huge or ord == -math.huge then
    local sums = A:abs():sum { dim = -1 }
    return ord > 0 and sums:amax { dim = -1 } or sums:amin { dim = -1 }
  end
  raise("linalg.matrix_norm: order %s is not supported; use 'fro', 'nuc', 1, -1, 2, -2, math.huge or -math.huge", check.shown(ord))
end

local parse_matrix_norm = arguments("linalg.matrix_norm", { "ord", "fro", any = true }, { "dim", list = true }, { "keepdim", false },
  { "dtype" })

--- The norm of matrices: "fro" the length of all elements, "nuc" the sum of the singular values, 2 and -2 the largest and smallest
--- of them, 1 and -1 the largest and smallest sum of a column's magnitudes, math.huge and -math.huge of a row's.
--- example: accel.linalg.matrix_norm(accel.tensor { { 1.0, -2.0 }, { 3.0, 4.0 } }, 1) --> 6
---@param A accel.Tensor
---@param ... any ord = "fro", dim = { -2, -1 }, keepdim = false, dtype, or a table of them
---@return accel.Tensor
function M.matrix_norm(A, ...)
  local o = parse_matrix_norm(...)
  matrix("linalg.matrix_norm", "A", A)
  if o.dtype then A = A:to(o.dtype) end
  local dim = o.dim or { -2, -1 }
  if type(dim) ~= "table" or #dim ~= 2 then raise("linalg.matrix_norm: dim must be a list of 2 dims, got %s", check.shown(dim)) end
  local a, b = dim[1] < 0 and dim[1] + A.ndim + 1 or dim[1], dim[2] < 0 and dim[2] + A.ndim + 1 or dim[2]
  if a == b then raise("linalg.matrix_norm: the dims must differ, got %d twice", dim[1]) end
  local order = {}
  for d = 1, A.ndim do
    if d ~= a and d ~= b then order[#order + 1] = d end
  end
  order[#order + 1], order[#order + 2] = a, b
  local y = norm_of(A:permute(order), o.ord)
  if o.keepdim then y = y:unsqueeze(math.min(a, b)):unsqueeze(math.max(a, b)) end
  return y
end

--- vector_norm of the elements if ord is left out or dim is one dim or the tensor has one, otherwise matrix_norm.
--- example: accel.linalg.norm(accel.tensor { { 1.0, -2.0 }, { 3.0, 4.0 } }, 1) --> 6
---@param x accel.Tensor
---@param ... any ord, dim, keepdim = false, dtype, or a table of them
---@return accel.Tensor
function M.norm(x, ...)
  local o = parse_norm(...)
  common.tensor("linalg.norm", "x", x)
  local dims = type(o.dim) == "table" and #o.dim or o.dim and 1
  if dims and dims > 2 and o.ord ~= nil then raise("linalg.norm: dim must name one or two dims, got %d", dims) end
  if o.ord ~= nil and not dims and x.ndim ~= 1 and x.ndim ~= 2 then
    raise("linalg.norm: x must have one or two dims if ord is given without dim, got shape %s", tensors.shape_string(x))
  end
  if o.ord ~= nil and (dims == 2 or not dims and x.ndim == 2) then return M.matrix_norm(x, o) end
  if type(o.ord) == "string" then raise("linalg.norm: order '%s' is a norm of matrices; give two dims", o.ord) end
  o.ord = o.ord or 2
  return M.vector_norm(x, o)
end

--- The condition number |A| |A^-1| in a norm of matrix_norm. Default: largest over smallest singular value.
--- example: accel.linalg.cond(accel.tensor { { 4.0, 0.0 }, { 0.0, 2.0 } }) --> 2
---@param A accel.Tensor (..., m, n), square unless p is left out, 2 or -2
---@param ... any p, or a table of it
---@return accel.Tensor
function M.cond(A, ...)
  local p = parse_cond(...).p or 2
  matrix("linalg.cond", "A", A)
  if p == 2 or p == -2 then
    local s = factors.svdvals(A)
    local k = s.shape[s.ndim]
    local large, small = s:select(-1, 1), s:select(-1, k)
    return p == 2 and large / small or small / large
  end
  matrix("linalg.cond", "A", A, true)
  local inverse, info = solvers.inv_ex(A)
  local y = M.matrix_norm(A, p) * M.matrix_norm(accel.where(info:eq(0):unsqueeze(-1):unsqueeze(-1), inverse, 0.0), p)
  return accel.where(info:eq(0), y, math.huge)
end

return M
