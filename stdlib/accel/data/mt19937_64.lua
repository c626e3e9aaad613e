--- The 64-bit Mersenne Twister (Nishimura 2000), std::mt19937_64 of C++, as far as orders of data of other programs need it. New code draws
--- from accel.Generator.
local mersenne_twister = require "accel.data.mersenne_twister"

---@class accel.data.MT19937_64: accel.data.MersenneTwister
local Twister = mersenne_twister("accel.data.MT19937_64", { bits = 64, size = 312, middle = 156, lower = 0x7fffffff,
  twist = 0xb5026f5aa96619e9, spread = 6364136223846793005, fold = 62,
  temper = { 29, 0x5555555555555555, 17, 0x71d67fffeda60000, 37, 0xfff7eee000000000, 43 } })

--- The next 64 bits, taken without sign, modulo n.
---@param n integer 1 or more
---@return integer
function Twister:below(n)
  local x = self:next()
  if x >= 0 then return x % n end
  local half = (x >> 1) // n << 1 -- a quotient that is one too small at the most
  local rest = x - half * n
  return math.ult(rest, n) and rest or rest - n
end

return Twister
