--- Activations of nn.functional that are compositions of ops.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local F = {}

--- x / (1 + |x|).
--- example: accel.nn.functional.softsign(accel.tensor { 1.0, -3.0 }) --> { 0.5, -0.75 }
---@param x accel.Tensor
---@return accel.Tensor
function F.softsign(x) return x / (x:abs() + 1) end

--- x - tanh(x).
--- example: accel.nn.functional.tanhshrink(accel.tensor { 1.0 }) --> { 0.238406 }
---@param x accel.Tensor
---@return accel.Tensor
function F.tanhshrink(x) return x - x:tanh() end

--- softmax(-x) along dim.
--- example: accel.nn.functional.softmin(accel.tensor { 0.0, 1.0 }, 1) --> { 0.731059, 0.268941 }
---@param x accel.Tensor
---@param dim integer
---@return accel.Tensor
function F.softmin(x, dim) return accel.softmax(-x, dim) end

--- x above threshold, value elsewhere.
--- example: accel.nn.functional.threshold(accel.tensor { 0.5, 2.0 }, 1, 7) --> { 7, 2 }
---@param x accel.Tensor
---@param threshold number
---@param value number
---@return accel.Tensor
function F.threshold(x, threshold, value) return accel.where(x:gt(threshold), x, value) end

--- x outside of -lambd .. lambd (0.5), 0 inside.
--- example: accel.nn.functional.hardshrink(accel.tensor { -1.0, 0.5, 0.75 }) --> { -1, 0, 0.75 }
---@param x accel.Tensor
---@param lambd? number
---@return accel.Tensor
function F.hardshrink(x, lambd) return accel.where(x:abs():gt(lambd or 0.5), x, 0) end

--- x moved towards 0 by lambd (0.5), 0 in between.
--- example: accel.nn.functional.softshrink(accel.tensor { -1.0, 0.25, 0.75 }) --> { -0.5, 0, 0.25 }
---@param x accel.Tensor
---@param lambd? number at least 0
---@return accel.Tensor
function F.softshrink(x, lambd)
  lambd = check.number("softshrink", "lambd", lambd == nil and 0.5 or lambd, 0)
  return x - x:clamp(-lambd, lambd)
end

--- a * sigmoid(b), a and b the halves of dim (-1).
--- example: accel.nn.functional.glu(accel.tensor { 3.0, 0.0 }) --> { 1.5 }
---@param x accel.Tensor
---@param dim? integer
---@return accel.Tensor
function F.glu(x, dim)
  dim = dim or -1
  local size = x:size(dim)
  if size % 2 ~= 0 then raise("glu: dimension %d must be even to be halved, it is %d", dim, size) end
  local halves = x:chunk(2, dim)
  return halves[1] * halves[2]:sigmoid()
end

--- x above 0, weight * x below. One weight, or one for each channel (dimension 2; 1 of a vector).
--- example: accel.nn.functional.prelu(accel.tensor { -1.0, 2.0 }, accel.tensor { 0.25 }) --> { -0.25, 2 }
---@param x accel.Tensor
---@param weight accel.Tensor
---@return accel.Tensor
function F.prelu(x, weight)
  local n = weight:numel()
  if n > 1 then
    local channels = x.ndim >= 2 and x:size(2) or x.ndim == 1 and x:size(1) or 1
    if n ~= channels then raise("prelu: %d weights do not fit an input of %d channels", n, channels) end
  end
  local shape = {}
  if x.ndim >= 2 then
    for i = 1, x.ndim do shape[i] = i == 2 and n or 1 end
  elseif x.ndim == 1 then
    shape[1] = n
  end
  return accel.where(x:gt(0), x, x * weight:view(shape))
end

local gumbel_arguments = arguments("gumbel_softmax", { "tau", 1.0 }, { "hard", false }, { "dim" })

--- Draws from the categorical distribution of logits so that gradients flow: softmax((logits + Gumbel noise) /
--- tau). hard = true gives one-hot values with the gradients of the soft ones. Named: tau = 1, hard = false,
--- dim = -1.
--- example: accel.nn.functional.gumbel_softmax(accel.zeros(3, 4), { hard = true }):sum(2) --> { 1, 1, 1 }
---@param logits accel.Tensor
---@param ... any tau, hard, dim by position or in one table
---@return accel.Tensor
function F.gumbel_softmax(logits, ...)
  local o = gumbel_arguments(...)
  local dim = o.dim or -1
  local noise
  do
    local _ <close> = accel.no_grad()
    local tiny = 1.1754943508222875e-38 -- keeps log away from 0
    noise = -(-(accel.rand_like(logits):clamp(tiny, nil):log())):clamp(tiny, nil):log()
  end
  local soft = accel.softmax((logits + noise) / o.tau, dim)
  if not o.hard then return soft end
  local hard
  do
    local _ <close> = accel.no_grad()
    local index = soft:argmax(dim, true)
    hard = accel.zeros_like(soft):scatter_add(dim, index, accel.ones_like(index, { dtype = soft.dtype }))
  end
  return hard - soft:detach() + soft
end

return F
