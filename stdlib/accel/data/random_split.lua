--- data.random_split: a data set cut at random into parts.
local check = require "accel.util.check"
local options = require "accel.util.options"
local Random = require "accel.util.random"
local raise = require "accel.util.raise"

--- Sizes of the parts of n samples: counts are used unchanged. For fractions, the samples left by rounding go to the
--- parts in turn, one each.
local function sizes(n, lengths)
  local counts, sum = true, 0
  for i, x in ipairs(lengths) do
    check.number("random_split", ("lengths[%d]"):format(i), x, 0)
    counts, sum = counts and math.type(x) == "integer", sum + x
  end
  if counts then
    if sum ~= n then raise("random_split: the lengths make %d samples, the data set has %d", sum, n) end
    return lengths
  end
  if math.abs(sum - 1) > 1e-6 then
    raise("random_split: the fractions add up to %g; give fractions that add up to 1, or counts that add up to %d", sum, n)
  end
  local out, left = {}, n
  for i, x in ipairs(lengths) do
    out[i] = math.min(math.floor(n * x), left)
    left = left - out[i]
  end
  for i = 1, left do
    local k = (i - 1) % #out + 1
    out[k] = out[k] + 1
  end
  return out
end

--- Parts of these lengths: counts that make up the data set, or fractions (0.9, 0.1) that make 1. The choice of samples
--- depends only on the seed.
--- example: local parts = accel.data.random_split(accel.data.ListDataset { 1, 2, 3, 4, 5 }, { 0.8, 0.2 })
---   return #parts[1], #parts[2] --> 4, 1
---@param dataset table
---@param lengths number[]
---@param opts? {seed: integer?}
---@return accel.data.Subset[]
local function random_split(dataset, lengths, opts, ...)
  check.surplus("random_split", ...)
  local o = options("random_split", opts, { seed = 0 })
  if type(dataset) ~= "table" or dataset.len == nil then
    raise("random_split: expected a data set with a length, got %s", check.shown(dataset))
  end
  if type(lengths) ~= "table" or #lengths == 0 then
    raise("random_split: lengths must be a list of counts or fractions, got %s", check.shown(lengths))
  end
  local Subset = require("accel.data.views").Subset
  local n, order, parts, first = dataset:len(), {}, {}, 1
  for i = 1, n do order[i] = i end
  Random(check.integer("random_split", "seed", o.seed), -1):shuffle(order) -- a stream that no epoch has
  for i, size in ipairs(sizes(n, lengths)) do
    parts[i] = Subset(dataset, table.move(order, first, first + size - 1, 1, {}))
    first = first + size
  end
  return parts
end

return { random_split = random_split }
