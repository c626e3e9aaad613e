--- Dropout layers: they zero at random while training, and pass their input through in eval mode.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"

local dropout = accel.dropout

local M = {}

--- `inplace` is taken for the sake of ported scripts, changes nothing and warns.
local function class(who)
  local Class = Module:extend("accel.nn." .. who)
  local parse = arguments(who, { "p", 0.5 }, { "inplace", false })

  function Class:init(...)
    local o = parse(...)
    self.p = check.number(who, "p", o.p, 0, 1)
    if o.inplace then require "accel.util.no_effect"(Class.__name, { inplace = true }) end
  end

  function Class:extra_repr() return ("p=%g"):format(self.p) end

  return Class
end

--- Zeroes each element with probability p (default 0.5) and scales the rest by 1 / (1 - p).
--- example: accel.nn.Dropout(0.5):eval()(accel.tensor { 1.0, 2.0 }) --> { 1, 2 }
--- example: accel.nn.Dropout(1)(accel.tensor { 1.0, 2.0 }) --> { 0, 0 }
---@class accel.nn.Dropout : accel.nn.Module
---@overload fun(p: number?): accel.nn.Dropout
M.Dropout = class("Dropout")

function M.Dropout:forward(x)
  if not self.training or self.p == 0 then return x end
  return dropout(x, self.p, true)
end

local function by_channel(who, name)
  local Class = class(who)
  function Class:forward(x) return require("accel.nn.functional")[name](x, self.p, self.training) end
  return Class
end

--- Zeroes whole channels of (N, C, L) or (C, L) with probability p, and scales the others by 1 / (1 - p).
--- example: accel.nn.Dropout1d(1)(accel.ones(1, 2, 3)) --> { { { 0, 0, 0 }, { 0, 0, 0 } } }
---@class accel.nn.Dropout1d : accel.nn.Module
---@overload fun(p: number?): accel.nn.Dropout1d
M.Dropout1d = by_channel("Dropout1d", "dropout1d")

--- Zeroes whole channels of (N, C, H, W) with probability p, and scales the others by 1 / (1 - p).
--- example: accel.nn.Dropout2d(0.3):eval()(accel.ones(1, 1, 1, 2)) --> { { { { 1, 1 } } } }
---@class accel.nn.Dropout2d : accel.nn.Module
---@overload fun(p: number?): accel.nn.Dropout2d
M.Dropout2d = by_channel("Dropout2d", "dropout2d")

--- Zeroes whole channels of (N, C, D, H, W) with probability p, and scales the others by 1 / (1 - p).
--- example: accel.nn.Dropout3d(0.3):eval()(accel.ones(1, 1, 1, 1, 2)).shape --> { 1, 1, 1, 1, 2 }
---@class accel.nn.Dropout3d : accel.nn.Module
---@overload fun(p: number?): accel.nn.Dropout3d
M.Dropout3d = by_channel("Dropout3d", "dropout3d")

--- Dropout that keeps mean and variance of standardised inputs, for networks of SELU: dropped elements become
--- SELU's limit, then all are scaled and shifted.
--- example: accel.nn.AlphaDropout(0.5):eval()(accel.tensor { 1.0, 2.0 }) --> { 1, 2 }
---@class accel.nn.AlphaDropout : accel.nn.Module
---@overload fun(p: number?): accel.nn.AlphaDropout
M.AlphaDropout = by_channel("AlphaDropout", "alpha_dropout")

--- AlphaDropout of whole channels of (N, C, ...).
--- example: accel.nn.FeatureAlphaDropout(0.5):eval()(accel.ones(1, 2, 1)) --> { { { 1 }, { 1 } } }
---@class accel.nn.FeatureAlphaDropout : accel.nn.Module
---@overload fun(p: number?): accel.nn.FeatureAlphaDropout
M.FeatureAlphaDropout = by_channel("FeatureAlphaDropout", "feature_alpha_dropout")

return M
