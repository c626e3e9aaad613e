--- What the files of accel.linalg share: checks of arguments, messages that name a matrix of a batch, small tensors.
local accel = require "accel.core"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

---@param who string "linalg.inv"
---@param name string name of the argument
---@param x any
---@return accel.Tensor
function M.tensor(who, name, x)
  if not tensors.is_tensor(x) then raise("%s: %s must be a tensor, got %s", who, name, check.shown(x)) end
  return x
end

--- A matrix or a batch of them, square if asked.
---@param who string
---@param name string
---@param x any
---@param square? boolean
---@return accel.Tensor
function M.matrix(who, name, x, square)
  M.tensor(who, name, x)
  local shape = x.shape
  if #shape < 2 then
    raise("%s: %s must be a matrix or a batch of them, got shape %s", who, name, tensors.shape_string(x))
  end
  if square and shape[#shape] ~= shape[#shape - 1] then
    raise("%s: %s must be square, or a batch of square matrices, got shape %s", who, name, tensors.shape_string(x))
  end
  return x
end

--- Raises if an element of info is not 0: says which matrix, by its position in the batch, and what is wrong with it.
---@param who string
---@param info accel.Tensor
---@param text string what is wrong, with %d for the value
function M.succeed(who, info, text)
  if info.device:find "^meta" or info:numel() == 0 then return end
  if info:abs():amax():item() == 0 then return end
  local values, at = info:reshape { -1 }:tolist(), 1
  while values[at] == 0 do at = at + 1 end
  local which = "the matrix"
  if info.ndim > 0 then
    local rest, position = at - 1, {}
    for d = info.ndim, 1, -1 do
      position[d] = tostring(rest % info.shape[d] + 1)
      rest = rest // info.shape[d]
    end
    which = ("matrix [%s] of the batch"):format(table.concat(position, ", "))
  end
  raise("%s: %s %s", who, which, text:format(values[at]))
end

--- Raises for integers and complex numbers: the kernels of factorisations take real floats.
---@param who string
---@param x accel.Tensor
function M.real(who, x)
  if x:is_floating_point() then return end
  raise("%s: expected a real float tensor, got %s%s", who, x.dtype, x:is_complex() and "" or '; convert it by x:to "f32"')
end

M.singular = "is singular: element %d of the diagonal of U is zero; use linalg.lstsq or linalg.pinv for such matrices"
M.singular_complex = "is singular; use linalg.eig to look at its eigenvalues"
M.indefinite = "is not positive definite: its leading block of order %d has no factor; use linalg.cholesky_ex to look at each matrix"

--- Raises if the results of a decomposition are not finite, because the input was not.
---@param who string
---@param values accel.Tensor
function M.finite(who, values)
  if values.device:find "^meta" or values:numel() == 0 or values:isfinite():all():item() then return end
  raise("%s: the input contains NaN or infinity, or the algorithm did not converge", who)
end

---@param like accel.Tensor
---@param n integer
---@param m? integer
function M.eye(like, n, m) return accel.eye(n, m or n, { dtype = like.dtype, device = like.device }) end

--- The matrix for every matrix of A, whose gradient it has: zeros.
---@param matrix accel.Tensor
---@param A accel.Tensor
---@return accel.Tensor
function M.same(matrix, A) return accel.where(accel.ones_like(A:detach(), { dtype = "bool" }), matrix, A) end

---@param x accel.Tensor
function M.mT(x) return x:transpose(-1, -2) end

--- The transpose, of complex matrices with conjugates.
---@param x accel.Tensor
function M.mH(x)
  local t = x:transpose(-1, -2)
  return x:is_complex() and t:conj() or t
end

local EPS <const> = { f64 = 0x1p-52, c128 = 0x1p-52, f32 = 0x1p-23, c64 = 0x1p-23, bf16 = 0x1p-7, f16 = 0x1p-10 }

--- The distance from 1 to the next number of a dtype.
---@param dtype string
function M.eps(dtype) return EPS[dtype] or EPS.f32 end

--- The bounds below which singular values count as zero, with PyTorch's defaults: max(atol, rtol * largest).
---@param A accel.Tensor
---@param largest accel.Tensor (...)
---@param atol? number|accel.Tensor
---@param rtol? number|accel.Tensor
---@return accel.Tensor
function M.bounds(A, largest, atol, rtol)
  if rtol == nil then
    local given = atol ~= nil and (type(atol) ~= "number" or atol > 0)
    rtol = given and 0 or M.eps(A.dtype) * math.max(A.shape[A.ndim], A.shape[A.ndim - 1])
  end
  local bound = largest * rtol
  if atol == nil then return bound end
  if type(atol) == "number" then return bound:clamp { min = atol } end
  return accel.maximum(atol:to(bound.dtype), bound)
end

--- Order of rows from LAPACK's pivots (..., k): row i of L U is row order[i] of m rows, from 0.
---@param pivots accel.Tensor
---@param m integer
---@return accel.Tensor
function M.order(pivots, m)
  local k = pivots.shape[pivots.ndim]
  local shape = { table.unpack(pivots.shape) }
  shape[#shape] = m
  local flat, out = pivots:reshape { -1 }:tolist(), {}
  for b = 0, (k > 0 and #flat // k or 0) - 1 do
    for i = 1, m do out[b * m + i] = i - 1 end
    for i = 1, k do
      local p = flat[b * k + i]
      if p < 1 or p > m then raise("lu: pivots must lie between 1 and %d, got %d", m, p) end
      out[b * m + i], out[b * m + p] = out[b * m + p], out[b * m + i]
    end
  end
  if k == 0 then return accel.arange(m, { device = pivots.device }):expand(shape) end
  return accel.tensor(out, { dtype = "i64", device = pivots.device }):reshape(shape)
end

--- Rows of x (..., m, n) in an order (..., m), whose batches broadcast.
---@param x accel.Tensor
---@param order accel.Tensor
---@return accel.Tensor
function M.rows(x, order)
  local shape, n = { table.unpack(x.shape) }, x.ndim
  for i = 1, n - 2 do
    local j = order.ndim - 1 - (n - 2) + i
    if j >= 1 and shape[i] == 1 then shape[i] = order.shape[j] end
  end
  for i = order.ndim - 1 - (n - 2), 1, -1 do table.insert(shape, 1, order.shape[i]) end
  return x:expand(shape):gather(-2, order:unsqueeze(-1):expand(shape))
end

--- Raises if the loss depends on the phases of vectors, which are free: part, V^H dV, has an imaginary diagonal then. Waits for the device.
---@param who string
---@param part accel.Tensor complex
---@param instead string what the loss may use
function M.check_phases(who, part, instead)
  if part.device:find "^meta" or part:numel() == 0 then return end
  local most = part:abs():amax():item()
  local phase = part:diagonal(0, -2, -1):imag():abs():amax():item()
  if phase > (part.dtype == "c64" and 1e-4 or 1e-6) * math.max(1, most) then
    raise("%s: the loss depends on the phases of the vectors, which are free; use %s", who, instead)
  end
end

return M
