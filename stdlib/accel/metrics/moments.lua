--- Moments: exact sums of two variables and of their products, for correlation coefficients. Used by pearson.lua
--- and spearman.lua.
local ExactSum = require "accel.metrics.exact_sum"
local class = require "accel.util.class"

---@class accel.metrics.Moments
local Moments = class("accel.metrics.Moments")

local SUMS = { "n", "x", "y", "xx", "yy", "xy" }
Moments.sums = SUMS

function Moments:init()
  for _, name in ipairs(SUMS) do self[name] = ExactSum() end
end

--- Adds pairs: two one-dimensional tensors of one length.
---@param x accel.Tensor
---@param y accel.Tensor
function Moments:add(x, y)
  self.n:add(x:numel())
  self.x:add_tensor(x)
  self.y:add_tensor(y)
  self.xx:add_products(x, x)
  self.yy:add_products(y, y)
  self.xy:add_products(x, y)
end

-- n * the sum of products - the product of the sums.
local function covariance(self, products, a, b) return self.n:times(products):merge(a:times(b), -1) end

-- A mantissa and an even exponent.
local function even(x, e)
  if e % 2 == 0 then return x, e end
  return 2 * x, e - 1
end

--- Pearson's coefficient of all pairs. NaN if one variable is constant or has a value that is not finite.
---@return number
function Moments:correlation()
  local c, ec = covariance(self, self.xy, self.x, self.y):parts()
  local vx, ex = covariance(self, self.xx, self.x, self.x):parts()
  local vy, ey = covariance(self, self.yy, self.y, self.y):parts()
  if c ~= c or vx ~= vx or vy ~= vy or vx == 0 or vy == 0 then return 0 / 0 end
  local v, e = even(vx * vy, ex + ey)
  local r = c / math.sqrt(v) * 2.0 ^ (ec - e // 2)
  return math.max(-1.0, math.min(1.0, r))
end

return Moments
