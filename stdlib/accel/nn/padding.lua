--- Padding layers. The amounts are PyTorch's: one number for all sides, or two per dimension, beginning with
--- the last: {left, right, top, bottom}. Negative amounts cut off.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function amounts(who, value, n)
  local list = {}
  if type(value) ~= "table" then
    for i = 1, 2 * n do list[i] = check.integer(who, "padding", value) end
    return list
  end
  if #value ~= 2 * n then
    raise("%s: padding must be a number or a list of %d, got a list of %d", who, 2 * n, #value)
  end
  for i, v in ipairs(value) do list[i] = check.integer(who, ("padding[%d]"):format(i), v) end
  return list
end

--- As PyTorch: a mode other than constant pads images with channels, in a batch or alone. Other ranks are the op's (accel.pad).
local function need(who, x, n)
  if x.ndim ~= n + 1 and x.ndim ~= n + 2 then
    raise("%s: expected %dD or %dD input, got shape %s", who, n + 1, n + 2, tensors.shape_string(x))
  end
end

--- A class over n dimensions. In constant mode the padding is fixed_value, or a second argument.
local function class(who, n, mode, fixed_value)
  local Pad = Module:extend("accel.nn." .. who)
  local constant = mode == "constant"
  local parse = arguments(who, { "padding", list = true },
    constant and not fixed_value and { "value", any = true } or nil)

  function Pad:init(...)
    local o = parse(...)
    self.padding = amounts(who, o.padding, n)
    if constant then self.value = fixed_value or check.number(who, "value", o.value) end
  end

  function Pad:forward(x)
    if constant then return accel.pad(x, self.padding, mode, self.value) end
    need(who, x, n)
    return accel.pad(x, self.padding, mode)
  end

  function Pad:extra_repr()
    local text = arguments.text(self.padding)
    if not constant or fixed_value then return text end
    return ("padding=%s, value=%g"):format(text, self.value)
  end

  return Pad
end

--- Zeros around the last dimension.
--- example: accel.nn.ZeroPad1d(1)(accel.ones(1, 2)) --> { { 0, 1, 1, 0 } }
---@class accel.nn.ZeroPad1d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ZeroPad1d
M.ZeroPad1d = class("ZeroPad1d", 1, "constant", 0.0)

--- Zeros around the last two dimensions.
--- example: accel.nn.ZeroPad2d({ 1, 0, 1, 0 })(accel.ones(1, 1, 1)) --> { { { 0, 0 }, { 0, 1 } } }
---@class accel.nn.ZeroPad2d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ZeroPad2d
M.ZeroPad2d = class("ZeroPad2d", 2, "constant", 0.0)

--- A value around the last dimension.
--- example: accel.nn.ConstantPad1d({ 0, 2 }, 7)(accel.ones(1, 1)) --> { { 1, 7, 7 } }
---@class accel.nn.ConstantPad1d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes, value: number): accel.nn.ConstantPad1d
M.ConstantPad1d = class("ConstantPad1d", 1, "constant")

--- A value around the last two dimensions.
--- example: accel.nn.ConstantPad2d({ 1, 0, 1, 0 }, 7)(accel.ones(1, 1, 1)) --> { { { 7, 7 }, { 7, 1 } } }
---@class accel.nn.ConstantPad2d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes, value: number): accel.nn.ConstantPad2d
M.ConstantPad2d = class("ConstantPad2d", 2, "constant")

--- The last dimension mirrored at its ends, which are not repeated.
--- example: accel.nn.ReflectionPad1d(2)(accel.tensor { { { 1.0, 2.0, 3.0 } } }) --> { { { 3, 2, 1, 2, 3, 2, 1 } } }
---@class accel.nn.ReflectionPad1d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReflectionPad1d
M.ReflectionPad1d = class("ReflectionPad1d", 1, "reflect")

--- The last two dimensions mirrored at their ends, which are not repeated.
--- example: accel.nn.ReflectionPad2d(1)(accel.ones(1, 1, 3, 3)).shape --> { 1, 1, 5, 5 }
---@class accel.nn.ReflectionPad2d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReflectionPad2d
M.ReflectionPad2d = class("ReflectionPad2d", 2, "reflect")

--- The ends of the last dimension repeated.
--- example: accel.nn.ReplicationPad1d(1)(accel.tensor { { { 1.0, 2.0 } } }) --> { { { 1, 1, 2, 2 } } }
---@class accel.nn.ReplicationPad1d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReplicationPad1d
M.ReplicationPad1d = class("ReplicationPad1d", 1, "replicate")

--- The ends of the last two dimensions repeated.
--- example: accel.nn.ReplicationPad2d(1)(accel.ones(1, 1, 3, 3)).shape --> { 1, 1, 5, 5 }
---@class accel.nn.ReplicationPad2d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReplicationPad2d
M.ReplicationPad2d = class("ReplicationPad2d", 2, "replicate")

--- The last dimension continued from its other end.
--- example: accel.nn.CircularPad1d({ 1, 2 })(accel.tensor { { { 1.0, 2.0, 3.0 } } }) --> { { { 3, 1, 2, 3, 1, 2 } } }
---@class accel.nn.CircularPad1d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.CircularPad1d
M.CircularPad1d = class("CircularPad1d", 1, "circular")

--- The last two dimensions continued from their other ends.
--- example: accel.nn.CircularPad2d(1)(accel.ones(1, 1, 3, 3)).shape --> { 1, 1, 5, 5 }
---@class accel.nn.CircularPad2d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.CircularPad2d
M.CircularPad2d = class("CircularPad2d", 2, "circular")

--- Zeros around the last three dimensions.
--- example: accel.nn.ZeroPad3d(1)(accel.ones(1, 1, 1, 1, 1)):sum() --> 1
---@class accel.nn.ZeroPad3d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ZeroPad3d
M.ZeroPad3d = class("ZeroPad3d", 3, "constant", 0.0)

--- A value around the last three dimensions.
--- example: accel.nn.ConstantPad3d(1, 2)(accel.zeros(1, 1, 1, 1, 1)):sum() --> 52
---@class accel.nn.ConstantPad3d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes, value: number): accel.nn.ConstantPad3d
M.ConstantPad3d = class("ConstantPad3d", 3, "constant")

--- The last three dimensions mirrored at their ends, which are not repeated.
--- example: accel.nn.ReflectionPad3d(1)(accel.ones(1, 1, 2, 2, 2)).shape --> { 1, 1, 4, 4, 4 }
---@class accel.nn.ReflectionPad3d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReflectionPad3d
M.ReflectionPad3d = class("ReflectionPad3d", 3, "reflect")

--- The ends of the last three dimensions repeated.
--- example: accel.nn.ReplicationPad3d(1)(accel.ones(1, 1, 1, 1, 1)):sum() --> 27
---@class accel.nn.ReplicationPad3d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.ReplicationPad3d
M.ReplicationPad3d = class("ReplicationPad3d", 3, "replicate")

--- The last three dimensions continued from their other ends.
--- example: accel.nn.CircularPad3d(1)(accel.ones(1, 1, 1, 1, 1)):sum() --> 27
---@class accel.nn.CircularPad3d : accel.nn.Module
---@overload fun(padding: accel.nn.sizes): accel.nn.CircularPad3d
M.CircularPad3d = class("CircularPad3d", 3, "circular")

return M
