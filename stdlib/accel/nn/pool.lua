--- Pooling: MaxPool1d/2d/3d, AvgPool1d/2d/3d, AdaptiveAvgPool1d/2d/3d, AdaptiveMaxPool1d/2d/3d. Sizes are a number or a list
--- with one per spatial dimension. stride defaults to kernel_size. Input is (N, C, spatial ...) or (C, spatial ...). pool_more.lua
--- has the rest: inverses, power means and windows at random places.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local tuple, text = arguments.tuple, arguments.text

local M = {}

--- "2", or "(2, 3)" if the dimensions differ.
local function size_text(list)
  for i = 2, #list do
    if list[i] ~= list[1] then return text(list) end
  end
  return tostring(list[1])
end

--- kernel_size, stride and padding, checked as every pool needs them.
local function window(self, who, o, n, dilation)
  self.kernel_size = tuple(who, "kernel_size", o.kernel_size, n, 1)
  self.stride = o.stride == nil and self.kernel_size or tuple(who, "stride", o.stride, n, 1)
  self.padding = tuple(who, "padding", o.padding, n, 0)
  for i = 1, n do
    local span = dilation and dilation[i] * (self.kernel_size[i] - 1) + 1 or self.kernel_size[i]
    if self.padding[i] > span // 2 then
      raise("%s: padding %s may be at most half of kernel_size %s%s", who, size_text(self.padding),
        size_text(self.kernel_size), span ~= self.kernel_size[i] and ", dilated" or "")
    end
  end
  self.ceil_mode = o.ceil_mode
end

local function max_class(who, n, pool)
  local Pool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "kernel_size", list = true }, { "stride", list = true },
    { "padding", 0, list = true }, { "dilation", 1, list = true }, { "return_indices", false }, { "ceil_mode", false })

  function Pool:init(...)
    local o = parse(...)
    self.dilation = tuple(who, "dilation", o.dilation, n, 1)
    window(self, who, o, n, self.dilation)
    self.return_indices = o.return_indices
  end

  function Pool:forward(x)
    return pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
  end

  function Pool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s"):format(
      size_text(self.kernel_size), size_text(self.stride), size_text(self.padding), size_text(self.dilation),
      self.ceil_mode)
  end

  return Pool
end

local function avg_class(who, n, pool)
  local Pool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "kernel_size", list = true }, { "stride", list = true },
    { "padding", 0, list = true }, { "ceil_mode", false }, { "count_include_pad", true },
    n > 1 and { "divisor_override" } or nil)

  function Pool:init(...)
    local o = parse(...)
    window(self, who, o, n)
    self.count_include_pad = o.count_include_pad
    if o.divisor_override ~= nil then
      self.divisor_override = check.positive(who, "divisor_override", o.divisor_override)
    end
    self.options = { ceil_mode = self.ceil_mode, count_include_pad = self.count_include_pad,
      divisor_override = self.divisor_override }
  end

  function Pool:forward(x) return pool(x, self.kernel_size, self.stride, self.padding, self.options) end

  function Pool:extra_repr()
    return ("kernel_size=%s, stride=%s, padding=%s"):format(size_text(self.kernel_size),
      size_text(self.stride), size_text(self.padding))
  end

  return Pool
end

--- indices: whether the class has return_indices.
local function adaptive_class(who, n, pool, indices)
  local Pool = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "output_size", list = true }, indices and { "return_indices", false } or nil)

  function Pool:init(...)
    local o = parse(...)
    local size = o.output_size
    self.return_indices = o.return_indices
    if type(size) == "table" and #size == n then
      self.output_size = {}
      for i = 1, n do -- false: as large as the input
        self.output_size[i] = size[i] and check.positive(who, ("output_size[%d]"):format(i), size[i])
      end
    else
      self.output_size = tuple(who, "output_size", size, n, 1)
    end
  end

  function Pool:forward(x)
    local size, shape = self.output_size, nil
    for i = 1, n do
      if not size[i] then
        if not shape then
          shape, size = x.shape, { table.unpack(size, 1, n) }
        end
        size[i] = shape[#shape - n + i]
      end
    end
    if indices then return pool(x, size, self.return_indices) end
    return pool(x, size)
  end

  function Pool:extra_repr()
    local parts = {}
    for i = 1, n do parts[i] = self.output_size[i] or "None" end
    return "output_size=" .. size_text(parts)
  end

  return Pool
end

--- Largest value of each window: (N, C, L) -> (N, C, L_out),
--- L_out = floor((L + 2 padding - dilation (kernel_size - 1) - 1) / stride) + 1, rounded up with ceil_mode.
--- The padding never wins. Gradients go to the first of equal largest values. return_indices: also the positions of
--- these values, for MaxUnpool1d.
--- example: accel.nn.MaxPool1d(2)(accel.tensor { { { 1.0, 3.0, 2.0, 5.0, 4.0 } } }) --> { { { 3, 5 } } }
---@class accel.nn.MaxPool1d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.MaxPool1d
M.MaxPool1d = max_class("MaxPool1d", 1, accel.max_pool1d)

--- Largest value of each window of (N, C, H, W). See MaxPool1d.
--- example: accel.nn.MaxPool2d(2)(accel.tensor { { { 1.0, 2.0 }, { 4.0, 3.0 } } }) --> { { { 4 } } }
--- example: accel.nn.MaxPool2d(3, { stride = 2, padding = 1 })(accel.ones(1, 2, 8, 8)).shape --> { 1, 2, 4, 4 }
---@class accel.nn.MaxPool2d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.MaxPool2d
M.MaxPool2d = max_class("MaxPool2d", 2, accel.max_pool2d)

--- Mean of each window: (N, C, L) -> (N, C, L_out), L_out = floor((L + 2 padding - kernel_size) / stride) + 1,
--- rounded up with ceil_mode. The zeros of the padding count unless count_include_pad is false.
--- example: accel.nn.AvgPool1d(2)(accel.tensor { { { 1.0, 3.0, 2.0, 4.0 } } }) --> { { { 2, 3 } } }
---@class accel.nn.AvgPool1d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.AvgPool1d
M.AvgPool1d = avg_class("AvgPool1d", 1, accel.avg_pool1d)

--- Mean of each window of (N, C, H, W). See AvgPool1d. divisor_override divides by that number instead.
--- example: accel.nn.AvgPool2d(2)(accel.tensor { { { 1.0, 2.0 }, { 4.0, 3.0 } } }) --> { { { 2.5 } } }
---@class accel.nn.AvgPool2d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.AvgPool2d
M.AvgPool2d = avg_class("AvgPool2d", 2, accel.avg_pool2d)

--- Means over output_size parts of each channel, part i of n being floor(i L / n) .. ceil((i + 1) L / n) - 1,
--- i from 0.
--- example: accel.nn.AdaptiveAvgPool1d(2)(accel.tensor { { { 1.0, 2.0, 6.0, 4.0 } } }) --> { { { 1.5, 5 } } }
---@class accel.nn.AdaptiveAvgPool1d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes): accel.nn.AdaptiveAvgPool1d
M.AdaptiveAvgPool1d = adaptive_class("AdaptiveAvgPool1d", 1, accel.adaptive_avg_pool1d)

--- Means over output_size parts of (N, C, H, W). false in place of a size keeps that dimension.
--- example: accel.nn.AdaptiveAvgPool2d(1)(accel.ones(1, 3, 5, 7)).shape --> { 1, 3, 1, 1 }
--- example: accel.nn.AdaptiveAvgPool2d({ 2, false })(accel.ones(1, 3, 5, 7)).shape --> { 1, 3, 2, 7 }
---@class accel.nn.AdaptiveAvgPool2d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes): accel.nn.AdaptiveAvgPool2d
M.AdaptiveAvgPool2d = adaptive_class("AdaptiveAvgPool2d", 2, accel.adaptive_avg_pool2d)

--- Largest values of output_size parts of each channel, cut as AdaptiveAvgPool1d's.
--- example: accel.nn.AdaptiveMaxPool1d(2)(accel.tensor { { { 1.0, 2.0, 6.0, 4.0 } } }) --> { { { 2, 6 } } }
---@class accel.nn.AdaptiveMaxPool1d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes, return_indices: boolean?): accel.nn.AdaptiveMaxPool1d
M.AdaptiveMaxPool1d = adaptive_class("AdaptiveMaxPool1d", 1, accel.adaptive_max_pool1d, true)

--- Largest values of output_size parts of (N, C, H, W), cut as AdaptiveAvgPool2d's.
--- example: accel.nn.AdaptiveMaxPool2d(1)(accel.tensor { { { 1.0, 2.0 }, { 4.0, 3.0 } } }) --> { { { 4 } } }
---@class accel.nn.AdaptiveMaxPool2d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes, return_indices: boolean?): accel.nn.AdaptiveMaxPool2d
M.AdaptiveMaxPool2d = adaptive_class("AdaptiveMaxPool2d", 2, accel.adaptive_max_pool2d, true)

--- Largest value of each box of (N, C, D, H, W). See MaxPool1d.
--- example: accel.nn.MaxPool3d(2)(accel.ones(1, 2, 4, 4, 4)).shape --> { 1, 2, 2, 2, 2 }
---@class accel.nn.MaxPool3d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.MaxPool3d
M.MaxPool3d = max_class("MaxPool3d", 3, accel.max_pool3d)

--- Mean of each box of (N, C, D, H, W). See AvgPool2d.
--- example: accel.nn.AvgPool3d(2)(accel.ones(1, 2, 4, 4, 4)).shape --> { 1, 2, 2, 2, 2 }
---@class accel.nn.AvgPool3d : accel.nn.Module
---@overload fun(kernel_size: accel.nn.sizes, stride: accel.nn.sizes?, opts: table?): accel.nn.AvgPool3d
M.AvgPool3d = avg_class("AvgPool3d", 3, accel.avg_pool3d)

--- Means over output_size parts of (N, C, D, H, W). false in place of a size keeps that dimension.
--- example: accel.nn.AdaptiveAvgPool3d(1)(accel.ones(1, 3, 5, 7, 2)).shape --> { 1, 3, 1, 1, 1 }
---@class accel.nn.AdaptiveAvgPool3d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes): accel.nn.AdaptiveAvgPool3d
M.AdaptiveAvgPool3d = adaptive_class("AdaptiveAvgPool3d", 3, accel.adaptive_avg_pool3d)

--- Largest values of output_size parts of (N, C, D, H, W), cut as AdaptiveAvgPool3d's.
--- example: accel.nn.AdaptiveMaxPool3d({ 2, 1, false })(accel.ones(1, 3, 5, 7, 2)).shape --> { 1, 3, 2, 1, 2 }
---@class accel.nn.AdaptiveMaxPool3d : accel.nn.Module
---@overload fun(output_size: accel.nn.sizes, return_indices: boolean?): accel.nn.AdaptiveMaxPool3d
M.AdaptiveMaxPool3d = adaptive_class("AdaptiveMaxPool3d", 3, accel.adaptive_max_pool3d, true)

return M
