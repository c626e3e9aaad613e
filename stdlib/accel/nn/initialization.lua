--- nn.init: fills tensors in place, outside of any graph, and returns them. Fans, gains and bounds are
--- PyTorch's. Draws come from the global generator, or from options' generator where a function takes options.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function need_tensor(who, t)
  if not tensors.is_tensor(t) then raise("%s: expected a tensor, got %s", who, check.shown(t)) end
end

--- Runs a filling method of t without recording it.
local function fill(who, t, method, ...)
  need_tensor(who, t)
  local _ <close> = accel.no_grad()
  t[method](t, ...)
  return t
end

--- Uniform in low .. high (0 .. 1).
--- example: local t = accel.nn.init.uniform_(accel.empty(100), 2, 3) return t:ge(2):all(), t:le(3):all() --> true, true
---@param t accel.Tensor
---@param low? number
---@param high? number
---@param generator? accel.Generator
---@return accel.Tensor t
function M.uniform_(t, low, high, generator)
  return fill("uniform_", t, "uniform_", low or 0.0, high or 1.0, generator)
end

--- Normal with this mean (0) and standard deviation (1).
--- example: accel.nn.init.normal_(accel.empty(2), 3, 0) --> { 3, 3 }
---@param t accel.Tensor
---@param mean? number
---@param std? number
---@param generator? accel.Generator
---@return accel.Tensor t
function M.normal_(t, mean, std, generator)
  return fill("normal_", t, "normal_", mean or 0.0, std or 1.0, generator)
end

--- example: accel.nn.init.constant_(accel.empty(2), 5) --> { 5, 5 }
---@param t accel.Tensor
---@param value number
---@return accel.Tensor t
function M.constant_(t, value) return fill("constant_", t, "fill_", value) end

--- example: accel.nn.init.ones_(accel.empty(2)) --> { 1, 1 }
---@param t accel.Tensor
---@return accel.Tensor t
function M.ones_(t) return fill("ones_", t, "fill_", 1.0) end

--- example: accel.nn.init.zeros_(accel.empty(2)) --> { 0, 0 }
---@param t accel.Tensor
---@return accel.Tensor t
function M.zeros_(t) return fill("zeros_", t, "zero_") end

--- Ones on the diagonal of a matrix.
--- example: accel.nn.init.eye_(accel.empty(2, 3)) --> { { 1, 0, 0 }, { 0, 1, 0 } }
---@param t accel.Tensor
---@return accel.Tensor t
function M.eye_(t)
  need_tensor("eye_", t)
  local shape = t.shape
  if #shape ~= 2 then raise("eye_: expected a matrix, got shape %s", tensors.shape_string(t)) end
  return fill("eye_", t, "copy_", accel.eye(shape[1], shape[2], { device = t.device }))
end

--- A convolution's weight [out, in / groups, spatial ...] that passes as many channels through as it can.
--- example: accel.nn.init.dirac_(accel.empty(2, 1, 3)) --> { { { 0, 1, 0 } }, { { 0, 0, 0 } } }
---@param t accel.Tensor
---@param groups? integer default 1
---@return accel.Tensor t
function M.dirac_(t, groups)
  need_tensor("dirac_", t)
  groups = check.positive("dirac_", "groups", groups == nil and 1 or groups)
  local shape = t.shape
  if #shape < 3 or #shape > 5 then
    raise("dirac_: expected 3, 4 or 5 dimensions, got shape %s", tensors.shape_string(t))
  end
  if shape[1] % groups ~= 0 then
    raise("dirac_: %d output channels are no multiple of %d groups", shape[1], groups)
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

--- fan_in, fan_out of a weight [out, in, kernel ...]: inputs of one output and outputs of one input, the
--- kernel's places counted.
--- example: accel.nn.init.fans(accel.empty(8, 4, 3, 3)) --> 36, 72
---@param t accel.Tensor
---@return integer fan_in
---@return integer fan_out
function M.fans(t)
  need_tensor("fans", t)
  local shape = t.shape
  if #shape < 2 then
    raise("fan in and fan out need a tensor of at least 2 dimensions, got shape %s", tensors.shape_string(t))
  end
  local field = 1
  for i = 3, #shape do field = field * shape[i] end
  return shape[2] * field, shape[1] * field
end

local gains = {
  linear = 1.0, conv1d = 1.0, conv2d = 1.0, conv3d = 1.0, conv_transpose1d = 1.0, conv_transpose2d = 1.0,
  conv_transpose3d = 1.0, sigmoid = 1.0, tanh = 5 / 3, relu = math.sqrt(2), selu = 0.75,
}

--- The factor by which the values of a layer before this nonlinearity are scaled. a: the negative slope of
--- "leaky_relu" (0.01).
--- example: accel.nn.init.calculate_gain("relu"), accel.nn.init.calculate_gain("leaky_relu", 1) --> 1.414214, 1
---@param nonlinearity string
---@param a? number
---@return number
function M.calculate_gain(nonlinearity, a)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (a or 0.01) ^ 2)) end
  local gain = gains[nonlinearity]
  if not gain then
    local near = type(nonlinearity) == "string" and require "accel.util.nearest"(nonlinearity, gains)
    raise("calculate_gain: unknown nonlinearity %s%s", check.shown(nonlinearity),
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  return gain
end

--- Uniform with variance gain^2 * 2 / (fan_in + fan_out) (Glorot and Bengio 2010).
--- example: accel.nn.init.xavier_uniform_(accel.empty(3, 3)):abs():le(1):all() --> true
---@param t accel.Tensor
---@param gain? number default 1
---@param generator? accel.Generator
---@return accel.Tensor t
function M.xavier_uniform_(t, gain, generator)
  local fan_in, fan_out = M.fans(t)
  local bound = math.sqrt(3) * (gain or 1) * math.sqrt(2 / (fan_in + fan_out))
  return M.uniform_(t, -bound, bound, generator)
end

--- Normal with variance gain^2 * 2 / (fan_in + fan_out).
--- example: accel.nn.init.xavier_normal_(accel.empty(2, 2), 0) --> { { 0, 0 }, { 0, 0 } }
---@param t accel.Tensor
---@param gain? number default 1
---@param generator? accel.Generator
---@return accel.Tensor t
function M.xavier_normal_(t, gain, generator)
  local fan_in, fan_out = M.fans(t)
  return M.normal_(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)), generator)
end

local kaiming_arguments = arguments("kaiming", { "a", 0 }, { "mode", "fan_in" },
  { "nonlinearity", "leaky_relu" }, { "generator" })

local function kaiming(t, ...)
  local o = kaiming_arguments(...)
  local fan_in, fan_out = M.fans(t)
  check.word("kaiming", "mode", o.mode, { "fan_in", "fan_out" })
  local fan = o.mode == "fan_in" and fan_in or fan_out
  return M.calculate_gain(o.nonlinearity, o.a) / math.sqrt(fan), o.generator
end

--- Uniform with variance gain^2 / fan (He et al. 2015). Named or by position: a = 0 (negative slope), mode =
--- "fan_in" or "fan_out", nonlinearity = "leaky_relu", generator.
--- example: accel.nn.init.kaiming_uniform_(accel.empty(4, 6), { nonlinearity = "relu" }):abs():le(1):all() --> true
---@param t accel.Tensor
---@param ... any
---@return accel.Tensor t
function M.kaiming_uniform_(t, ...)
  local std, generator = kaiming(t, ...)
  local bound = math.sqrt(3) * std
  return M.uniform_(t, -bound, bound, generator)
end

--- Normal with variance gain^2 / fan; see kaiming_uniform_.
--- example: accel.nn.init.kaiming_normal_(accel.empty(4, 6), { mode = "fan_out" }).shape --> { 4, 6 }
---@param t accel.Tensor
---@param ... any
---@return accel.Tensor t
function M.kaiming_normal_(t, ...)
  local std, generator = kaiming(t, ...)
  return M.normal_(t, 0, std, generator)
end

--- Rows (or columns, where there are more rows) that are orthogonal and of length gain, uniformly distributed;
--- more than two dimensions count as a matrix [first, rest].
--- example: local q = accel.nn.init.orthogonal_(accel.empty(2, 3)) return q:matmul(q:t()) --> { { 1, 0 }, { 0, 1 } }
---@param t accel.Tensor
---@param gain? number default 1
---@param generator? accel.Generator
---@return accel.Tensor t
function M.orthogonal_(t, gain, generator)
  need_tensor("orthogonal_", t)
  local shape = t.shape
  if #shape < 2 then
    raise("orthogonal_: expected at least 2 dimensions, got shape %s", tensors.shape_string(t))
  end
  if t:numel() == 0 then return t end
  local _ <close> = accel.no_grad()
  local rows, columns = shape[1], t:numel() // shape[1]
  local exact = t.dtype == "f64" and "f64" or "f32"
  local flat = accel.empty(rows, columns, { dtype = exact, device = t.device }):normal_(0, 1, generator)
  if rows < columns then flat = flat:t() end
  local q, r = accel.qr(flat)
  -- The signs of R's diagonal, without which Q would not be uniformly distributed.
  q = q * accel.diagonal(r):sign()
  if rows < columns then q = q:t() end
  t:copy_(q:reshape(shape))
  if gain and gain ~= 1 then t:mul_(gain) end
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

--- Normal values limited to low .. high (-2 .. 2), by the inverse of the distribution function.
--- example: accel.nn.init.trunc_normal_(accel.empty(100), 0, 1, -0.5, 0.5):abs():le(0.5):all() --> true
---@param t accel.Tensor
---@param mean? number
---@param std? number
---@param low? number
---@param high? number
---@param generator? accel.Generator
---@return accel.Tensor t
function M.trunc_normal_(t, mean, std, low, high, generator)
  need_tensor("trunc_normal_", t)
  mean, std, low, high = mean or 0.0, std or 1.0, low or -2.0, high or 2.0
  if low >= high or not (mean > low - 4 * std and mean < high + 4 * std) then
    raise "trunc_normal_: the interval holds next to nothing of the distribution"
  end
  local _ <close> = accel.no_grad()
  local ends = accel.erf(accel.tensor({ (low - mean) / std, (high - mean) / std }, { dtype = "f64", device = "cpu" })
    / math.sqrt(2)):tolist()
  local y = accel.empty(t.shape, { dtype = "f64", device = t.device }):uniform_(ends[1], ends[2], generator)
  local x = erfinv(y:clamp(-1 + 2 ^ -52, 1 - 2 ^ -52)) * (std * math.sqrt(2)) + mean
  t:copy_(x:clamp(low, high))
  return t
end

--- Normal values of standard deviation std (0.01), of which a part (sparsity) of each column is zero.
--- example: accel.nn.init.sparse_(accel.empty(4, 3), 0.5):eq(0):sum(1) --> { 2, 2, 2 }
---@param t accel.Tensor
---@param sparsity number
---@param std? number
---@param generator? accel.Generator
---@return accel.Tensor t
function M.sparse_(t, sparsity, std, generator)
  need_tensor("sparse_", t)
  check.number("sparse_", "sparsity", sparsity, 0, 1)
  if t.ndim ~= 2 then raise("sparse_: expected a matrix, got shape %s", tensors.shape_string(t)) end
  local _ <close> = accel.no_grad()
  local rows = t:size(1)
  local zeros = math.ceil(sparsity * rows)
  M.normal_(t, 0, std or 0.01, generator)
  if zeros == 0 then return t end
  -- The rows with the smallest of independent draws are a uniform choice.
  local draws = accel.empty(t.shape, { device = t.device }):uniform_(0, 1, generator)
  t:mul_(accel.argsort(accel.argsort(draws, 1), 1):ge(zeros):to(t.dtype))
  return t
end

return M
