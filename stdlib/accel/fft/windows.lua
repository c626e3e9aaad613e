--- Windows of signals with PyTorch's names: weights that fall to the ends. A periodic window of n points is a symmetric one of n + 1
--- without its last point, for transforms. Computed in doubles.
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"

local M = {}

local OPTIONS <const> = { { "dtype", "f32" }, { "device" }, { "requires_grad", false } }

local function declared(name, ...)
  local entries = { { "window_length" }, { "periodic", true }, ... }
  for _, entry in ipairs(OPTIONS) do entries[#entries + 1] = entry end
  return arguments(name, table.unpack(entries))
end

--- at(x) is the weight at x from 0 to 1.
local function window(who, o, at)
  local n, values = check.count(who, "window_length", o.window_length), {}
  local last = o.periodic and n or n - 1
  for i = 0, n - 1 do values[i + 1] = n == 1 and 1.0 or at(i / last) end
  return accel.tensor(values, { dtype = o.dtype, device = o.device, requires_grad = o.requires_grad })
end

local cosine = function(x, times) return math.cos(2 * math.pi * times * x) end

local hann_arguments = declared "hann_window"
local hamming_arguments = declared("hamming_window", { "alpha", 0.54 }, { "beta", 0.46 })
local blackman_arguments = declared "blackman_window"
local bartlett_arguments = declared "bartlett_window"
local kaiser_arguments = declared("kaiser_window", { "beta", 12.0 })

--- Half a cosine above 0.
--- example: accel.hann_window(4) --> { 0, 0.5, 1, 0.5 }
---@param ... any window_length, periodic = true, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.hann_window(...)
  return window("hann_window", hann_arguments(...), function(x) return 0.5 - 0.5 * cosine(x, 1) end)
end

--- alpha - beta cos.
--- example: accel.hamming_window(4) --> { 0.08, 0.54, 1, 0.54 }
---@param ... any window_length, periodic = true, alpha = 0.54, beta = 0.46, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.hamming_window(...)
  local o = hamming_arguments(...)
  return window("hamming_window", o, function(x) return o.alpha - o.beta * cosine(x, 1) end)
end

--- Two cosines.
--- example: accel.blackman_window(5, false) --> { 0, 0.34, 1, 0.34, 0 }
---@param ... any window_length, periodic = true, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.blackman_window(...)
  return window("blackman_window", blackman_arguments(...), function(x)
    return 0.42 - 0.5 * cosine(x, 1) + 0.08 * cosine(x, 2)
  end)
end

--- A triangle.
--- example: accel.bartlett_window(4) --> { 0, 0.5, 1, 0.5 }
---@param ... any window_length, periodic = true, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.bartlett_window(...)
  return window("bartlett_window", bartlett_arguments(...), function(x) return 1 - math.abs(2 * x - 1) end)
end

--- The modified Bessel function of the first kind of order 0, by its series.
local function bessel(x)
  local sum, term, k = 1.0, 1.0, 1
  while term > sum * 1e-17 do
    term = term * (x / (2 * k)) ^ 2
    sum, k = sum + term, k + 1
  end
  return sum
end

--- I0(beta sqrt(1 - (2 x - 1)^2)) / I0(beta).
--- example: accel.kaiser_window(3, false, 0) --> { 1, 1, 1 }
---@param ... any window_length, periodic = true, beta = 12, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.kaiser_window(...)
  local o = kaiser_arguments(...)
  local whole = bessel(o.beta)
  return window("kaiser_window", o, function(x)
    return bessel(o.beta * math.sqrt(math.max(0, 1 - (2 * x - 1) ^ 2))) / whole
  end)
end

return M
