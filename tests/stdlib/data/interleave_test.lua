-- IterableDataset:interleave gives the samples of interleave_datasets of Hugging Face's datasets 5.2.0 on IterableDatasets.
local accel = require "accel"
local data = accel.data

local Count = data.IterableDataset:extend "Count" -- n samples: first, first + 1, ...
function Count:init(first, n) self.first, self.n = first, n end
function Count:iterate()
  local i = 0
  return function()
    i = i + 1
    return i <= self.n and self.first + i - 1 or nil
  end
end

local function streams(sizes)
  local first, rest = nil, {}
  for k, n in ipairs(sizes) do
    local s = Count(10 * (k - 1), n)
    if k == 1 then first = s else rest[#rest + 1] = s end
  end
  return first, rest
end
local function read(sizes, opts)
  local first, rest = streams(sizes)
  local out = {}
  for x in first:interleave(rest, opts):iterate(0, 3) do out[#out + 1] = x end
  return out
end
local function text(list) return table.concat(list, " ") end

local FIRST, ALL, ONCE = "first_exhausted", "all_exhausted", "all_exhausted_without_replacement"
for _, row in ipairs {
  { { 3, 4, 5 }, FIRST, "0 10 20 1 11 21 2" },
  { { 3, 4, 5 }, ALL, "0 10 20 1 11 21 2 12 22 0 13 23 1 10 24" },
  { { 3, 4, 5 }, ONCE, "0 10 20 1 11 21 2 12 22 13 23 24" },
  { { 2, 2 }, FIRST, "0 10 1" }, { { 2, 2 }, ALL, "0 10 1 11" }, { { 2, 2 }, ONCE, "0 10 1 11" },
  { { 5, 1, 3 }, FIRST, "0 10" },
  { { 5, 1, 3 }, ALL, "0 10 20 1 10 21 2 10 22 3 10 20 4" },
  { { 5, 1, 3 }, ONCE, "0 10 20 1 21 2 22 3 4" },
  { { 1, 4 }, FIRST, "0" }, { { 1, 4 }, ALL, "0 10 0 11 0 12 0 13" }, { { 1, 4 }, ONCE, "0 10 11 12 13" },
} do
  local got = text(read(row[1], { stopping_strategy = row[2] }))
  assert(got == row[3], ("%s of %s: %s, not %s"):format(row[2], text(row[1]), got, row[3]))
end

-- Drawn: what the strategies promise, whatever the draws.
for seed = 1, 20 do
  local p, seen = { 0.6, 0.3, 0.1 }, {}
  local all = read({ 3, 4, 5 }, { probabilities = p, seed = seed, stopping_strategy = ALL })
  for _, x in ipairs(all) do seen[x] = (seen[x] or 0) + 1 end
  for k, n in ipairs { 3, 4, 5 } do
    for i = 0, n - 1 do assert(seen[10 * (k - 1) + i]) end -- every sample at least once
  end
  assert(seen[all[#all]] == 1) -- the last sample is the last new one
  local once = read({ 3, 4, 5 }, { probabilities = p, seed = seed, stopping_strategy = ONCE })
  table.sort(once)
  assert(text(once) == "0 1 2 10 11 12 13 20 21 22 23 24")
  local first, ends = read({ 3, 4, 5 }, { probabilities = p, seed = seed }), { [2] = true, [13] = true, [24] = true }
  for i, x in ipairs(first) do assert((ends[x] or false) == (i == #first)) end
end

-- A probability of 0: that stream is never read and nobody waits for it.
assert(text(read({ 3, 4 }, { probabilities = { 1, 0 } })) == "0 1 2")
assert(text(read({ 3, 4 }, { probabilities = { 1, 0 }, stopping_strategy = ONCE })) == "0 1 2")
assert(text(read({ 3, 0 }, { probabilities = { 1, 0 } })) == "0 1 2")
local function refused(part, opts)
  local ok, err = pcall(read, { 3, 4 }, opts)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end
refused("stream 2 has the probability 0", { probabilities = { 1, 0 }, stopping_strategy = ALL })
refused("not all 0", { probabilities = { 0, 0 } })
refused("probability 1", { probabilities = { -1, 2 } })
refused("2 numbers", { probabilities = { 1 } })
refused("stopping_strategy", { stopping_strategy = "last" })
