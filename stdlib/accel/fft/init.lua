--- accel.fft: discrete Fourier transforms with PyTorch's names, arguments and norms, of any length, in f32, f64, c64 and c128. Dims
--- count from 1, negative ones from the end. Arguments go by position or in one table. Integers are transformed as f32.
---
--- norm: "backward" divides inverse transforms by n, "forward" divides the others by n, "ortho" divides each by the root of n.
local accel = require "accel"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local c2c, r2c, c2r = accel.op "fft_c2c", accel.op "fft_r2c", accel.op "fft_c2r"

local M = {}

-- ---- arguments ----

local function tensor_of(who, x)
  if not tensors.is_tensor(x) then raise("%s: input must be a tensor, got %s", who, check.shown(x)) end
  if not x:is_floating_point() and not x:is_complex() then x = x:to "f32" end
  return x
end

local function real_of(who, x)
  x = tensor_of(who, x)
  if x:is_complex() then raise("%s: expected a real input, got %s; use the complex transform", who, x.dtype) end
  return x
end

local function axis(who, d, ndim)
  if math.type(d) ~= "integer" or d == 0 or d > ndim or d < -ndim then
    raise("%s: dim %s is out of range for %d dims", who, check.shown(d), ndim)
  end
  return d < 0 and d + ndim + 1 or d
end

local function factor(who, norm, n, inverse)
  if norm == nil then norm = "backward" end
  if norm == "ortho" then return 1 / math.sqrt(n) end
  if norm ~= "backward" and norm ~= "forward" then
    raise("%s: norm must be \"backward\", \"ortho\" or \"forward\", got %s", who, check.shown(norm))
  end
  return inverse == (norm == "backward") and 1 / n or 1
end

local function length(who, n)
  if math.type(n) ~= "integer" or n < 1 then raise("%s: invalid number of data points (%s) specified", who, check.shown(n)) end
  return n
end

--- x cut, or filled up with zeros, to n positions of a dim.
local function resized(x, dim, n)
  local shape = x.shape
  local have = shape[dim]
  if have == n then return x end
  if have > n then return x:narrow(dim, 1, n) end
  shape[dim] = n - have
  return accel.cat({ x, x:new_zeros(shape) }, dim)
end

--- A dim and size for each dim to transform. s and dim may be absent, a number or a list. default: the dims if both are absent.
local function plan(who, x, s, dim, default)
  local ndim, dims, sizes, seen = x:dim(), {}, {}, {}
  if type(s) == "number" then s = { s } end
  if type(dim) == "number" then dim = { dim } end
  dim = dim or default
  if dim then
    for i, d in ipairs(dim) do dims[i] = axis(who, d, ndim) end
    if s and #s ~= #dims then raise("%s: s has %d entries and dim has %d", who, #s, #dims) end
  else
    local n = s and #s or ndim
    if n > ndim then raise("%s: s has %d entries, the input %d dims", who, n, ndim) end
    for i = 1, n do dims[i] = ndim - n + i end
  end
  for i, d in ipairs(dims) do
    if seen[d] then raise("%s: dim %d appears twice", who, d) end
    seen[d] = true
    local size = s and s[i] or -1
    if size ~= -1 then sizes[i] = length(who, size) end
  end
  return dims, sizes
end

-- ---- transforms ----

local function product(x, dims)
  local n = 1
  for _, d in ipairs(dims) do n = n * x.shape[d] end
  return n
end

local function positions(dims)
  local list = {}
  for i, d in ipairs(dims) do list[i] = d - 1 end
  return list
end

local function complex(who, x, dims, sizes, norm, inverse)
  if not x:is_complex() then x = x:to(x.dtype == "f64" and "c128" or "c64") end
  for i, d in ipairs(dims) do x = resized(x, d, sizes[i] or length(who, x.shape[d])) end
  if #dims == 0 then return x end
  local scale = factor(who, norm, product(x, dims), inverse)
  return accel.view_as_complex(c2c(accel.view_as_real(x), positions(dims), inverse, scale))
end

--- The last of dims by r2c, the others complex.
local function from_real(who, x, dims, sizes, norm, inverse)
  for i, d in ipairs(dims) do x = resized(x, d, sizes[i] or length(who, x.shape[d])) end
  if #dims == 0 then raise("%s: needs at least one dim", who) end
  local scale, rest = factor(who, norm, product(x, dims), inverse), table.move(dims, 1, #dims - 1, 1, {})
  local y = accel.view_as_complex(r2c(x, dims[#dims] - 1, scale))
  if inverse then y = accel.conj(y) end
  if #rest == 0 then return y end
  return accel.view_as_complex(c2c(accel.view_as_real(y), positions(rest), inverse, 1))
end

--- All dims but the last complex, then c2r, whose result has sizes[#dims] or 2 (n - 1) positions.
local function to_real(who, x, dims, sizes, norm, inverse)
  if #dims == 0 then raise("%s: needs at least one dim", who) end
  if not x:is_complex() then x = x:to(x.dtype == "f64" and "c128" or "c64") end
  local rest, last, count = {}, dims[#dims], 1
  local n = length(who, sizes[#dims] or 2 * (x.shape[last] - 1))
  for i = 1, #dims - 1 do
    rest[i] = dims[i]
    x = resized(x, dims[i], sizes[i] or length(who, x.shape[dims[i]]))
    count = count * x.shape[dims[i]]
  end
  x = resized(x, last, n // 2 + 1)
  local scale = factor(who, norm, count * n, inverse)
  if not inverse then x = accel.conj(x) end
  local pairs = accel.view_as_real(x)
  -- the conjugate of a forward transform is an inverse one of the conjugate
  if #rest > 0 then pairs = c2c(pairs, positions(rest), true, 1) end
  return c2r(pairs, last - 1, n, scale)
end

-- ---- functions ----

local run = {}

--- fft over one dim: name(input, n, dim, norm).
local function single(name, transform, prepare, inverse)
  local parse = arguments(name, { "input" }, { "n" }, { "dim", -1 }, { "norm" })
  run[name] = function(...)
    local o = parse(...)
    local x = prepare(name, o.input)
    if x:dim() == 0 then raise("%s: expected a tensor with at least one dim", name) end
    local n = o.n ~= nil and length(name, o.n) or nil
    return transform(name, x, { axis(name, o.dim, x:dim()) }, { n }, o.norm, inverse)
  end
end

--- fft2 over two dims and fftn over several: name(input, s, dim, norm).
local function several(base, transform, prepare, inverse)
  for suffix, default in next, { ["2"] = { -2, -1 }, n = false } do
    local name = base .. suffix
    local parse = arguments(name, { "input" }, { "s", any = true }, { "dim", any = true }, { "norm" })
    run[name] = function(...)
      local o = parse(...)
      local x = prepare(name, o.input)
      local dims, sizes = plan(name, x, o.s, o.dim, default or nil)
      return transform(name, x, dims, sizes, o.norm, inverse)
    end
  end
end

for name, how in next, {
  fft = { complex, tensor_of, false }, ifft = { complex, tensor_of, true }, rfft = { from_real, real_of, false },
  irfft = { to_real, tensor_of, true }, hfft = { to_real, tensor_of, false }, ihfft = { from_real, real_of, true },
} do
  single(name, table.unpack(how))
  several(name, table.unpack(how))
end

--- The transform along a dim: y_k = sum_j x_j e^(-2 pi i j k / n).
--- example: accel.fft.fft(accel.tensor { 1.0, 0.0, 0.0, 0.0 }):real() --> { 1, 1, 1, 1 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.fft(...) return run.fft(...) end

--- The inverse of fft.
--- example: accel.fft.ifft(accel.tensor { 4.0, 0.0, 0.0, 0.0 }):real() --> { 1, 1, 1, 1 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ifft(...) return run.ifft(...) end

--- The first n/2 + 1 frequencies of real numbers. The others are their conjugates.
--- example: accel.fft.rfft(accel.tensor { 1.0, 2.0, 3.0, 4.0 }):real() --> { 10, -2, -2 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.rfft(...) return run.rfft(...) end

--- The inverse of rfft. n is 2 (m - 1) for m frequencies unless it is given, and must be given if it is odd.
--- example: accel.fft.irfft(accel.tensor { 4.0, 0.0, 0.0 }) --> { 1, 1, 1, 1 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.irfft(...) return run.irfft(...) end

--- The real transform of the first n/2 + 1 of n numbers, whose others are their conjugates.
--- example: accel.fft.hfft(accel.tensor { 1.0, 0.0, 0.0 }) --> { 1, 1, 1, 1 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.hfft(...) return run.hfft(...) end

--- The inverse of hfft.
--- example: accel.fft.ihfft(accel.tensor { 4.0, 0.0, 0.0, 0.0 }):real() --> { 1, 1, 1 }
---@param ... any input, n (size of the dim, cut or filled up with zeros), dim = -1, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ihfft(...) return run.ihfft(...) end

--- fft over two dims.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.fft2(...) return run.fft2(...) end

--- ifft over two dims.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ifft2(...) return run.ifft2(...) end

--- rfft over two dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.rfft2(...) return run.rfft2(...) end

--- irfft over two dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.irfft2(...) return run.irfft2(...) end

--- hfft over two dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.hfft2(...) return run.hfft2(...) end

--- ihfft over two dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim = { -2, -1 }, norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ihfft2(...) return run.ihfft2(...) end

--- fft over several dims.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.fftn(...) return run.fftn(...) end

--- ifft over several dims.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ifftn(...) return run.ifftn(...) end

--- rfft over several dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.rfftn(...) return run.rfftn(...) end

--- irfft over several dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.irfftn(...) return run.irfftn(...) end

--- hfft over several dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.hfftn(...) return run.hfftn(...) end

--- ihfft over several dims, real ones over the last.
---@param ... any input, s (sizes of the dims, -1 for the present one), dim (all), norm = "backward" | "ortho" | "forward"
---@return accel.Tensor
function M.ihfftn(...) return run.ihfftn(...) end

return require "accel.util.lazy" ("accel.fft", {
  fftfreq = "frequencies", rfftfreq = "frequencies", fftshift = "frequencies", ifftshift = "frequencies",
}, M)
