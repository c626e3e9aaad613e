--- Activations as modules. `inplace = true`, for modules with this option in PyTorch, lets a layer write over its input
--- if the op supports it, and otherwise warns (accel.util.no_effect).
local accel = require "accel"
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"

local M = {}

--- A class that applies op. name_, if it exists, implements inplace.
local function plain(who, op, name)
  local Class = Module:extend("accel.nn." .. who)
  local in_place = name and accel[name .. "_"]
  if name then
    local parse = arguments(who, { "inplace", false })
    function Class:init(...)
      self.inplace = parse(...).inplace
      no_effect(Class.__name, self)
    end
    function Class:extra_repr() return self.inplace and "inplace=true" or "" end
  end
  if in_place then
    function Class:forward(x)
      if self.inplace then return in_place(x) end
      return op(x)
    end
  else
    function Class.forward(_, x) return op(x) end
  end
  return Class
end

--- A class whose op takes numbers: specs are {name, default}, in the op's order.
local function tuned(who, op, ...)
  local Class, specs = Module:extend("accel.nn." .. who), { ... }
  local declared = { table.unpack(specs) }
  declared[#declared + 1] = { "inplace", false }
  local parse = arguments(who, table.unpack(declared))

  function Class:init(...)
    local o = parse(...)
    for _, spec in ipairs(specs) do self[spec[1]] = check.number(who, spec[1], o[spec[1]]) end
    self.inplace = o.inplace
    no_effect(Class.__name, self)
  end

  local first, second = specs[1][1], specs[2] and specs[2][1]
  if second then
    function Class:forward(x) return op(x, self[first], self[second]) end
  else
    function Class:forward(x) return op(x, self[first]) end
  end

  function Class:extra_repr()
    local parts = {}
    for i, spec in ipairs(specs) do parts[i] = ("%s=%g"):format(spec[1], self[spec[1]]) end
    if self.inplace then parts[#parts + 1] = "inplace=true" end
    return table.concat(parts, ", ")
  end

  return Class
end

--- A class whose op works along a dimension.
local function along(who, op, default)
  local Class = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "dim" })

  ---@param ... any dim: integer, 1-based, negative from the end
  function Class:init(...)
    local dim = parse(...).dim
    self.dim = check.integer(who, "dim", dim == nil and default or dim)
  end

  function Class:forward(x) return op(x, self.dim) end

  function Class:extra_repr() return ("dim=%d"):format(self.dim) end

  return Class
end

--- max(x, 0).
--- example: accel.nn.ReLU()(accel.tensor { -1.0, 2.0 }) --> { 0, 2 }
---@class accel.nn.ReLU : accel.nn.Module
M.ReLU = plain("ReLU", accel.relu, "relu")

--- x * sigmoid(x), also called swish.
--- example: accel.nn.SiLU()(accel.tensor { 0.0, 1.0 }) --> { 0, 0.731059 }
---@class accel.nn.SiLU : accel.nn.Module
M.SiLU = plain("SiLU", accel.silu, "silu")

--- Hyperbolic tangent.
--- example: accel.nn.Tanh()(accel.tensor { 0.0, 1.0 }) --> { 0, 0.761594 }
---@class accel.nn.Tanh : accel.nn.Module
M.Tanh = plain("Tanh", accel.tanh)

--- 1 / (1 + exp(-x)).
--- example: accel.nn.Sigmoid()(accel.tensor { 0.0, 1.0 }) --> { 0.5, 0.731059 }
---@class accel.nn.Sigmoid : accel.nn.Module
M.Sigmoid = plain("Sigmoid", accel.sigmoid)

--- log(sigmoid(x)), without overflow.
--- example: accel.nn.LogSigmoid()(accel.tensor { 0.0, -100.0 }) --> { -0.693147, -100 }
---@class accel.nn.LogSigmoid : accel.nn.Module
M.LogSigmoid = plain("LogSigmoid", accel.logsigmoid)

--- x * tanh(softplus(x)).
--- example: accel.nn.Mish()(accel.tensor { 0.0, 1.0 }) --> { 0, 0.865098 }
---@class accel.nn.Mish : accel.nn.Module
M.Mish = plain("Mish", accel.mish, "mish")

--- min(max(x + 3, 0), 6) / 6.
--- example: accel.nn.Hardsigmoid()(accel.tensor { -4.0, 0.0, 1.5 }) --> { 0, 0.5, 0.75 }
---@class accel.nn.Hardsigmoid : accel.nn.Module
M.Hardsigmoid = plain("Hardsigmoid", accel.hardsigmoid, "hardsigmoid")

--- x * min(max(x + 3, 0), 6) / 6.
--- example: accel.nn.Hardswish()(accel.tensor { -4.0, 1.0, 4.0 }) --> { 0, 0.666667, 4 }
---@class accel.nn.Hardswish : accel.nn.Module
M.Hardswish = plain("Hardswish", accel.hardswish, "hardswish")

--- min(max(x, 0), 6).
--- example: accel.nn.ReLU6()(accel.tensor { -1.0, 2.0, 9.0 }) --> { 0, 2, 6 }
---@class accel.nn.ReLU6 : accel.nn.Module
M.ReLU6 = plain("ReLU6", accel.relu6, "relu6")

--- Scaled ELU with the constants that keep activations standardised.
--- example: accel.nn.SELU()(accel.tensor { 1.0, -1.0 }) --> { 1.050701, -1.111331 }
---@class accel.nn.SELU : accel.nn.Module
M.SELU = plain("SELU", accel.selu, "selu")

--- x / (1 + |x|).
--- example: accel.nn.Softsign()(accel.tensor { 1.0, -3.0 }) --> { 0.5, -0.75 }
---@class accel.nn.Softsign : accel.nn.Module
M.Softsign = plain("Softsign", accel.softsign)

--- x - tanh(x).
--- example: accel.nn.Tanhshrink()(accel.tensor { 1.0 }) --> { 0.238406 }
---@class accel.nn.Tanhshrink : accel.nn.Module
M.Tanhshrink = plain("Tanhshrink", accel.tanhshrink)

--- x above 0, negative_slope * x (default 0.01) below.
--- example: accel.nn.LeakyReLU(0.1)(accel.tensor { -1.0, 2.0 }) --> { -0.1, 2 }
---@class accel.nn.LeakyReLU : accel.nn.Module
---@overload fun(negative_slope: number?, opts: table?): accel.nn.LeakyReLU
M.LeakyReLU = tuned("LeakyReLU", accel.leaky_relu, { "negative_slope", 0.01 })

--- x above 0, alpha (exp(x) - 1) below. alpha = 1.
--- example: accel.nn.ELU()(accel.tensor { -1.0, 2.0 }) --> { -0.632121, 2 }
---@class accel.nn.ELU : accel.nn.Module
---@overload fun(alpha: number?, opts: table?): accel.nn.ELU
M.ELU = tuned("ELU", accel.elu, { "alpha", 1.0 })

--- max(0, x) + min(0, alpha (exp(x / alpha) - 1)). alpha = 1.
--- example: accel.nn.CELU(2)(accel.tensor { -1.0, 2.0 }) --> { -0.786939, 2 }
---@class accel.nn.CELU : accel.nn.Module
---@overload fun(alpha: number?, opts: table?): accel.nn.CELU
M.CELU = tuned("CELU", accel.celu, { "alpha", 1.0 })

--- x limited to min_val .. max_val (-1 .. 1).
--- example: accel.nn.Hardtanh(-2, 2)(accel.tensor { -3.0, 1.0 }) --> { -2, 1 }
---@class accel.nn.Hardtanh : accel.nn.Module
---@overload fun(min_val: number?, max_val: number?, opts: table?): accel.nn.Hardtanh
M.Hardtanh = tuned("Hardtanh", accel.hardtanh, { "min_val", -1.0 }, { "max_val", 1.0 })

--- log(1 + exp(beta x)) / beta, and x if beta x > threshold. beta = 1, threshold = 20.
--- example: accel.nn.Softplus()(accel.tensor { 0.0, 30.0 }) --> { 0.693147, 30 }
---@class accel.nn.Softplus : accel.nn.Module
---@overload fun(beta: number?, threshold: number?, opts: table?): accel.nn.Softplus
M.Softplus = tuned("Softplus", accel.softplus, { "beta", 1.0 }, { "threshold", 20.0 })

--- x above threshold, value elsewhere.
--- example: accel.nn.Threshold(1, 7)(accel.tensor { 0.5, 2.0 }) --> { 7, 2 }
---@class accel.nn.Threshold : accel.nn.Module
---@overload fun(threshold: number, value: number): accel.nn.Threshold
M.Threshold = tuned("Threshold", accel.threshold, { "threshold" }, { "value" })

--- x outside of -lambd .. lambd (0.5), 0 inside.
--- example: accel.nn.Hardshrink()(accel.tensor { -1.0, 0.5, 0.75 }) --> { -1, 0, 0.75 }
---@class accel.nn.Hardshrink : accel.nn.Module
---@overload fun(lambd: number?): accel.nn.Hardshrink
M.Hardshrink = tuned("Hardshrink", accel.hardshrink, { "lambd", 0.5 })

--- x moved towards 0 by lambd (0.5), 0 in between.
--- example: accel.nn.Softshrink()(accel.tensor { -1.0, 0.25, 0.75 }) --> { -0.5, 0, 0.25 }
---@class accel.nn.Softshrink : accel.nn.Module
---@overload fun(lambd: number?): accel.nn.Softshrink
M.Softshrink = tuned("Softshrink", accel.softshrink, { "lambd", 0.5 })

--- exp(x) divided by its sum along dim.
--- example: accel.nn.Softmax(-1)(accel.tensor { 0.0, 0.0 }) --> { 0.5, 0.5 }
---@class accel.nn.Softmax : accel.nn.Module
---@overload fun(dim: integer): accel.nn.Softmax
M.Softmax = along("Softmax", accel.softmax)

--- log(softmax(x)) along dim, without overflow.
--- example: accel.nn.LogSoftmax(-1)(accel.tensor { 0.0, 0.0 }) --> { -0.693147, -0.693147 }
---@class accel.nn.LogSoftmax : accel.nn.Module
---@overload fun(dim: integer): accel.nn.LogSoftmax
M.LogSoftmax = along("LogSoftmax", accel.log_softmax)

--- softmax(-x) along dim.
--- example: accel.nn.Softmin(-1)(accel.tensor { 0.0, 1.0 }) --> { 0.731059, 0.268941 }
---@class accel.nn.Softmin : accel.nn.Module
---@overload fun(dim: integer): accel.nn.Softmin
M.Softmin = along("Softmin", F.softmin)

--- Halves a dimension: a * sigmoid(b), a the first half and b the second. dim = -1.
--- example: accel.nn.GLU()(accel.tensor { 3.0, 0.0 }) --> { 1.5 }
---@class accel.nn.GLU : accel.nn.Module
---@overload fun(dim: integer?): accel.nn.GLU
M.GLU = along("GLU", accel.glu, -1)

--- Softmax over the channels of (N, C, H, W) or (C, H, W).
--- example: accel.nn.Softmax2d()(accel.zeros(1, 4, 1, 1)):flatten() --> { 0.25, 0.25, 0.25, 0.25 }
---@class accel.nn.Softmax2d : accel.nn.Module
M.Softmax2d = Module:extend("accel.nn.Softmax2d")

function M.Softmax2d.forward(_, x) return accel.softmax(x, -3) end

--- x Phi(x), Phi the normal distribution's. approximate = "tanh" uses a formula with tanh.
--- example: accel.nn.GELU()(accel.tensor { 1.0, -1.0 }) --> { 0.841345, -0.158655 }
--- example: accel.nn.GELU("tanh")(accel.tensor { 1.0 }) --> { 0.841192 }
---@class accel.nn.GELU : accel.nn.Module
M.GELU = Module:extend("accel.nn.GELU")

local gelu_arguments = arguments("GELU", { "approximate", "none" })

---@param approximate? "none"|"tanh"|{approximate: string?}
function M.GELU:init(approximate)
  local word = gelu_arguments(approximate).approximate
  self.approximate = check.word("GELU", "approximate", word, { "none", "tanh" })
end

function M.GELU:forward(x) return accel.gelu(x, self.approximate) end

function M.GELU:extra_repr() return ("approximate='%s'"):format(self.approximate) end

--- x above 0, weight * x below. The weight is trained: one for all channels or one for each (num_parameters of them,
--- channels are dimension 2). Initial value: init = 0.25.
--- example: accel.nn.PReLU()(accel.tensor { -1.0, 2.0 }) --> { -0.25, 2 }
---@class accel.nn.PReLU : accel.nn.Module
---@field weight accel.Tensor
M.PReLU = Module:extend("accel.nn.PReLU")

local prelu_arguments = arguments("PReLU", { "num_parameters", 1 }, { "init", 0.25 }, { "device" },
  { "dtype", "f32" })

---@param num_parameters? integer default 1
---@param opts? {init: number?, dtype: string?, device: string?}
function M.PReLU:init(num_parameters, opts, ...)
  local o = prelu_arguments(num_parameters, opts, ...)
  self.num_parameters = check.positive("PReLU", "num_parameters", o.num_parameters)
  self.start = check.number("PReLU", "init", o.init)
  self.weight = Parameter(accel.full({ self.num_parameters }, self.start, { dtype = o.dtype, device = o.device }))
end

--- Sets the initial value again.
function M.PReLU:reset_parameters() require("accel.nn.initialization").constant_(self.weight, self.start) end

function M.PReLU:forward(x) return accel.prelu(x, self.weight) end

function M.PReLU:extra_repr() return ("num_parameters=%d"):format(self.num_parameters) end

--- x above 0. Below, x times a slope: in training drawn from lower .. upper for every element, otherwise their mean.
--- example: accel.nn.RReLU(0.25, 0.75):eval()(accel.tensor { -2.0, 3.0 }) --> { -1, 3 }
---@class accel.nn.RReLU : accel.nn.Module
M.RReLU = Module:extend("accel.nn.RReLU")

local rrelu_arguments = arguments("RReLU", { "lower", 1 / 8 }, { "upper", 1 / 3 }, { "inplace", false })

---@param ... any lower, upper, inplace by position or in one table
function M.RReLU:init(...)
  local o = rrelu_arguments(...)
  self.lower, self.upper, self.inplace = o.lower, o.upper, o.inplace
  if o.lower > o.upper then require("accel.util.raise")("RReLU: lower is %g, above upper, %g", o.lower, o.upper) end
end

function M.RReLU:forward(x)
  return F.rrelu(x, { lower = self.lower, upper = self.upper, training = self.training, inplace = self.inplace })
end

function M.RReLU:extra_repr()
  return ("lower=%g, upper=%g%s"):format(self.lower, self.upper, self.inplace and ", inplace=true" or "")
end

return M
