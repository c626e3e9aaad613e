--- Equally many batches for ranks that each read their own shard, whose sizes nobody knows before. Before each batch the ranks exchange how
--- many samples of it they have. A rank that has none repeats its first batch, as padding, until the last rank is at its end. With drop_last
--- the pass ends on all ranks with the first rank that has no full batch. Used by the Source iterable.
local accel = require "accel"
local copy_sample = require "accel.data.copy_sample"
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local shards = require "accel.data.shards"

--- The numbers of all ranks, by their place in the data. Ranks that share a model read the same shard.
local function exchange(n, ranks, rank)
  local out, world = {}, dist.get_world_size()
  if dist.get_backend() == "sim" then
    for r = 1, ranks do out[r] = n end
    return out
  end
  local all = accel.empty(world, 2, { dtype = "i64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor({ rank, n }, { dtype = "i64", device = "cpu" }))
  for _, pair in ipairs(all:tolist()) do out[pair[1] + 1] = pair[2] end
  return out
end

--- Ranks without any sample have nothing to repeat.
local function refuse_empty(lefts)
  local empty = {}
  for r, n in ipairs(lefts) do
    if n == 0 then empty[#empty + 1] = r - 1 end
  end
  raise("prepare: the data set shards itself, and of %d ranks these have no samples in their shards, but others have: %s; give every rank \z
    a file with samples, or leave out native_shards", #lefts, table.concat(empty, ", "))
end

--- read() -> samples or batch, rows, rows that are not padding (0 at the end), for this rank alone. The result is a function that
--- returns the next samples or batch and the row counts of all ranks, nil after the last one of every rank.
---@param read fun(): any, integer, integer
---@param o {ranks: integer, rank: integer, size: integer, drop: boolean, skip: integer} skip: batches that are left out
---@return fun(): any, table?
return function(read, o)
  local first, skipped
  local function next_own()
    local own, _, left = read()
    if left > 0 and first == nil then first = copy_sample(own) end
    return own, left
  end
  return function()
    if not skipped then
      for _ = 1, o.skip do next_own() end
    end
    local own, left = next_own()
    if o.drop and left < o.size then left = 0 end
    local lefts = exchange(left, o.ranks, o.rank)
    local least, most = math.min(table.unpack(lefts)), math.max(table.unpack(lefts))
    if most == 0 or o.drop and least == 0 then return nil end
    if least == 0 and o.skip == 0 and not skipped then refuse_empty(lefts) end
    skipped = true
    if left == 0 then own = copy_sample(first) end
    if least == o.size then return own, shards.full_rows(o.size, o.ranks) end
    local counts = {}
    for r = 1, o.ranks do counts[r] = o.size end
    return own, { counts = counts, valid = lefts, full = false }
  end
end
