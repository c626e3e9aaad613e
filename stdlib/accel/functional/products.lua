--- Products and norms made of matmul and others: parts of accel.functional.
local accel = require "accel"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local written = require "accel.functional.written"

local M = {}

--- The sums of products along the last dims: x (..., k), other (... , k) -> (..., ...). A tensor of rank 0 multiplies.
--- example: accel.inner(accel.tensor { 1, 2 }, accel.tensor { 3, 4 }) --> 11
---@param x accel.Tensor
---@param other accel.Tensor
---@return accel.Tensor
function M.inner(x, other)
  if x.ndim == 0 or other.ndim == 0 then return x * other end
  local k = x.shape[-1]
  if k ~= other.shape[-1] then
    raise("inner: the last dims of shapes %s and %s differ", tensors.shape_string(x), tensors.shape_string(other))
  end
  local shape = table.move(other.shape, 1, other.ndim - 1, x.ndim, table.move(x.shape, 1, x.ndim - 1, 1, {}))
  return accel.matmul(x:reshape(-1, k), other:reshape(-1, k):t()):reshape(shape)
end

--- The Kronecker product: every element of x times all of other.
--- example: accel.kron(accel.tensor { 1, 2 }, accel.tensor { 1, 10 }) --> { 1, 10, 2, 20 }
---@param x accel.Tensor
---@param other accel.Tensor
---@return accel.Tensor
function M.kron(x, other)
  local rank, a, b, out = math.max(x.ndim, other.ndim), {}, {}, {}
  for d = 1, rank do
    local m = d > rank - x.ndim and x.shape[d - rank + x.ndim] or 1
    local n = d > rank - other.ndim and other.shape[d - rank + other.ndim] or 1
    a[2 * d - 1], a[2 * d], b[2 * d - 1], b[2 * d], out[d] = m, 1, 1, n, m * n
  end
  return (x:reshape(a) * other:reshape(b)):reshape(out)
end

local function dim_at(who, t, d)
  local at = d < 0 and d + t.ndim + 1 or d
  if at < 1 or at > t.ndim then raise("%s: dim %d is out of range for shape %s", who, d, tensors.shape_string(t)) end
  return at
end

-- t with these dims last (or first), as a matrix; the other extents.
local function matrix(t, dims, first)
  local taken, order, free, k = {}, {}, {}, 1
  for _, d in ipairs(dims) do taken[d], k = true, k * t.shape[d] end
  for d = 1, t.ndim do
    if not taken[d] then order[#order + 1], free[#free + 1] = d, t.shape[d] end
  end
  if first then table.move(order, 1, #order, #dims + 1) end
  table.move(dims, 1, #dims, first and 1 or #order + 1, order)
  local n = 1
  for _, extent in ipairs(free) do n = n * extent end
  return t:permute(order):reshape(first and { k, n } or { n, k }), free
end

--- Sums of products over dims of x and as many of other: the last `dims` of x with the first of other, or two lists of dims.
--- example: accel.tensordot(accel.ones(2, 3), accel.ones(3, 4), { dims = 1 }).shape --> { 2, 4 }
---@param x accel.Tensor
---@param other accel.Tensor
---@param opts? {dims: integer|integer[][]} default 2
---@return accel.Tensor
function M.tensordot(x, other, opts)
  local dims = options("tensordot", opts, { dims = options.none }).dims
  if dims == nil then dims = 2 end
  local a, b = {}, {}
  if math.type(dims) == "integer" then
    if dims < 0 or dims > x.ndim or dims > other.ndim then
      raise("tensordot: dims = %d is out of range for shapes %s and %s", dims, tensors.shape_string(x), tensors.shape_string(other))
    end
    for i = 1, dims do a[i], b[i] = x.ndim - dims + i, i end
  else
    for i, d in ipairs(dims[1]) do a[i] = dim_at("tensordot", x, d) end
    for i, d in ipairs(dims[2]) do b[i] = dim_at("tensordot", other, d) end
  end
  if #a ~= #b then raise("tensordot: %d dims of x and %d of other; give as many", #a, #b) end
  for i = 1, #a do
    if x.shape[a[i]] ~= other.shape[b[i]] then
      raise("tensordot: dim %d of shape %s and dim %d of shape %s differ", a[i], tensors.shape_string(x), b[i], tensors.shape_string(other))
    end
  end
  local left, free = matrix(x, a, false)
  local right, more = matrix(other, b, true)
  return accel.matmul(left, right):reshape(table.move(more, 1, #more, #free + 1, free))
end

--- The p-norm of x - other: a method, since accel.dist is the module for ranks.
--- example: accel.tensor({ 0.0, 0.0 }):dist(accel.tensor { 3.0, 4.0 }) --> 5
---@param x accel.Tensor
---@param other accel.Tensor
---@param p number? default 2
---@return accel.Tensor
function M.dist(x, other, p) return (x - other):norm(p or 2) end

-- beta x + alpha y. With beta 0 x is not read.
local function joined(who, x, y, opts)
  local o = options(who, opts, { beta = 1, alpha = 1 })
  local beta, alpha = o.beta, o.alpha
  if alpha ~= 1 then y = y * alpha end
  if beta == 0 then return y:expand(y.shape) end
  return (beta == 1 and x or x * beta) + y
end

--- beta x + alpha times the sum over the batch of batch1 batch2: (b, m, k), (b, k, n) -> (m, n).
--- example: accel.addbmm(accel.ones(1, 1), accel.ones(2, 1, 3), accel.ones(2, 3, 1)) --> { { 7 } }
---@param x accel.Tensor
---@param batch1 accel.Tensor
---@param batch2 accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor
function M.addbmm(x, batch1, batch2, opts) return joined("addbmm", x, accel.bmm(batch1, batch2):sum(1), opts) end

--- beta x + alpha mat vec: (m, n), (n) -> (m).
--- example: accel.addmv(accel.ones(1), accel.ones(1, 2), accel.ones(2), { alpha = 3 }) --> { 7 }
---@param x accel.Tensor
---@param mat accel.Tensor
---@param vec accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor
function M.addmv(x, mat, vec, opts) return joined("addmv", x, accel.mv(mat, vec), opts) end

--- beta x + alpha times the outer product of vec1 and vec2: (m), (n) -> (m, n).
--- example: accel.addr(accel.ones(1, 2), accel.ones(1), accel.tensor { 1.0, 2.0 }) --> { { 2, 3 } }
---@param x accel.Tensor
---@param vec1 accel.Tensor
---@param vec2 accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor
function M.addr(x, vec1, vec2, opts) return joined("addr", x, accel.outer(vec1, vec2), opts) end

local addbmm_, addmv_, addr_ = written("addbmm_", M.addbmm), written("addmv_", M.addmv), written("addr_", M.addr)
--- addbmm in place.
---@param x accel.Tensor
---@param batch1 accel.Tensor
---@param batch2 accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor x
function M.addbmm_(x, batch1, batch2, opts) return addbmm_(x, batch1, batch2, opts) end
--- addmv in place.
---@param x accel.Tensor
---@param mat accel.Tensor
---@param vec accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor x
function M.addmv_(x, mat, vec, opts) return addmv_(x, mat, vec, opts) end
--- addr in place.
---@param x accel.Tensor
---@param vec1 accel.Tensor
---@param vec2 accel.Tensor
---@param opts? {beta: number?, alpha: number?}
---@return accel.Tensor x
function M.addr_(x, vec1, vec2, opts) return addr_(x, vec1, vec2, opts) end

return M
