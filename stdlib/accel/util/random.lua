--- Random numbers for decisions made in Lua: order of a data pass, choice of a token. Only integers inside
--- (splitmix64), so every machine draws the same. The state is one number, which goes into checkpoints. Tensors are
--- filled by the native generators instead.
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- example: local a, b = accel.util.Random(7), accel.util.Random(7) return a:below(10) == b:below(10) --> true
--- example: accel.util.Random(1):choice { 0, 1, 0 } --> 2
---@class accel.util.Random
---@field state integer
local Random = class("accel.util.Random")

local function mix(z)
  z = (z ~ (z >> 30)) * 0xbf58476d1ce4e5b9
  z = (z ~ (z >> 27)) * 0x94d049bb133111eb
  return z ~ (z >> 31)
end

--- stream separates uses of one seed: epochs, ranks.
---@param seed integer
---@param stream? integer
function Random:init(seed, stream)
  self.state = mix(mix(seed or 0) + (stream or 0) * 0x9e3779b97f4a7c15)
end

-- The loops below call these: a method checks its object at every call.
local function bits(self)
  self.state = self.state + 0x9e3779b97f4a7c15
  return mix(self.state)
end

local function below(self, n)
  local limit = math.maxinteger - math.maxinteger % n
  local x
  repeat x = bits(self) >> 1 until x < limit
  return x % n
end

--- 64 random bits as an integer.
function Random:bits() return bits(self) end

--- A float in [0, 1).
function Random:uniform() return (bits(self) >> 11) * 0x1p-53 end

--- An integer in 0 .. n-1, without bias.
---@param n integer above 0
function Random:below(n)
  if n <= 0 then raise("Random:below: n must be positive, got %s", tostring(n)) end
  return below(self, n)
end

--- Shuffles the first n entries of list in place (Fisher-Yates).
---@param list table changed in place
---@param n? integer [#list]
function Random:shuffle(list, n)
  for i = n or #list, 2, -1 do
    local j = below(self, i) + 1
    list[i], list[j] = list[j], list[i]
  end
  return list
end

--- A position 1 .. n with probability proportional to weights[i] (non-negative, not all zero).
---@param weights number[]
---@param n? integer [#weights]
function Random:choice(weights, n)
  n = n or #weights
  local total = 0.0
  for i = 1, n do total = total + weights[i] end
  if total ~= total or total <= 0 or total == math.huge then
    raise "Random:choice: weights must be finite and not all zero"
  end
  local u, last = self:uniform() * total, 1
  for i = 1, n do
    local w = weights[i]
    if w > 0 then
      last = i
      if u < w then return i end
      u = u - w
    end
  end
  return last
end

return Random
