--- nn.init: fills tensors in place, outside of any graph, and returns them. Fans, gains and bounds are
--- PyTorch's.
local accel = require "accel"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Runs a filling method of t without recording it.
local function fill(t, method, ...)
  if not tensors.is_tensor(t) then raise("nn.init: expected a tensor, got %s", type(t)) end
  local _ <close> = accel.no_grad()
  t[method](t, ...)
  return t
end

function M.uniform_(t, low, high) return fill(t, "uniform_", low or 0.0, high or 1.0) end
function M.normal_(t, mean, std) return fill(t, "normal_", mean or 0.0, std or 1.0) end
function M.constant_(t, value) return fill(t, "fill_", value) end
function M.ones_(t) return fill(t, "fill_", 1.0) end
function M.zeros_(t) return fill(t, "zero_") end

--- Ones on the diagonal of a matrix.
function M.eye_(t)
  local shape = t.shape
  if #shape ~= 2 then raise("eye_: expected a matrix, got shape %s", tensors.shape_string(t)) end
  return fill(t, "copy_", accel.eye(shape[1], shape[2]))
end

--- fan_in, fan_out of a weight [out, in, ...].
function M.fans(t)
  local shape = t.shape
  if #shape < 2 then
    raise("fan in and fan out need a tensor of at least 2 dimensions, got shape %s", tensors.shape_string(t))
  end
  local field = 1
  for i = 3, #shape do field = field * shape[i] end
  return shape[2] * field, shape[1] * field
end

local gains = {
  linear = 1.0, conv1d = 1.0, conv2d = 1.0, conv3d = 1.0, sigmoid = 1.0, tanh = 5 / 3, relu = math.sqrt(2),
  selu = 0.75,
}

--- The factor by which the values of a layer before this nonlinearity are scaled.
function M.calculate_gain(nonlinearity, a)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (a or 0.01) ^ 2)) end
  local gain = gains[nonlinearity]
  if not gain then raise("calculate_gain: unknown nonlinearity '%s'", tostring(nonlinearity)) end
  return gain
end

--- Uniform with variance gain^2 * 2 / (fan_in + fan_out).
function M.xavier_uniform_(t, gain)
  local fan_in, fan_out = M.fans(t)
  local bound = math.sqrt(3) * (gain or 1) * math.sqrt(2 / (fan_in + fan_out))
  return M.uniform_(t, -bound, bound)
end

function M.xavier_normal_(t, gain)
  local fan_in, fan_out = M.fans(t)
  return M.normal_(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)))
end

local function kaiming_std(t, opts)
  local o = options("kaiming", opts, { a = 0, mode = "fan_in", nonlinearity = "leaky_relu" })
  local fan_in, fan_out = M.fans(t)
  if o.mode ~= "fan_in" and o.mode ~= "fan_out" then
    raise("kaiming: mode must be fan_in or fan_out, got '%s'", o.mode)
  end
  return M.calculate_gain(o.nonlinearity, o.a) / math.sqrt(o.mode == "fan_in" and fan_in or fan_out)
end

--- Options: a (negative slope), mode (fan_in or fan_out), nonlinearity.
function M.kaiming_uniform_(t, opts)
  local bound = math.sqrt(3) * kaiming_std(t, opts)
  return M.uniform_(t, -bound, bound)
end

function M.kaiming_normal_(t, opts) return M.normal_(t, 0, kaiming_std(t, opts)) end

--- Normal values, drawn again while they lie outside [low, high].
function M.trunc_normal_(t, mean, std, low, high)
  mean, std, low, high = mean or 0.0, std or 1.0, low or -2.0, high or 2.0
  if low >= high or not (mean > low - 4 * std and mean < high + 4 * std) then
    raise "trunc_normal_: the interval holds next to nothing of the distribution"
  end
  local _ <close> = accel.no_grad()
  t:normal_(mean, std)
  while true do
    local outside = t:lt(low):to("f32"):add(t:gt(high):to("f32")):gt(0)
    if outside:to("f32"):sum():item() == 0 then return t end
    t:copy_(accel.where(outside, accel.empty_like(t):normal_(mean, std), t))
  end
end

return M
