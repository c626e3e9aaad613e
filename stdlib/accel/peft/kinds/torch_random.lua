--- Random numbers as torch.Generator draws them on the CPU, for files that hold a seed in the place of values: positions of entries
--- (FourierFT, WaveFT, SHiRA) and VeRA's projections.
local accel = require "accel"
local MT19937 = require "accel.data.mt19937"
local raise = require "accel.util.raise"

local M = {}

--- A generator with torch's seed.
---@param seed integer
---@return accel.data.MT19937
function M.generator(seed)
  if math.type(seed) ~= "integer" then raise("expected an integer as the seed, got %s", tostring(seed)) end
  return MT19937(seed & 0xffffffff)
end

--- The first `count` entries of torch.randperm(n, generator).
---@param generator accel.data.MT19937
---@param n integer
---@param count integer
---@return integer[] from 0
function M.permutation(generator, n, count)
  if n >= 0xffffffff // 20 then
    raise("torch draws permutations of %d entries by another rule, which accel does not have; choose smaller layers", n)
  end
  local at = {} -- entries that are not where they began, by position
  local out = {}
  for i = 0, math.min(count, n) - 1 do
    local j = i + generator:next() % (n - i)
    out[i + 1] = at[j] or j
    at[j] = at[i] or i
  end
  return out
end

--- Values of torch.empty(shape).uniform_(low, high, generator), f32.
---@param generator accel.data.MT19937
---@param shape integer[]
---@param low number
---@param high number
---@return accel.Tensor
function M.uniform(generator, shape, low, high)
  local n, list = 1, {}
  for _, extent in ipairs(shape) do n = n * extent end
  for i = 1, n do list[i] = (generator:next() & 0xffffff) / 0x1000000 end
  local t = accel.tensor(list, { dtype = "f32" }) -- products and sums round to f32, as torch's do
  local from, to = accel.tensor({ low }, { dtype = "f32" }), accel.tensor({ high }, { dtype = "f32" })
  return (t * (to - from) + from):reshape(shape)
end

return M
