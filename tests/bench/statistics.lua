-- The statistics behind `accel-run bench --against`: how far apart two samples of a figure are, with an interval that holds at a stated
-- confidence. Used by compare.lua.
--
-- Timings of one program have a long tail (others use the machine), and rounds are few. So nothing here takes a mean or supposes a
-- distribution:
--   paired     both programs ran by turns in the same rounds, so that what a round did to both cancels. The estimate is the median of
--              the differences, the interval that of the sign test: two of their order statistics. With 15 rounds at 99.9 % it stands
--              one wild round on either side. (The interval of signed ranks is narrower for normal noise, but at such a confidence
--              one wild round of 15 reaches its end.)
--   unpaired   the other sample is from another time. The estimate is the shift of Hodges and Lehmann, the median of all differences
--              between the samples, the interval that of Mann and Whitney's test; it stands two wild rounds of 15 in each sample.
-- Both intervals come from exact distributions: they hold for any noise and any number of rounds, and need no random numbers. A
-- bootstrap of the median of 15 rounds is too narrow, and what it says depends on its seed.
--
-- Figures are compared by their logarithms, so that a shift is a ratio: 5 % slower is 5 % for nanoseconds and for seconds.
--
-- Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, sections 3.4 to 3.6, 4.2, 4.3.
local M = {}

local function median(sorted)
  local n = #sorted
  return n % 2 == 1 and sorted[(n + 1) // 2] or (sorted[n // 2] + sorted[n // 2 + 1]) / 2
end

--- Of a distribution given by counts of the values 0, 1, ...: how many of its lowest values hold at most `share` of it.
local function lowest(counts, share)
  local total, sum = 0.0, 0.0
  for u = 0, #counts do total = total + counts[u] end
  for u = 0, #counts do
    sum = sum + counts[u]
    if sum > share * total then return u end
  end
  return #counts + 1
end

-- In how many ways u of n signs are positive.
local function signs(n)
  local counts = { [0] = 1.0 }
  for u = 1, n do counts[u] = counts[u - 1] * (n - u + 1) / u end
  return counts
end

-- In how many ways n and m values interleave so that u pairs are in order. The last value is of the first sample, and in order with all
-- m others, or of the second. Additions alone, so that large counts lose no digits that matter.
local known = {}
local function pairs_in_order(n, m)
  local key = n .. " " .. m
  if known[key] then return known[key] end
  local row = {} -- of the first i values: by j of the others, by u
  for j = 0, m do row[j] = { [0] = 1.0 } end
  for i = 1, n do
    local next_row = { [0] = { [0] = 1.0 } }
    for j = 1, m do
      local counts, with, without = {}, row[j], next_row[j - 1]
      for u = 0, i * j do counts[u] = (with[u - j] or 0.0) + (without[u] or 0.0) end
      next_row[j] = counts
    end
    row = next_row
  end
  known[key] = row[m]
  return row[m]
end

-- The estimate and its interval from all shifts that the samples hold; no interval where there are too few.
local function shift(values, counts, alpha)
  table.sort(values)
  local k = lowest(counts, alpha / 2)
  if k < 1 then return median(values) end
  return median(values), values[k], values[#values + 1 - k]
end

--- How far b is above a, round by round. Returns the estimate, and the ends of its interval where there are enough rounds.
---@param a number[]
---@param b number[] as many
---@param alpha number 1 - confidence
---@return number estimate, number? low, number? high
function M.paired(a, b, alpha)
  local n, differences = math.min(#a, #b), {}
  for i = 1, n do differences[i] = b[i] - a[i] end
  return shift(differences, signs(n), alpha)
end

--- The same of samples from two times.
---@param a number[]
---@param b number[]
---@param alpha number
---@return number estimate, number? low, number? high
function M.unpaired(a, b, alpha)
  local all = {}
  for _, x in ipairs(a) do
    for _, y in ipairs(b) do all[#all + 1] = y - x end
  end
  return shift(all, pairs_in_order(#a, #b), alpha)
end

--- The fewest rounds with which there is an interval; n: the other sample, nil: paired.
---@param alpha number
---@param n? integer
---@return integer
function M.rounds(alpha, n)
  for rounds = 1, 60 do
    if lowest(n and pairs_in_order(n, rounds) or signs(rounds), alpha / 2) >= 1 then return rounds end
  end
  return 61
end

return M
