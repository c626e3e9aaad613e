--- Pools of nn.functional that are compositions of ops: the inverse of a max pool, power means, random windows, local
--- response normalisation, and max pools with their positions.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local tuple = arguments.tuple

local F = {}

--- The input of a pool over n dimensions: a tensor (N, C, ...) or (C, ...).
local function need(who, x, n)
  if not tensors.is_tensor(x) then raise("%s: expected a tensor, got %s", who, check.shown(x)) end
  if x.ndim ~= n + 1 and x.ndim ~= n + 2 then
    raise("%s: expected (N, C, ...) or (C, ...) with %d dimensions after C, got shape %s", who, n, tensors.shape_string(x))
  end
end

--- The dimensions before the last n, then `more`.
local function lead(x, n, ...)
  local shape = x.shape
  return { table.unpack(table.move({ ... }, 1, select("#", ...), #shape - n + 1, table.move(shape, 1, #shape - n, 1, {}))) }
end

-- ---- max pools with positions ----
local function with_indices(name)
  local parse = arguments(name .. "_with_indices", { "x" }, { "kernel_size", list = true }, { "stride", list = true },
    { "padding", 0, list = true }, { "dilation", 1, list = true }, { "ceil_mode", false })
  return function(...)
    local o = parse(...)
    return accel[name](o.x, o.kernel_size, o.stride, o.padding, o.dilation, o.ceil_mode, true)
  end
end

local function adaptive_with_indices(name)
  local parse = arguments(name .. "_with_indices", { "x" }, { "output_size", list = true })
  return function(...)
    local o = parse(...)
    return accel[name](o.x, o.output_size, true)
  end
end

--- max_pool1d and the positions of the largest elements.
--- example: accel.nn.functional.max_pool1d_with_indices(accel.tensor { { 1.0, 5.0, 2.0 } }, 2) --> { { 5 } }, { { 1 } }
---@param x accel.Tensor
---@param ... any kernel_size, stride, padding, dilation, ceil_mode by position or in one table
---@return accel.Tensor, accel.Tensor
F.max_pool1d_with_indices = with_indices "max_pool1d"

--- max_pool2d and the positions of the largest elements.
--- example: accel.nn.functional.max_pool2d_with_indices(accel.ones(1, 2, 2), 2) --> { { { 1 } } }, { { { 0 } } }
---@param x accel.Tensor
---@param ... any kernel_size, stride, padding, dilation, ceil_mode by position or in one table
---@return accel.Tensor, accel.Tensor
F.max_pool2d_with_indices = with_indices "max_pool2d"

--- max_pool3d and the positions of the largest elements.
--- example: accel.nn.functional.max_pool3d_with_indices(accel.ones(1, 2, 2, 2), 2).shape --> { 1, 1, 1, 1 }
---@param x accel.Tensor
---@param ... any kernel_size, stride, padding, dilation, ceil_mode by position or in one table
---@return accel.Tensor, accel.Tensor
F.max_pool3d_with_indices = with_indices "max_pool3d"

--- adaptive_max_pool1d and the positions of the largest elements.
--- example: accel.nn.functional.adaptive_max_pool1d_with_indices(accel.tensor { { 1.0, 5.0 } }, 1) --> { { 5 } }, { { 1 } }
---@param x accel.Tensor
---@param ... any output_size, by position or in a table
---@return accel.Tensor, accel.Tensor
F.adaptive_max_pool1d_with_indices = adaptive_with_indices "adaptive_max_pool1d"

--- adaptive_max_pool2d and the positions of the largest elements.
--- example: accel.nn.functional.adaptive_max_pool2d_with_indices(accel.ones(1, 2, 2), 1) --> { { { 1 } } }, { { { 0 } } }
---@param x accel.Tensor
---@param ... any output_size, by position or in a table
---@return accel.Tensor, accel.Tensor
F.adaptive_max_pool2d_with_indices = adaptive_with_indices "adaptive_max_pool2d"

--- adaptive_max_pool3d and the positions of the largest elements.
--- example: accel.nn.functional.adaptive_max_pool3d_with_indices(accel.ones(1, 2, 2, 2), 1).shape --> { 1, 1, 1, 1 }
---@param x accel.Tensor
---@param ... any output_size, by position or in a table
---@return accel.Tensor, accel.Tensor
F.adaptive_max_pool3d_with_indices = adaptive_with_indices "adaptive_max_pool3d"

-- ---- the inverse of a max pool ----
local function unpool(who, n)
  local parse = arguments(who, { "x" }, { "indices" }, { "kernel_size", list = true }, { "stride", list = true },
    { "padding", 0, list = true }, { "output_size", list = true })

  --- The sizes that the window gives, or those asked for, which the stride of the pool leaves open.
  local function sizes(x, o)
    local k = tuple(who, "kernel_size", o.kernel_size, n, 1)
    local stride = o.stride and tuple(who, "stride", o.stride, n, 1) or k
    local padding = tuple(who, "padding", o.padding, n, 0)
    local shape, out, want = x.shape, {}, o.output_size
    if want then
      if type(want) ~= "table" then want = { want } end
      if #want == n + 2 or #want == #shape then want = table.move(want, #want - n + 1, #want, 1, {}) end
      if #want ~= n then raise("%s: output_size must have %d sizes, or %d as the input has, got %d", who, n, #shape, #want) end
    end
    for i = 1, n do
      local plain = (shape[#shape - n + i] - 1) * stride[i] - 2 * padding[i] + k[i]
      out[i] = want and check.integer(who, ("output_size[%d]"):format(i), want[i]) or plain
      if want and math.abs(out[i] - plain) >= stride[i] then
        raise("%s: output_size[%d] must be %d .. %d, got %d", who, i, plain - stride[i] + 1, plain + stride[i] - 1, out[i])
      end
      if out[i] < 1 then raise("%s: the result would have extent %d", who, out[i]) end
    end
    return out
  end

  return function(...)
    local o = parse(...)
    local x, indices = o.x, o.indices
    need(who, x, n)
    if not tensors.is_tensor(indices) or indices.dtype ~= "i64" then raise("%s: indices must be an i64 tensor, as max pools return them", who) end
    if not tensors.same_shape(x, indices) then
      raise("%s: indices have shape %s, the input %s", who, tensors.shape_string(indices), tensors.shape_string(x))
    end
    local size, area = sizes(x, o), 1
    for _, extent in ipairs(size) do area = area * extent end
    local count = 1
    for i = 1, x.ndim - n do count = count * x.shape[i] end
    local flat = x:numel() // math.max(count, 1)
    local zeros = accel.zeros({ count, area }, { dtype = x.dtype, device = x.device })
    return zeros:scatter(2, indices:reshape(count, flat), x:reshape(count, flat)):reshape(lead(x, n, table.unpack(size)))
  end
end

--- Puts the values of a max pool back to their positions, and zeros elsewhere. indices are those that the pool returned.
--- output_size chooses among the sizes that give x.
--- example: accel.nn.functional.max_unpool1d(accel.tensor { { 5.0 } }, accel.tensor { { 1 } }, 2) --> { { 0, 5 } }
---@param x accel.Tensor (N, C, L) or (C, L)
---@param indices accel.Tensor i64, like x
---@param ... any kernel_size, stride, padding = 0, output_size by position or in one table
---@return accel.Tensor
F.max_unpool1d = unpool("max_unpool1d", 1)

--- max_unpool1d over two dimensions.
--- example: accel.nn.functional.max_unpool2d(accel.ones(1, 1, 1), accel.zeros(1, 1, 1, { dtype = "i64" }), 2) --> { { { 1, 0 }, { 0, 0 } } }
---@param x accel.Tensor (N, C, H, W) or (C, H, W)
---@param indices accel.Tensor i64, like x
---@param ... any kernel_size, stride, padding = 0, output_size by position or in one table
---@return accel.Tensor
F.max_unpool2d = unpool("max_unpool2d", 2)

--- max_unpool1d over three dimensions.
--- example: accel.nn.functional.max_unpool3d(accel.ones(1, 1, 1, 1), accel.zeros(1, 1, 1, 1, { dtype = "i64" }), 2).shape --> { 1, 2, 2, 2 }
---@param x accel.Tensor (N, C, D, H, W) or (C, D, H, W)
---@param indices accel.Tensor i64, like x
---@param ... any kernel_size, stride, padding = 0, output_size by position or in one table
---@return accel.Tensor
F.max_unpool3d = unpool("max_unpool3d", 3)

-- ---- power means ----
local function lp_pool(who, n, pool)
  local parse = arguments(who, { "x" }, { "norm_type" }, { "kernel_size", list = true }, { "stride", list = true }, { "ceil_mode", false })
  return function(...)
    local o = parse(...)
    need(who, o.x, n)
    local p, k = check.number(who, "norm_type", o.norm_type), tuple(who, "kernel_size", o.kernel_size, n, 1)
    if p == 0 then raise("%s: norm_type must not be 0", who) end
    local area = 1
    for _, extent in ipairs(k) do area = area * extent end
    local mean = pool(o.x:pow(p), k, o.stride and tuple(who, "stride", o.stride, n, 1) or k, { ceil_mode = o.ceil_mode })
    return (mean:sign() * mean:abs():relu() * area):pow(1 / p)
  end
end

--- The norm of order norm_type of each window: (sum of x^p)^(1/p), without absolute values, as in PyTorch.
--- example: accel.nn.functional.lp_pool1d(accel.tensor { { 3.0, 4.0 } }, 2, 2) --> { { 5 } }
---@param x accel.Tensor
---@param ... any norm_type, kernel_size, stride, ceil_mode = false by position or in one table
---@return accel.Tensor
F.lp_pool1d = lp_pool("lp_pool1d", 1, accel.avg_pool1d)

--- lp_pool1d over two dimensions.
--- example: accel.nn.functional.lp_pool2d(accel.ones(1, 2, 2), 2, 2) --> { { { 2 } } }
---@param x accel.Tensor
---@param ... any norm_type, kernel_size, stride, ceil_mode = false by position or in one table
---@return accel.Tensor
F.lp_pool2d = lp_pool("lp_pool2d", 2, accel.avg_pool2d)

--- lp_pool1d over three dimensions.
--- example: accel.nn.functional.lp_pool3d(accel.ones(1, 2, 2, 2), 1, 2) --> { { { { 8 } } } }
---@param x accel.Tensor
---@param ... any norm_type, kernel_size, stride, ceil_mode = false by position or in one table
---@return accel.Tensor
F.lp_pool3d = lp_pool("lp_pool3d", 3, accel.avg_pool3d)

-- ---- windows at random places ----
--- First positions of `out` windows of k elements among n: a constant step, begun at a random place u [rows, 1].
local function starts(u, n, k, out)
  if out == 1 then return accel.full({ u:size(1), 1 }, n - k, { dtype = "i64", device = u.device }) end
  local step = accel.full({}, n - k, { dtype = u.dtype, device = u.device }) / (out - 1)
  local i = accel.arange(out - 1, { dtype = u.dtype, device = u.device }):unsqueeze(1)
  local at = ((i + u) * step):to "i64" - (u * step):to "i64"
  return accel.cat({ at, accel.full({ u:size(1), 1 }, n - k, { dtype = "i64", device = u.device }) }, 2)
end

local function fractional(who, n)
  local parse = arguments(who, { "x" }, { "kernel_size", list = true }, { "output_size", list = true }, { "output_ratio", any = true },
    { "return_indices", false }, { "_random_samples" })

  local function sizes(x, o)
    if (o.output_size == nil) == (o.output_ratio == nil) then raise("%s: give either output_size or output_ratio", who) end
    if o.output_size ~= nil then return tuple(who, "output_size", o.output_size, n, 1) end
    local out, shape = {}, x.shape
    for i = 1, n do
      local ratio = type(o.output_ratio) == "table" and o.output_ratio[i] or o.output_ratio
      check.number(who, "output_ratio", ratio)
      if ratio <= 0 or ratio >= 1 then raise("%s: output_ratio must be between 0 and 1, got %s", who, check.shown(ratio)) end
      out[i] = math.floor(shape[#shape - n + i] * ratio)
    end
    return out
  end

  return function(...)
    local o = parse(...)
    local x = o.x
    need(who, x, n)
    local k, out, shape = tuple(who, "kernel_size", o.kernel_size, n, 1), sizes(x, o), x.shape
    local batch, channels = x.ndim == n + 2 and shape[1] or 1, shape[#shape - n]
    local size, count, area = {}, batch * channels, 1
    for i = 1, n do
      size[i] = shape[#shape - n + i]
      area = area * size[i]
      if out[i] + k[i] - 1 > size[i] - (n == 3 and 1 or 0) then -- of three dims one element is left, as in PyTorch
        raise("%s: %d windows of %d do not fit into %d elements (dimension %d)", who, out[i], k[i], size[i], i)
      end
    end
    local u = o._random_samples
    if u == nil then u = accel.rand(batch, channels, n, { dtype = x.dtype, device = x.device })
    elseif not tensors.is_tensor(u) or u.ndim ~= 3 or u:size(1) < batch or u:size(2) ~= channels or u:size(3) ~= n then
      raise("%s: _random_samples must have shape (%d, %d, %d)", who, batch, channels, n)
    end
    u = u:narrow(1, 1, batch):reshape(count, n)
    -- positions (rows, windows, elements of a window), dimension after dimension
    local at = accel.zeros(count, 1, 1, { dtype = "i64", device = x.device })
    for i = 1, n do
      -- the samples of two dimensions are those of x and y, of three those of z, y and x, as in PyTorch
      local from = starts(u:narrow(2, n == 2 and 3 - i or i, 1), size[i], k[i], out[i])
      local here = from:unsqueeze(3) + accel.arange(k[i], { dtype = "i64", device = x.device })
      local windows, elements = at:size(2), at:size(3)
      at = at:reshape(count, windows, 1, elements, 1) * size[i] + here:reshape(count, 1, out[i], 1, k[i])
      at = at:reshape(count, windows * out[i], elements * k[i])
    end
    local flat = x:reshape(count, area)
    local windows = flat:gather(2, at:reshape(count, -1)):reshape(at.shape)
    local values, best = windows:max(3)
    local result = values:reshape(lead(x, n, table.unpack(out)))
    if not o.return_indices then return result end
    return result, at:gather(3, best:unsqueeze(3)):reshape(result.shape)
  end
end

--- The largest element of windows at random places, with steps that are not whole (Graham 2014). output_size, or
--- output_ratio of the input's size, says how many windows there are. _random_samples (N, C, 2) fixes the places.
--- example: accel.nn.functional.fractional_max_pool2d(accel.ones(1, 5, 5), 2, { output_size = 3 }).shape --> { 1, 3, 3 }
---@param x accel.Tensor (N, C, H, W) or (C, H, W)
---@param ... any kernel_size, output_size, output_ratio, return_indices = false, _random_samples by position or in one table
---@return accel.Tensor, accel.Tensor?
F.fractional_max_pool2d = fractional("fractional_max_pool2d", 2)

--- fractional_max_pool2d over three dimensions.
--- example: accel.nn.functional.fractional_max_pool3d(accel.ones(1, 5, 5, 5), 2, { output_ratio = 0.5 }).shape --> { 1, 2, 2, 2 }
---@param x accel.Tensor (N, C, D, H, W) or (C, D, H, W)
---@param ... any kernel_size, output_size, output_ratio, return_indices = false, _random_samples by position or in one table
---@return accel.Tensor, accel.Tensor?
F.fractional_max_pool3d = fractional("fractional_max_pool3d", 3)

local function fractional_with_indices(who)
  local parse = arguments(who .. "_with_indices", { "x" }, { "kernel_size", list = true }, { "output_size", list = true },
    { "output_ratio", any = true }, { "_random_samples" })
  return function(...)
    local o = parse(...)
    o.return_indices = true
    return F[who](o)
  end
end

--- fractional_max_pool2d and the positions of the largest elements.
--- example: accel.nn.functional.fractional_max_pool2d_with_indices(accel.ones(1, 5, 5), 2, { output_size = 3 }).shape --> { 1, 3, 3 }
---@param x accel.Tensor
---@param ... any kernel_size, output_size, output_ratio, _random_samples by position or in one table
---@return accel.Tensor, accel.Tensor
F.fractional_max_pool2d_with_indices = fractional_with_indices "fractional_max_pool2d"

--- fractional_max_pool3d and the positions of the largest elements.
--- example: accel.nn.functional.fractional_max_pool3d_with_indices(accel.ones(1, 5, 5, 5), 2, { output_size = 3 }).shape --> { 1, 3, 3, 3 }
---@param x accel.Tensor
---@param ... any kernel_size, output_size, output_ratio, _random_samples by position or in one table
---@return accel.Tensor, accel.Tensor
F.fractional_max_pool3d_with_indices = fractional_with_indices "fractional_max_pool3d"

-- ---- local response normalisation ----
local response_arguments = arguments("local_response_norm", { "x" }, { "size" }, { "alpha", 1e-4 }, { "beta", 0.75 }, { "k", 1.0 })

--- Divides by the power beta of k + alpha times the mean of squares over `size` neighbouring channels (dimension 2).
--- example: accel.nn.functional.local_response_norm(accel.ones(1, 2, 1), 1, { alpha = 3, beta = 0.5 }) --> { { { 0.5 }, { 0.5 } } }
---@param x accel.Tensor (N, C, ...)
---@param ... any size, alpha = 1e-4, beta = 0.75, k = 1 by position or in one table
---@return accel.Tensor
function F.local_response_norm(...)
  local who = "local_response_norm"
  local o = response_arguments(...)
  local x, size = o.x, check.positive(who, "size", o.size)
  if not tensors.is_tensor(x) or x.ndim < 3 then
    raise("%s: expected (N, C, ...) of rank 3 or more, got %s", who, tensors.is_tensor(x) and "shape " .. tensors.shape_string(x) or check.shown(x))
  end
  if x:numel() == 0 then return x end
  local shape = x.shape
  local squares = (x * x):reshape(shape[1], 1, shape[2], -1)
  squares = accel.pad(squares, { 0, 0, size // 2, (size - 1) // 2 })
  local mean = accel.avg_pool2d(squares, { size, 1 }, 1):reshape(shape)
  return x / (mean * o.alpha + o.k):pow(o.beta)
end

return F
