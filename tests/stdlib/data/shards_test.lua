-- data.BatchSamplerShard and data.IterableDatasetShard: pure functions of (order, ranks, rank), against the worked
-- numbers of the reference, against a padding written out by hand, and what they say of padding and length.
local accel = require "accel"
local data = accel.data
local shards = require "accel.data.shards"

local function text(x)
  if type(x) ~= "table" then return tostring(x) end
  local parts = {}
  for i, v in ipairs(x) do parts[i] = text(v) end
  return "[" .. table.concat(parts, ",") .. "]"
end
local function same(got, want, what)
  got, want = text(got), type(want) == "string" and want or text(want)
  if got ~= want then error(("%s: %s, not %s"):format(what, got, want), 2) end
end
local function raises(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
end

-- Positions count from 1 here; the tables are written from 0.
local function from_zero(batches)
  local out = {}
  for i, batch in ipairs(batches) do
    out[i] = {}
    for j, p in ipairs(batch) do out[i][j] = p - 1 end
  end
  return out
end
local function shard(n, b, P, r, o)
  o = o or {}
  local all = data.BatchSampler(data.SequentialSampler(n), b, { drop_last = o.drop_last })
  return data.BatchSamplerShard(all, P, r, { split_batches = o.split_batches, even_batches = o.even_batches })
end
local function parts(n, b, P, r, o) return from_zero(shard(n, b, P, r, o):order(0, 0)) end

do -- worked numbers
  local uneven, drop, split = { even_batches = false }, { drop_last = true }, { split_batches = true }
  same(parts(24, 3, 2, 0), "[[0,1,2],[6,7,8],[12,13,14],[18,19,20]]", "24 by 3, rank 0")
  same(parts(24, 3, 2, 1), "[[3,4,5],[9,10,11],[15,16,17],[21,22,23]]", "24 by 3, rank 1")
  same(parts(22, 3, 2, 1)[4], "[21,0,1]", "22 by 3")
  same({ parts(20, 3, 2, 0)[4], parts(20, 3, 2, 1)[4] }, "[[18,19,0],[1,2,3]]", "20 by 3")
  same({ parts(20, 3, 2, 0, uneven)[4], #parts(20, 3, 2, 1, uneven) }, "[[18,19],3]", "20 by 3, uneven")
  same({ #parts(21, 3, 2, 0, drop), #parts(21, 3, 2, 1, drop) }, "[3,3]", "21 by 3, drop_last")
  same({ parts(2, 3, 2, 0), parts(2, 3, 2, 1) }, "[[[0,1,0]],[[1,0,1]]]", "2 by 3")
  same({ parts(21, 4, 2, 0, split)[6], parts(21, 4, 2, 1, split)[6] }, "[[20,0],[1,2]]", "21 by 4, split")
  same(parts(2, 4, 2, 1, { split_batches = true, even_batches = false }), "[]", "2 by 4, split, uneven")
  same({ parts(7, 2, 4, 3), parts(1, 2, 4, 2), parts(5, 2, 3, 2), parts(3, 1, 2, 1) },
    "[[[6,0]],[[0,0]],[[4,0]],[[1],[0]]]", "short tails")
  raises("batches of 3 samples into 2 equal parts", parts, 9, 3, 2, 0, split)
end

-- ---- batch samplers without one size ----

local Fixed = data.Sampler:extend "Fixed"
function Fixed:init(batches, fields)
  self.batches = batches
  for key, value in next, fields or {} do self[key] = value end
end
function Fixed:len() return #self.batches end
function Fixed:order() return self.batches end

local function whole(batches, P, r, fields, opts)
  local s = data.BatchSamplerShard(Fixed(batches, fields), P, r, opts)
  local order = s:order(0, 0)
  assert(s:len() == #order, "length of whole batches")
  return order
end

do
  local five = { { 1, 2, 3 }, { 4, 5 }, { 6, 7, 8, 9 }, { 10, 11, 12 }, { 13, 14 } }
  same(whole(five, 2, 0), "[[1,2,3],[6,7,8,9],[13,14]]", "dynamic, rank 0")
  same(whole(five, 2, 1), "[[4,5],[10,11,12],[1,2,3]]", "dynamic, rank 1 repeats a batch")
  local uneven = { even_batches = false }
  same({ #whole(five, 2, 0, nil, uneven), #whole(five, 2, 1, nil, uneven) }, "[3,2]", "dynamic, uneven")
  same({ #whole(five, 2, 0, { drop_last = true }), #whole(five, 2, 1, { drop_last = true }) }, "[2,2]", "dynamic, drop")
  for r = 0, 2 do same(whole({ { 1 } }, 3, r), "[[1]]", "one batch for all") end
  same(whole({ { 1 } }, 3, 1, nil, { even_batches = false }), "[]", "one batch for the first")
  same(whole({ { 1 } }, 3, 0, { drop_last = true }), "[]", "one batch for nobody")
  local seven = { { 1 }, { 2, 3 }, { 4, 5, 6 }, { 7 }, { 8, 9 }, { 10, 11, 12 }, { 13, 14 } }
  same({ whole(seven, 3, 0), whole(seven, 3, 1), whole(seven, 3, 2) },
    "[[[1],[7],[13,14]],[[2,3],[8,9],[1]],[[4,5,6],[10,11,12],[2,3]]]", "seven on three")
  local rows = data.BatchSamplerShard(Fixed(five), 2, 1):plan(0, 0)
  same({ rows:rows(0).counts, rows:rows(2).counts, rows:rows(2).valid, rows:row0(2), rows:row0(0), rows:row0(1) },
    "[[3,2],[2,3],[2,0],14,3,9]", "rows of whole batches")
  raises("split_batches needs the batch_size", data.BatchSamplerShard, Fixed(five), 2, 0, { split_batches = true })
  -- a batch size that does not hold is found
  same(whole(five, 2, 1, { batch_size = 4 }), "[[4,5],[10,11,12],[1,2,3]]", "a batch size that is none")
  raises("batch 1 has 3 samples", whole, five, 2, 1, { batch_size = 4 }, { split_batches = true })
  -- one that does is cut like a sampler's
  local own = { { 5, 4, 3 }, { 2, 1, 6 }, { 7 } }
  same(whole(own, 2, 1, { batch_size = 3 }), "[[2,1,6],[3,2,1]]", "regular batches, the tail completed")
  same(whole(own, 3, 1, { batch_size = 3 }, { split_batches = true }), "[[4],[1],[5]]", "regular batches, split")
  same(whole(own, 3, 1, { batch_size = 3 }, { split_batches = true, even_batches = false }), "[[4],[1]]",
    "regular batches, split, uneven")
end

-- ---- every small case against a definition: pad the order, cut it into rounds ----

local function by_hand(n, size, P, r, even, drop)
  local total, out, rows = size * P, {}, {}
  local rounds = drop and n // total or (n + total - 1) // total
  for g = 0, rounds - 1 do
    local batch, counts, valid = {}, {}, {}
    for rank = 0, P - 1 do
      counts[rank + 1], valid[rank + 1] = 0, 0
      for q = g * total + rank * size, g * total + (rank + 1) * size - 1 do
        if q < n then valid[rank + 1] = valid[rank + 1] + 1 end
        if q < n or even then
          counts[rank + 1] = counts[rank + 1] + 1
          if rank == r then batch[#batch + 1] = q % n end
        end
      end
    end
    if #batch > 0 then
      out[#out + 1] = batch
      rows[#rows + 1] = { counts, valid }
    end
  end
  return out, rows
end

local cases = 0
for n = 0, 20 do
  for b = 1, 6 do
    for P = 1, 5 do
      for k = 0, 7 do
        local split, even, drop = k & 1 ~= 0, k & 2 ~= 0, k & 4 ~= 0
        if not split or b % P == 0 then
          for r = 0, P - 1 do
            local s = shard(n, b, P, r, { split_batches = split, even_batches = even, drop_last = drop })
            local what = ("n=%d b=%d rank %d of %d %s"):format(n, b, r, P, text { split, even, drop })
            local want, rows = by_hand(n, split and b // P or b, P, r, even, drop)
            local plan = s:plan(0, 0)
            same(from_zero(s:order(0, 0)), want, what)
            assert(s:len() == #want, what .. ": length")
            for g = 0, plan.own - 1 do
              local known = plan:rows(g)
              same({ known.counts, known.valid }, rows[g + 1], what .. ": rows")
              local full = text(known.counts) == text(known.valid)
              for rank = 1, P do full = full and known.counts[rank] == known.counts[1] end
              assert(known.full == full, what .. ": full")
              if g < plan.own - 1 then assert(plan:rows(0) == plan:rows(g), what .. ": full rows are shared") end
            end
            cases = cases + 1
          end
        end
      end
    end
  end
end
assert(cases > 5000, "too few cases")

do -- the order is the sampler's, of the epoch and the seed
  local random = data.RandomSampler(17)
  local order = random:order(3, 9)
  local s = data.BatchSamplerShard(data.BatchSampler(random, 4), 2, 1)
  same(s:order(3, 9)[1], { order[5], order[6], order[7], order[8] }, "a random order")
  assert(text(s:order(4, 9)) ~= text(s:order(3, 9)), "the epoch matters")
  same(s:order(3, 9), data.BatchSamplerShard(Fixed(data.BatchSampler(random, 4):order(3, 9), { batch_size = 4 }), 2, 1)
    :order(0, 0), "by a batch sampler of one's own")
  local own = data.BatchSamplerShard(data.BatchSampler(data.RandomSampler(17, { seed = 5 }), 4), 2, 1)
  assert(own.seed == 5)
  same(own:order(0, 1), own:order(0, 2), "a sampler's own seed wins")
  -- a shard is a batch sampler itself
  local loader = data.DataLoader(data.ListDataset { 1, 2, 3, 4, 5 },
    { batch_sampler = data.BatchSamplerShard(data.BatchSampler(data.SequentialSampler(5), 2), 2, 1) })
  local got = {}
  for batch in loader() do got[#got + 1] = batch:tolist() end
  same({ got, #loader }, "[[[3,4],[2,3]],2]", "in a loader")
  raises("process_index is 2, there are 2 processes", data.BatchSamplerShard, data.BatchSampler(random, 4), 2, 2)
  raises("unknown option 'even_batch'; did you mean 'even_batches'?", data.BatchSamplerShard,
    data.BatchSampler(random, 4), 2, 0, { even_batch = true })
  raises("must have the methods len and order", data.BatchSamplerShard, {}, 2, 0)
end

do -- a plan of ten million samples is made at once, and read where it is asked
  local s = shard(10000000, 64, 8, 3)
  local before = collectgarbage "count"
  local plan = s:plan(0, 0)
  assert(plan.own == 19532 and plan:batch(19531)[1] == 19531 * 512 + 3 * 64 - 10000000 + 1, "the last batch is padding")
  assert(collectgarbage "count" - before < 1000, "no order is made of a sequence")
end

-- ---- streams ----

local Count = data.IterableDataset:extend "Count"
function Count:init(n) self.n = n end
function Count:iterate()
  local i = -1
  return function()
    i = i + 1
    return i < self.n and i or nil
  end, nil, nil, setmetatable({}, { __close = function() self.closed = (self.closed or 0) + 1 end })
end

local function stream_part(n, o)
  local set, out = Count(n), {}
  set.len = function() return n end
  local s = data.IterableDatasetShard(set, o)
  for x in s:iterate(0, 0) do out[#out + 1] = x end
  assert(s:len() == #out, "length of a stream's shard")
  assert(set.closed == 1, "the stream was closed once")
  return out
end

do
  local function both(n, o)
    local list = {}
    for r = 0, 1 do
      list[r + 1] = stream_part(n, { batch_size = 4, num_processes = 2, process_index = r, drop_last = o.drop_last,
        split_batches = o.split_batches })
    end
    return list
  end
  same(both(8, {}), "[[0,1,2,3],[4,5,6,7]]", "8, whole")
  same(both(8, { split_batches = true }), "[[0,1,4,5],[2,3,6,7]]", "8, split")
  same(both(10, {}), "[[0,1,2,3,8,9,0,1],[4,5,6,7,2,3,4,5]]", "10, completed")
  same(both(10, { drop_last = true }), "[[0,1,2,3],[4,5,6,7]]", "10, drop_last")
  same(both(10, { split_batches = true }), "[[0,1,4,5,8,9],[2,3,6,7,0,1]]", "10, split")
  same(both(2, {}), "[[0,1,0,1],[0,1,0,1]]", "2")
  same(both(0, {}), "[[],[]]", "0")
  same(both(11, { split_batches = true, drop_last = true }), "[[0,1,4,5],[2,3,6,7]]", "11, split, drop_last")
  assert(data.IterableDatasetShard(Count(3)).len == nil, "a stream that cannot tell has no len")
  raises("batches of 3 samples into 2 equal parts", data.IterableDatasetShard, Count(3),
    { batch_size = 3, num_processes = 2, split_batches = true })
  raises("must have the method iterate", data.IterableDatasetShard, data.ListDataset { 1 })
  for n = 0, 17 do
    for size = 1, 3 do
      for P = 1, 4 do
        for r = 0, P - 1 do
          local want = {}
          for _, batch in ipairs((by_hand(n, size, P, r, true, false))) do
            for _, x in ipairs(batch) do want[#want + 1] = x end
          end
          same(stream_part(n, { batch_size = size, num_processes = P, process_index = r }), want, "stream of " .. n)
        end
      end
    end
  end
  local kept = 0 -- of a long stream only what may be needed is kept
  local read = shards.global_batches(function()
    kept = kept + 1
    return kept <= 1000 and kept or nil
  end, 2, 4, 1, true)
  local left
  repeat
    local own
    own, left = read()
    assert(#own == (left > 0 and 2 or 0))
  until left == 0
end
