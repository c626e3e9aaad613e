--- The Mersenne Twister (Matsumoto, Nishimura 1998) for words of 32 and 64 bits, as far as orders of data of other programs need it. New code
--- draws from accel.Generator.
local class = require "accel.util.class"

---@class accel.data.MersenneTwister: accel.util.class.Object
---@field next fun(self): integer the next word. A 64-bit one may be negative

---@class accel.data.MersenneTwisterConstants with their letters in C++'s std::mersenne_twister_engine
---@field bits 32|64 w
---@field size integer n, words of the state
---@field middle integer m
---@field lower integer the r lowest bits set
---@field twist integer a
---@field spread integer f, of the seed over the state
---@field fold integer w - 2
---@field temper integer[] u, d, s, b, t, c, l

--- A class of generators, each made from a seed of this many bits.
---@param name string
---@param k accel.data.MersenneTwisterConstants
---@return any
return function(name, k)
  local N <const>, M <const>, TWIST <const>, LOWER <const> = k.size, k.middle, k.twist, k.lower
  local WORD <const> = k.bits == 64 and -1 or (1 << k.bits) - 1
  local UPPER <const> = WORD & ~LOWER
  local U <const>, D <const>, S <const>, B <const>, T <const>, C <const>, L <const> = table.unpack(k.temper)
  local Twister = class(name)

  function Twister:init(seed)
    local mt = { [0] = seed & WORD }
    for i = 1, N - 1 do mt[i] = (k.spread * (mt[i - 1] ~ (mt[i - 1] >> k.fold)) + i) & WORD end
    self.mt, self.at = mt, N
  end

  local function refill(mt)
    for i = 0, N - 1 do
      local y = (mt[i] & UPPER) | (mt[(i + 1) % N] & LOWER)
      local x = mt[(i + M) % N] ~ (y >> 1)
      if y & 1 ~= 0 then x = x ~ TWIST end
      mt[i] = x
    end
  end

  function Twister:next()
    if self.at == N then
      refill(self.mt)
      self.at = 0
    end
    local y = self.mt[self.at]
    self.at = self.at + 1
    y = y ~ ((y >> U) & D)
    y = y ~ ((y << S) & B)
    y = y ~ ((y << T) & C)
    return y ~ (y >> L)
  end
  return Twister
end
