--- The 64-bit Mersenne Twister (Nishimura 2000), std::mt19937_64 of C++, as far as orders of data of other programs need it. New code draws
--- from accel.Generator.
local class = require "accel.util.class"

local N <const>, M <const> = 312, 156
local UPPER <const>, LOWER <const> = 0xffffffff80000000, 0x7fffffff

---@class accel.data.MT19937_64
local Twister = class("accel.data.MT19937_64")

---@param seed integer
function Twister:init(seed)
  local mt = { [0] = seed }
  for i = 1, N - 1 do mt[i] = 6364136223846793005 * (mt[i - 1] ~ (mt[i - 1] >> 62)) + i end
  self.mt, self.at = mt, N
end

local function refill(mt)
  for k = 0, N - 1 do
    local y = (mt[k] & UPPER) | (mt[(k + 1) % N] & LOWER)
    local x = mt[(k + M) % N] ~ (y >> 1)
    if y & 1 ~= 0 then x = x ~ 0xb5026f5aa96619e9 end
    mt[k] = x
  end
end

--- The next 64 bits, as an integer that may be negative.
---@return integer
function Twister:next()
  if self.at == N then
    refill(self.mt)
    self.at = 0
  end
  local y = self.mt[self.at]
  self.at = self.at + 1
  y = y ~ ((y >> 29) & 0x5555555555555555)
  y = y ~ ((y << 17) & 0x71d67fffeda60000)
  y = y ~ ((y << 37) & 0xfff7eee000000000)
  return y ~ (y >> 43)
end

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
