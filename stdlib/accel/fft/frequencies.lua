--- Around transforms in accel.fft: the frequencies of their results, and the order with frequency 0 in the middle.
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local freq_arguments = arguments("fftfreq", { "n" }, { "d", 1.0 }, { "dtype" }, { "device" }, { "requires_grad", false })
local rfreq_arguments = arguments("rfftfreq", { "n" }, { "d", 1.0 }, { "dtype" }, { "device" }, { "requires_grad", false })
local shift_arguments = arguments("fftshift", { "input" }, { "dim", any = true })
local ishift_arguments = arguments("ifftshift", { "input" }, { "dim", any = true })

local function frequencies(who, o, first, last)
  local values = {}
  if o.d == 0 then raise("%s: d is 0; it is the time between samples", who) end
  for k = first, last do values[#values + 1] = k / (o.n * o.d) end
  return values
end

local function make(o, values)
  return accel.tensor(values, { dtype = o.dtype or "f32", device = o.device, requires_grad = o.requires_grad })
end

--- The frequencies of fft's results for n samples that are d apart: 0, 1, ..., -1, divided by n d.
--- example: accel.fft.fftfreq(4) --> { 0, 0.25, -0.5, -0.25 }
---@param ... any n, d = 1, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.fftfreq(...)
  local o = freq_arguments(...)
  check.positive("fftfreq", "n", o.n)
  local values = frequencies("fftfreq", o, 0, (o.n - 1) // 2)
  for _, v in ipairs(frequencies("fftfreq", o, -(o.n // 2), -1)) do values[#values + 1] = v end
  return make(o, values)
end

--- The frequencies of rfft's results: 0, 1, ..., n/2, divided by n d.
--- example: accel.fft.rfftfreq(4) --> { 0, 0.25, 0.5 }
---@param ... any n, d = 1, dtype = "f32", device, requires_grad = false
---@return accel.Tensor
function M.rfftfreq(...)
  local o = rfreq_arguments(...)
  check.positive("rfftfreq", "n", o.n)
  return make(o, frequencies("rfftfreq", o, 0, o.n // 2))
end

local function shifted(who, o, sign)
  local x, dims, shifts = o.input, o.dim, {}
  if not tensors.is_tensor(x) then raise("%s: input must be a tensor, got %s", who, check.shown(x)) end
  if type(dims) == "number" then dims = { dims } end
  if dims == nil then
    dims = {}
    for d = 1, x:dim() do dims[d] = d end
  end
  local shape, half = x.shape, sign > 0 and 0 or 1
  for i, d in ipairs(dims) do
    check.integer(who, ("dim[%d]"):format(i), d, -#shape, #shape)
    shifts[i] = (shape[d < 0 and d + #shape + 1 or d] + half) // 2
  end
  return #dims > 0 and x:roll(shifts, dims) or x:clone()
end

--- Moves frequency 0 to the middle of each dim.
--- example: accel.fft.fftshift(accel.fft.fftfreq(4)) --> { -0.5, -0.25, 0, 0.25 }
---@param ... any input, dim (a number or a list, all unless given)
---@return accel.Tensor
function M.fftshift(...) return shifted("fftshift", shift_arguments(...), 1) end

--- The inverse of fftshift.
--- example: accel.fft.ifftshift(accel.fft.fftshift(accel.fft.fftfreq(5))) --> { 0, 0.2, 0.4, -0.4, -0.2 }
---@param ... any input, dim (a number or a list, all unless given)
---@return accel.Tensor
function M.ifftshift(...) return shifted("ifftshift", ishift_arguments(...), -1) end

return M
