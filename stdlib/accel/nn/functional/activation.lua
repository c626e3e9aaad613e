--- Activations of nn.functional that are compositions of ops.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local F = {}

local softmin_arguments = arguments("softmin", { "x" }, { "dim" }, { "dtype" })

--- softmax(-x) along dim, computed in dtype if given.
--- example: accel.nn.functional.softmin(accel.tensor { 0.0, 1.0 }, 1) --> { 0.731059, 0.268941 }
--- example: accel.nn.functional.softmin(accel.zeros(2), { dim = 1, dtype = "f64" }).dtype --> "f64"
---@param x accel.Tensor
---@param ... any dim, dtype by position or in one table
---@return accel.Tensor
function F.softmin(x, ...)
  local o = softmin_arguments(x, ...)
  return accel.softmax(-o.x, o.dim, o.dtype)
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

local rrelu_arguments = arguments("rrelu", { "x" }, { "lower", 1 / 8 }, { "upper", 1 / 3 }, { "training", false }, { "inplace", false })

--- x above 0. Below, x times a slope: in training drawn from lower .. upper for every element, otherwise their mean.
--- example: accel.nn.functional.rrelu(accel.tensor { -2.0, 3.0 }, 0.25, 0.75) --> { -1, 3 }
---@param x accel.Tensor
---@param ... any lower = 1 / 8, upper = 1 / 3, training = false, inplace = false by position or in one table
---@return accel.Tensor
function F.rrelu(x, ...)
  local o = rrelu_arguments(x, ...)
  x = o.x
  local lower, upper = check.number("rrelu", "lower", o.lower), check.number("rrelu", "upper", o.upper)
  if lower > upper then raise("rrelu: lower is %g, above upper, %g", lower, upper) end
  local drawn = o.training and lower < upper
  if not drawn and not o.inplace then return accel.leaky_relu(x, (lower + upper) / 2) end
  local slope
  do
    local _ <close> = accel.no_grad()
    slope = drawn and accel.empty_like(x):uniform_(lower, upper) or (lower + upper) / 2
    slope = accel.where(x:le(0), slope, accel.ones_like(x))
  end
  if o.inplace then return x:mul_(slope) end
  return x * slope
end

return F
