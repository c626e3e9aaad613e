-- The Mersenne Twister MT19937 from a stored state, and draws from it as CPython, NumPy and PyTorch (on a CPU) define them. Used by
-- folders_torch.lua: states that were read well give the recorded draws.
local M = {}

local N <const>, M32 <const> = 624, 0xffffffff

--- A generator from its 624 numbers and the position of the next one.
---@param state integer[]
---@param position integer
function M.new(state, position) return { state = state, at = position } end

--- A generator from PyTorch's state of a CPU: after the seed (8 bytes) `left`, whether it is seeded, the position, the numbers in 8 bytes
--- each.
---@param bytes string
function M.of_torch(bytes)
  local left, _, at = string.unpack("<i4i4I8", bytes, 9)
  local state = {}
  for i = 1, N do state[i] = string.unpack("<I8", bytes, 25 + 8 * (i - 1)) & M32 end
  return M.new(state, left == 1 and N or at)
end

local function refill(g)
  local s = g.state
  for i = 0, N - 1 do
    local y = s[i + 1] & 0x80000000 | s[(i + 1) % N + 1] & 0x7fffffff
    s[i + 1] = s[(i + 397) % N + 1] ~ y >> 1 ~ (y & 1) * 0x9908b0df
  end
  g.at = 0
end

local function word(g)
  if g.at >= N then refill(g) end
  g.at = g.at + 1
  local y = g.state[g.at]
  y = y ~ y >> 11
  y = y ~ y << 7 & 0x9d2c5680
  y = y ~ y << 15 & 0xefc60000
  return (y ~ y >> 18) & M32
end

local function list(n, draw)
  local out = {}
  for i = 1, n do out[i] = draw() end
  return out
end

--- Doubles of 53 bits, from the high bits of two words: CPython's random.random and NumPy's rand.
function M.doubles(g, n)
  return list(n, function()
    local a, b = word(g) >> 5, word(g) >> 6
    return (a * 67108864.0 + b) / 9007199254740992.0
  end)
end

--- PyTorch's rand of f32: the low 24 bits of a word.
function M.floats(g, n)
  return list(n, function() return (word(g) & 0xffffff) / 16777216.0 end)
end

--- PyTorch's randn of f32 below 16 elements: pairs by Box and Muller, from the low 53 bits of two words each.
function M.normals(g, n)
  local function uniform()
    local high = word(g)
    return (high << 32 | word(g)) & 0x1fffffffffffff
  end
  local kept
  return list(n, function()
    if kept then
      local x = kept
      kept = nil
      return x
    end
    local u1, u2 = uniform() / 9007199254740992.0, uniform() / 9007199254740992.0
    local r, theta = math.sqrt(-2 * math.log(1 - u2)), 2 * math.pi * u1
    kept = r * math.sin(theta)
    return r * math.cos(theta)
  end)
end

--- PyTorch's randperm: each place is exchanged with one after it.
function M.permutation(g, n)
  local p = {}
  for i = 1, n do p[i] = i - 1 end
  for i = 1, n - 1 do
    local k = i + word(g) % (n - i + 1)
    p[i], p[k] = p[k], p[i]
  end
  return p
end

return M
