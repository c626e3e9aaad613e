--- The functions of nn.init that few models need, loaded on first use: structured and truncated initial values.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local init = require "accel.nn.initialization"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function need_tensor(who, t)
  if not tensors.is_tensor(t) then raise("%s: expected a tensor, got %s", who, check.shown(t)) end
end

--- Ones on the diagonal of a matrix.
--- example: accel.nn.init.eye_(accel.empty(2, 3)) --> { { 1, 0, 0 }, { 0, 1, 0 } }
---@param t accel.Tensor
---@return accel.Tensor t
function M.eye_(t)
  need_tensor("eye_", t)
  local shape = t.shape
  if #shape ~= 2 then raise("eye_: expected a matrix, got shape %s", tensors.shape_string(t)) end
  local _ <close> = accel.no_grad()
  return t:copy_(accel.eye(shape[1], shape[2], { device = t.device }))
end

local dirac_arguments = arguments("dirac_", { "groups", 1 })

--- A convolution's weight [out, in / groups, spatial ...] that passes as many channels through as it can.
--- example: accel.nn.init.dirac_(accel.empty(2, 1, 3)) --> { { { 0, 1, 0 } }, { { 0, 0, 0 } } }
---@param t accel.Tensor
---@param ... any groups by position or in one table
---@return accel.Tensor t
function M.dirac_(t, ...)
  local o = dirac_arguments(...)
  need_tensor("dirac_", t)
  local groups = check.positive("dirac_", "groups", o.groups)
  local shape = t.shape
  if #shape < 3 or #shape > 5 then
    raise("dirac_: expected 3, 4 or 5 dimensions, got shape %s", tensors.shape_string(t))
  end
  if shape[1] % groups ~= 0 then
    raise("dirac_: %d output channels are not a multiple of %d groups", shape[1], groups)
  end
  local _ <close> = accel.no_grad()
  t:zero_()
  local each = shape[1] // groups
  for g = 0, groups - 1 do
    for d = 1, math.min(each, shape[2]) do
      local at = t:detach():select(1, g * each + d):select(1, d)
      for i = 3, #shape do at = at:select(1, shape[i] // 2 + 1) end
      at:fill_(1)
    end
  end
  return t
end

local orthogonal_arguments = arguments("orthogonal_", { "gain", 1.0 }, { "generator" })

--- Orthogonal rows (or columns, if there are more rows) of length gain, uniformly distributed. Tensors of more than two
--- dimensions count as a matrix [first, rest].
--- example: local q = accel.nn.init.orthogonal_(accel.empty(2, 3)) return q:matmul(q:t()) --> { { 1, 0 }, { 0, 1 } }
---@param t accel.Tensor
---@param ... any gain, generator by position or in one table
---@return accel.Tensor t
function M.orthogonal_(t, ...)
  local o = orthogonal_arguments(...)
  need_tensor("orthogonal_", t)
  local shape = t.shape
  if #shape < 2 then
    raise("orthogonal_: expected at least 2 dimensions, got shape %s", tensors.shape_string(t))
  end
  if t:numel() == 0 then return t end
  local _ <close> = accel.no_grad()
  local rows, columns = shape[1], t:numel() // shape[1]
  local exact = t.dtype == "f64" and "f64" or "f32"
  local flat = accel.empty(rows, columns, { dtype = exact, device = t.device }):normal_(0, 1, o.generator)
  if rows < columns then flat = flat:t() end
  local q, r = accel.qr(flat)
  -- The signs of R's diagonal, without which Q would not be uniformly distributed.
  q = q * accel.diagonal(r):sign()
  if rows < columns then q = q:t() end
  t:copy_(q:reshape(shape))
  if o.gain ~= 1 then t:mul_(o.gain) end
  return t
end

--- x with erf(x) = y, in f64: a rough formula (Winitzki) and Newton's method.
local function erfinv(y)
  local a = 0.147
  local log = ((-y + 1) * (y + 1)):log()
  local half = log * 0.5 + 2 / (math.pi * a)
  local x = (((half * half - log / a):sqrt() - half):clamp(0, nil)):sqrt() * y:sign()
  for _ = 1, 4 do
    x = x - (accel.erf(x) - y) * (x * x):exp() * (math.sqrt(math.pi) / 2)
  end
  return x
end

local trunc_normal_arguments = arguments("trunc_normal_", { "mean", 0.0 }, { "std", 1.0 }, { "low", -2.0 }, { "high", 2.0 }, { "generator" })

--- Normal values limited to low .. high (-2 .. 2), by the inverse of the distribution function.
--- example: accel.nn.init.trunc_normal_(accel.empty(100), 0, 1, -0.5, 0.5):abs():le(0.5):all() --> true
---@param t accel.Tensor
---@param ... any mean, std, low, high, generator by position or in one table
---@return accel.Tensor t
function M.trunc_normal_(t, ...)
  local o = trunc_normal_arguments(...)
  need_tensor("trunc_normal_", t)
  local mean, std, low, high = o.mean, o.std, o.low, o.high
  if low >= high or not (mean > low - 4 * std and mean < high + 4 * std) then
    raise "trunc_normal_: the interval holds almost nothing of the distribution"
  end
  local _ <close> = accel.no_grad()
  local ends = accel.erf(accel.tensor({ (low - mean) / std, (high - mean) / std }, { dtype = "f64", device = "cpu" })
    / math.sqrt(2)):tolist()
  local y = accel.empty(t.shape, { dtype = "f64", device = t.device }):uniform_(ends[1], ends[2], o.generator)
  local x = erfinv(y:clamp(-1 + 2 ^ -52, 1 - 2 ^ -52)) * (std * math.sqrt(2)) + mean
  t:copy_(x:clamp(low, high))
  return t
end

local sparse_arguments = arguments("sparse_", { "std", 0.01 }, { "generator" })

--- Normal values of standard deviation std (0.01), of which a part (sparsity) of each column is zero.
--- example: accel.nn.init.sparse_(accel.empty(4, 3), 0.5):eq(0):sum(1) --> { 2, 2, 2 }
---@param t accel.Tensor
---@param sparsity number
---@param ... any std, generator by position or in one table
---@return accel.Tensor t
function M.sparse_(t, sparsity, ...)
  local o = sparse_arguments(...)
  need_tensor("sparse_", t)
  check.number("sparse_", "sparsity", sparsity, 0, 1)
  if t.ndim ~= 2 then raise("sparse_: expected a matrix, got shape %s", tensors.shape_string(t)) end
  local _ <close> = accel.no_grad()
  local rows = t:size(1)
  local zeros = math.ceil(sparsity * rows)
  init.normal_(t, 0, o.std, o.generator)
  if zeros == 0 then return t end
  -- The rows with the smallest of independent draws are a uniform choice.
  local draws = accel.empty(t.shape, { device = t.device }):uniform_(0, 1, o.generator)
  t:mul_(accel.argsort(accel.argsort(draws, 1), 1):ge(zeros):to(t.dtype))
  return t
end

return M
