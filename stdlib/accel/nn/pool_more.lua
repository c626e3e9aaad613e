--- MaxUnpool1d/2d/3d, LPPool1d/2d/3d, FractionalMaxPool2d/3d and LocalResponseNorm: nn.functional's functions with their arguments kept.
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local tuple, text = arguments.tuple, arguments.text

local M = {}

local function unpool_class(who, n, unpool)
  local Unpool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "kernel_size", list = true }, { "stride", list = true }, { "padding", 0, list = true })

  function Unpool:init(...)
    local o = parse(...)
    self.kernel_size = tuple(who, "kernel_size", o.kernel_size, n, 1)
    self.stride = o.stride == nil and self.kernel_size or tuple(who, "stride", o.stride, n, 1)
    self.padding = tuple(who, "padding", o.padding, n, 0)
  end

  function Unpool:forward(x, indices, output_size)
    return unpool(x, indices, self.kernel_size, self.stride, self.padding, output_size)
  end

  function Unpool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s"):format(text(self.kernel_size), text(self.stride), text(self.padding))
  end

  return Unpool
end

local function lp_class(who, n, pool)
  local Pool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "norm_type" }, { "kernel_size", list = true }, { "stride", list = true }, { "ceil_mode", false })

  function Pool:init(...)
    local o = parse(...)
    self.norm_type = check.number(who, "norm_type", o.norm_type)
    if self.norm_type == 0 then raise("%s: norm_type must not be 0", who) end
    self.kernel_size = tuple(who, "kernel_size", o.kernel_size, n, 1)
    self.stride = o.stride == nil and self.kernel_size or tuple(who, "stride", o.stride, n, 1)
    self.ceil_mode = o.ceil_mode
  end

  function Pool:forward(x) return pool(x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode) end

  function Pool:extra_repr()
    return ("norm_type=%g, kernel_size=%s, stride=%s, ceil_mode=%s"):format(self.norm_type, text(self.kernel_size), text(self.stride),
      self.ceil_mode)
  end

  return Pool
end

local function fractional_class(who, n, pool)
  local Pool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "kernel_size", list = true }, { "output_size", list = true }, { "output_ratio", any = true },
    { "return_indices", false }, { "_random_samples" })

  function Pool:init(...)
    local o = parse(...)
    if (o.output_size == nil) == (o.output_ratio == nil) then raise("%s: give either output_size or output_ratio", who) end
    self.kernel_size = tuple(who, "kernel_size", o.kernel_size, n, 1)
    self.output_size = o.output_size and tuple(who, "output_size", o.output_size, n, 1)
    self.output_ratio, self.return_indices = o.output_ratio, o.return_indices
    self:register_buffer("_random_samples", o._random_samples)
  end

  function Pool:forward(x)
    return pool { x = x, kernel_size = self.kernel_size, output_size = self.output_size, output_ratio = self.output_ratio,
      return_indices = self.return_indices, _random_samples = self._random_samples }
  end

  return Pool
end

--- Puts the values of a MaxPool1d with return_indices back to their positions: layer(x, indices, output_size). See
--- nn.functional.max_unpool1d.
--- example: accel.nn.MaxUnpool1d(2)(accel.tensor { { 5.0 } }, accel.tensor { { 1 } }) --> { { 0, 5 } }
---@class accel.nn.MaxUnpool1d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, padding: accel.nn.sizes?): accel.nn.MaxUnpool1d
M.MaxUnpool1d = unpool_class("MaxUnpool1d", 1, F.max_unpool1d)

--- The inverse of MaxPool2d. See MaxUnpool1d.
--- example: accel.nn.MaxUnpool2d(2)(accel.nn.MaxPool2d(2, { return_indices = true })(accel.arange(4.0):view(1, 2, 2))) --> { { { 0, 0 }, { 0, 3 } } }
---@class accel.nn.MaxUnpool2d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, padding: accel.nn.sizes?): accel.nn.MaxUnpool2d
M.MaxUnpool2d = unpool_class("MaxUnpool2d", 2, F.max_unpool2d)

--- The inverse of MaxPool3d. See MaxUnpool1d.
--- example: accel.nn.MaxUnpool3d(2)(accel.nn.MaxPool3d(2, { return_indices = true })(accel.ones(1, 2, 2, 2))):sum() --> 1
---@class accel.nn.MaxUnpool3d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, padding: accel.nn.sizes?): accel.nn.MaxUnpool3d
M.MaxUnpool3d = unpool_class("MaxUnpool3d", 3, F.max_unpool3d)

--- The norm of order norm_type of each window of (N, C, L). See nn.functional.lp_pool1d.
--- example: accel.nn.LPPool1d(2, 2)(accel.tensor { { 3.0, 4.0 } }) --> { { 5 } }
---@class accel.nn.LPPool1d : accel.nn.Module
---@overload fun(norm_type: number, kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.LPPool1d
M.LPPool1d = lp_class("LPPool1d", 1, F.lp_pool1d)

--- The norm of order norm_type of each window of (N, C, H, W). See LPPool1d.
--- example: accel.nn.LPPool2d(2, 2)(accel.ones(1, 2, 2)) --> { { { 2 } } }
---@class accel.nn.LPPool2d : accel.nn.Module
---@overload fun(norm_type: number, kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.LPPool2d
M.LPPool2d = lp_class("LPPool2d", 2, F.lp_pool2d)

--- The norm of order norm_type of each box of (N, C, D, H, W). See LPPool1d.
--- example: accel.nn.LPPool3d(1, 2)(accel.ones(1, 2, 2, 2)) --> { { { { 8 } } } }
---@class accel.nn.LPPool3d : accel.nn.Module
---@overload fun(norm_type: number, kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.LPPool3d
M.LPPool3d = lp_class("LPPool3d", 3, F.lp_pool3d)

--- Largest values of windows at random places of (N, C, H, W). See nn.functional.fractional_max_pool2d.
--- example: accel.nn.FractionalMaxPool2d(2, { output_size = 3 })(accel.ones(1, 5, 5)).shape --> { 1, 3, 3 }
---@class accel.nn.FractionalMaxPool2d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, opts: table?): accel.nn.FractionalMaxPool2d
M.FractionalMaxPool2d = fractional_class("FractionalMaxPool2d", 2, F.fractional_max_pool2d)

--- Largest values of boxes at random places of (N, C, D, H, W). See FractionalMaxPool2d.
--- example: accel.nn.FractionalMaxPool3d(2, { output_ratio = 0.5 })(accel.ones(1, 5, 5, 5)).shape --> { 1, 2, 2, 2 }
---@class accel.nn.FractionalMaxPool3d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, opts: table?): accel.nn.FractionalMaxPool3d
M.FractionalMaxPool3d = fractional_class("FractionalMaxPool3d", 3, F.fractional_max_pool3d)

--- Divides by a power of the squares of `size` neighbouring channels. See nn.functional.local_response_norm.
--- example: accel.nn.LocalResponseNorm(1, { alpha = 3, beta = 0.5 })(accel.ones(1, 2, 1)) --> { { { 0.5 }, { 0.5 } } }
---@class accel.nn.LocalResponseNorm : accel.nn.Module
M.LocalResponseNorm = Module:extend("accel.nn.LocalResponseNorm")

local response_arguments = arguments("LocalResponseNorm", { "size" }, { "alpha", 1e-4 }, { "beta", 0.75 }, { "k", 1.0 })

---@param ... any size, alpha = 1e-4, beta = 0.75, k = 1 by position or in one table
function M.LocalResponseNorm:init(...)
  local o = response_arguments(...)
  self.size = check.positive("LocalResponseNorm", "size", o.size)
  self.alpha, self.beta, self.k = o.alpha, o.beta, o.k
end

function M.LocalResponseNorm:forward(x) return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k) end

function M.LocalResponseNorm:extra_repr()
  return ("%d, alpha=%g, beta=%g, k=%g"):format(self.size, self.alpha, self.beta, self.k)
end

return M
