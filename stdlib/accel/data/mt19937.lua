--- The generator behind numpy.random.RandomState(seed), MT19937 (Matsumoto, Nishimura 1998), as far as orders of data of other programs need
--- it: shuffles equal to RandomState.shuffle. New code draws from accel.Generator.
local class = require "accel.util.class"

local N <const>, M <const> = 624, 397

---@class accel.data.MT19937
local Twister = class("accel.data.MT19937")

---@param seed integer 0 to 2^32 - 1
function Twister:init(seed)
  local mt = { [0] = seed & 0xffffffff }
  for i = 1, N - 1 do mt[i] = (1812433253 * (mt[i - 1] ~ (mt[i - 1] >> 30)) + i) & 0xffffffff end
  self.mt, self.at = mt, N
end

local function refill(mt)
  for k = 0, N - 1 do
    local y = (mt[k] & 0x80000000) | (mt[(k + 1) % N] & 0x7fffffff)
    local x = mt[(k + M) % N] ~ (y >> 1)
    if y & 1 ~= 0 then x = x ~ 0x9908b0df end
    mt[k] = x
  end
end

--- The next 32 bits.
---@return integer
function Twister:next()
  if self.at == N then
    refill(self.mt)
    self.at = 0
  end
  local y = self.mt[self.at]
  self.at = self.at + 1
  y = y ~ (y >> 11)
  y = y ~ ((y << 7) & 0x9d2c5680)
  y = y ~ ((y << 15) & 0xefc60000)
  return y ~ (y >> 18)
end

--- A number from 0 up to 1, of 53 bits: RandomState.random_sample.
---@return number
function Twister:double()
  local high, low = self:next() >> 5, self:next() >> 6
  return (high * 67108864.0 + low) / 9007199254740992.0
end

--- An integer from 0 to most: bits below the next power of two, drawn again until they are no more.
---@param most integer less than 2^32
---@return integer
function Twister:interval(most)
  if most == 0 then return 0 end
  local mask = most
  for _, s in ipairs { 1, 2, 4, 8, 16 } do mask = mask | (mask >> s) end
  local x
  repeat x = self:next() & mask until x <= most
  return x
end

--- A list in a new order, in place: RandomState.shuffle of an array of one dimension.
---@param list any[]
---@return any[]
function Twister:shuffle(list)
  for i = #list - 1, 1, -1 do
    local j = self:interval(i)
    list[i + 1], list[j + 1] = list[j + 1], list[i + 1]
  end
  return list
end

return Twister
