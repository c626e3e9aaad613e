--- nn.init: fills tensors in place, outside of any graph, and returns them. Fans, gains and bounds are PyTorch's.
--- Random numbers come from the global generator, or from the option generator. Functions that few models need are in
--- initialization_rare.lua.
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

local uniform_arguments = arguments("uniform_", { "low", 0.0 }, { "high", 1.0 }, { "generator" })

--- Uniform in low .. high (0 .. 1).
--- example: local t = accel.nn.init.uniform_(accel.empty(100), 2, 3) return t:ge(2):all(), t:le(3):all() --> true, true
---@param t accel.Tensor
---@param ... any low, high, generator by position or in one table
---@return accel.Tensor t
function M.uniform_(t, ...)
  local o = uniform_arguments(...)
  return fill("uniform_", t, "uniform_", o.low, o.high, o.generator)
end

local normal_arguments = arguments("normal_", { "mean", 0.0 }, { "std", 1.0 }, { "generator" })

--- Normal with this mean (0) and standard deviation (1).
--- example: accel.nn.init.normal_(accel.empty(2), 3, 0) --> { 3, 3 }
---@param t accel.Tensor
---@param ... any mean, std, generator by position or in one table
---@return accel.Tensor t
function M.normal_(t, ...)
  local o = normal_arguments(...)
  return fill("normal_", t, "normal_", o.mean, o.std, o.generator)
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

local calculate_gain_arguments = arguments("calculate_gain", { "a" })

--- The factor by which the values of a layer before this nonlinearity are scaled. a: the negative slope of
--- "leaky_relu" (0.01).
--- example: accel.nn.init.calculate_gain("relu"), accel.nn.init.calculate_gain("leaky_relu", 1) --> 1.414214, 1
---@param nonlinearity string
---@param ... any a by position or in one table
---@return number
function M.calculate_gain(nonlinearity, ...)
  local a = calculate_gain_arguments(...).a
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (a or 0.01) ^ 2)) end
  local gain = gains[nonlinearity]
  if not gain then
    local near = type(nonlinearity) == "string" and require "accel.util.nearest"(nonlinearity, gains)
    raise("calculate_gain: unknown nonlinearity %s%s", check.shown(nonlinearity),
      near and ("; did you mean '%s'?"):format(near) or "")
  end
  if a ~= nil then warn(("calculate_gain: a has no effect with '%s'; it is the slope of 'leaky_relu'"):format(nonlinearity)) end
  return gain
end

local xavier_uniform_arguments = arguments("xavier_uniform_", { "gain", 1.0 }, { "generator" })

--- Uniform with variance gain^2 * 2 / (fan_in + fan_out) (Glorot and Bengio 2010).
--- example: accel.nn.init.xavier_uniform_(accel.empty(3, 3)):abs():le(1):all() --> true
---@param t accel.Tensor
---@param ... any gain, generator by position or in one table
---@return accel.Tensor t
function M.xavier_uniform_(t, ...)
  local o = xavier_uniform_arguments(...)
  local fan_in, fan_out = M.fans(t)
  local bound = math.sqrt(3) * o.gain * math.sqrt(2 / (fan_in + fan_out))
  return M.uniform_(t, -bound, bound, o.generator)
end

local xavier_normal_arguments = arguments("xavier_normal_", { "gain", 1.0 }, { "generator" })

--- Normal with variance gain^2 * 2 / (fan_in + fan_out).
--- example: accel.nn.init.xavier_normal_(accel.empty(2, 2), 0) --> { { 0, 0 }, { 0, 0 } }
---@param t accel.Tensor
---@param ... any gain, generator by position or in one table
---@return accel.Tensor t
function M.xavier_normal_(t, ...)
  local o = xavier_normal_arguments(...)
  local fan_in, fan_out = M.fans(t)
  return M.normal_(t, 0, o.gain * math.sqrt(2 / (fan_in + fan_out)), o.generator)
end

local kaiming_arguments = arguments("kaiming", { "a", 0 }, { "mode", "fan_in" },
  { "nonlinearity", "leaky_relu" }, { "generator" })

local function kaiming(t, ...)
  local o = kaiming_arguments(...)
  local fan_in, fan_out = M.fans(t)
  check.word("kaiming", "mode", o.mode, { "fan_in", "fan_out" })
  local fan = o.mode == "fan_in" and fan_in or fan_out
  return M.calculate_gain(o.nonlinearity, (o.a ~= 0 or o.nonlinearity == "leaky_relu") and o.a or nil) / math.sqrt(fan), o.generator
end

--- Uniform with variance gain^2 / fan (He et al. 2015). Named or by position: a = 0 (negative slope), mode =
--- "fan_in" or "fan_out", nonlinearity = "leaky_relu", generator.
--- example: accel.nn.init.kaiming_uniform_(accel.empty(4, 6), { nonlinearity = "relu" }):abs():le(1):all() --> true
---@param t accel.Tensor
---@param ... any a, mode, nonlinearity, generator by position or in one table
---@return accel.Tensor t
function M.kaiming_uniform_(t, ...)
  local std, generator = kaiming(t, ...)
  local bound = math.sqrt(3) * std
  return M.uniform_(t, -bound, bound, generator)
end

--- Normal with variance gain^2 / fan. See kaiming_uniform_.
--- example: accel.nn.init.kaiming_normal_(accel.empty(4, 6), { mode = "fan_out" }).shape --> { 4, 6 }
---@param t accel.Tensor
---@param ... any a, mode, nonlinearity, generator by position or in one table
---@return accel.Tensor t
function M.kaiming_normal_(t, ...)
  local std, generator = kaiming(t, ...)
  return M.normal_(t, 0, std, generator)
end

local RARE <const> = "accel.nn.initialization_rare"
return require "accel.util.lazy" ("accel.nn.init", { eye_ = RARE, dirac_ = RARE, orthogonal_ = RARE, trunc_normal_ = RARE, sparse_ = RARE }, M)
