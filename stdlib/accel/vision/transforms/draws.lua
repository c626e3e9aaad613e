--- Draws of math.random and ranges of options for the classes of accel.vision.transforms.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- A number from a range, or one of +- v.
function M.uniform(low, high) return low + (high - low) * math.random() end

--- True with probability p.
function M.chance(p) return math.random() < p end

--- {low, high} of a symmetric option: a number v is {center - v, center + v}, not below `least`.
function M.range(who, name, v, center, least)
  if type(v) == "number" then
    if v < 0 then raise("%s: %s must not be negative, got %s", who, name, v) end
    v = { math.max(center - v, least or -math.huge), center + v }
  end
  if type(v) ~= "table" or #v ~= 2 or type(v[1]) ~= "number" or type(v[2]) ~= "number" or v[1] > v[2] then
    raise("%s: %s must be a number or {low, high}, got %s", who, name, check.shown(v))
  end
  return v
end

function M.probability(who, p) return check.number(who, "p", p, 0, 1) end

return M
