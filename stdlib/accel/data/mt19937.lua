--- The generator of numpy.random.RandomState(seed), MT19937 (Matsumoto, Nishimura 1998), as far as other programs' data orders need it:
--- shuffles equal to RandomState.shuffle. New code draws from accel.Generator.
local mersenne_twister = require "accel.data.mersenne_twister"

---@class accel.data.MT19937: accel.data.MersenneTwister
local Twister = mersenne_twister("accel.data.MT19937", { bits = 32, size = 624, middle = 397, lower = 0x7fffffff, twist = 0x9908b0df,
  spread = 1812433253, fold = 30, temper = { 11, 0xffffffff, 7, 0x9d2c5680, 15, 0xefc60000, 18 } })

--- A number from 0 up to 1, of 53 bits: RandomState.random_sample.
---@return number
function Twister:double()
  local high, low = self:next() >> 5, self:next() >> 6
  return (high * 67108864.0 + low) / 9007199254740992.0
end

--- An integer from 0 to most: bits below the next power of two, drawn again while they exceed it.
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
