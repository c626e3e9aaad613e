-- Prepared loaders over streams that every rank reads: whose samples are whose, the end of streams that do not know
-- their length, streams that shard themselves, and that a stream is closed however its loop ends. On 1 to 4 ranks.
--   accel-run tests/stdlib/accelerator/loader_streams_test.lua
-- tier: sampled
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2, 3, 4 } then return end

local support = dofile(ranks.tests .. "support/loaders.lua")
local data, dist = accel.data, accel.dist
local R, P, same, fails = ranks.rank, ranks.size, ranks.same, ranks.fails
local pass, make, Count = support.pass, support.accelerator, support.Count

local function range(n)
  local out = {}
  for i = 0, n - 1 do out[i + 1] = i end
  return out
end

--- What this rank gets of 0 .. n - 1, by the definition: rounds of `size` samples a rank, completed from the start.
local function part(n, size, even, drop)
  local batches, total = {}, size * P
  for first = 0, n - 1, total do
    local batch = {}
    for q = first + R * size, first + (R + 1) * size - 1 do
      if q < n or even then batch[#batch + 1] = q % n end
    end
    if #batch > 0 and (not drop or first + total <= n) then batches[#batches + 1] = batch end
  end
  return batches
end

local take = ranks.sample.one_of(4)
for n = 0, 26 do
  for _, b in ipairs { 1, 2, 3, 12 } do
    for k = 0, 15 do
      local split, even, drop, sized = k & 1 ~= 0, k & 2 ~= 0, k & 4 ~= 0, k & 8 ~= 0
      if take() and (not split or b % P == 0) then
        local a = make { split_batches = split, even_batches = even }
        local stream = Count(n, sized)
        local loader = a:prepare(data.DataLoader(stream, { batch_size = b, drop_last = drop }))
        local size = split and b // P or b
        local want = part(n, size, even and P > 1, drop)
        local what = ("n=%d b=%d %s"):format(n, b, support.text { split, even, drop, sized })
        if sized then
          assert(#loader == #want, what .. ": length")
        else
          fails("does not define len", loader.len, loader)
        end
        local seen, valid = {}, 0
        for batch in loader() do
          seen[#seen + 1] = support.values(batch)
          local last = #seen == #want
          local known = loader.rows
          assert(loader.end_of_dataloader == last, what .. ": the end")
          assert(known.counts[R + 1] == #seen[#seen] and loader:mask():sum():item() == known.valid[R + 1])
          if drop then assert(loader.remainder == -1)
          elseif sized then assert(loader.remainder == n % (size * P), what .. ": remainder")
          elseif not last then assert(loader.remainder == -1, what .. ": not known yet") end
          valid = valid + known.valid[R + 1]
          local g = #seen - 1
          local left = math.max(0, math.min(size, n - g * size * P - R * size))
          assert(known.valid[R + 1] == left, what .. ": valid")
        end
        same(seen, want, what)
        same(#dist.all_gather_object(1), P, "all are here")
        assert(stream.opened == 1 and stream.closed == 1, what .. ": closed")
        assert(loader.total_batch_size == size * P and loader.total_dataset_length == (sized and n or nil))
      end
    end
  end
end

do -- without padding, in order, on all ranks; twice; through gather_for_metrics
  local a = make()
  for _, n in ipairs { 0, 1, 9, 24, 25 } do
    local loader = a:prepare(data.DataLoader(Count(n, true), { batch_size = 2 }))
    for _ = 1, 2 do same(support.read_by_all(loader), range(n), "a stream of " .. n) end
    local out = {}
    for batch in a:prepare(data.DataLoader(Count(n), { batch_size = 2 }))() do
      for _, x in ipairs(a:gather_for_metrics(batch):tolist()) do out[#out + 1] = x end
    end
    same(out, range(n), "gathered, of unknown length")
  end
end

do -- no more is read than one round ahead; skipping reads and drops; a break closes
  local a = make()
  local stream = Count(100 * P)
  local loader = a:prepare(data.DataLoader(stream, { batch_size = 2 }))
  local rounds = 0
  for _ in loader() do
    rounds = rounds + 1
    assert(stream.read == (rounds + 1) * 2 * P, "one round ahead")
    if rounds == 3 then break end
  end
  assert(loader.iteration == 1 and stream.closed == 1 and not a.gradient_state.in_dataloader)
  local whole = pass(loader)
  local sized = a:prepare(data.DataLoader(Count(9 * P, true), { batch_size = 2 }))
  assert(#sized == 5)
  local rest = accel.accelerator.skip_first_batches(sized, 2)
  assert(#rest == 3)
  same(pass(rest), table.move(pass(sized), 3, 5, 1, {}), "the rest of a stream")
  same(pass(accel.accelerator.skip_first_batches(loader, 98)), { whole[99], whole[100] }, "of unknown length")
  assert(stream.closed == 3)
  -- an error inside closes it too
  local function failing(step) return step < 5 * P and step or error("no sample " .. step) end
  local bad = Count(10 * P)
  local mapped = a:prepare(data.DataLoader(bad:map(failing), { batch_size = 1 }))
  fails("no sample", pass, mapped)
  assert(not a.gradient_state.in_dataloader and bad.closed == 1)
end

do -- the order that a stream makes of epoch and seed is asked for with the seed that all agreed on
  local Random = data.IterableDataset:extend "Random"
  function Random:iterate(epoch, seed) -- luacheck: ignore
    return coroutine.wrap(function()
      for _, p in ipairs(data.RandomSampler(12):order(epoch, seed)) do coroutine.yield(p) end
    end)
  end
  function Random:len() return 12 end -- luacheck: ignore
  accel.manual_seed(50 + R)
  local loader = make():prepare(data.DataLoader(Random(), { batch_size = 2 }))
  for epoch = 0, 1 do
    same(support.read_by_all(loader), data.RandomSampler(12):order(epoch, 50), "the seed of rank 0")
  end
  loader:load_state_dict { epoch = 1, samples = 0, seed = 8 }
  same(support.read_by_all(loader), data.RandomSampler(12):order(1, 8), "the seed of a state")
  accel.manual_seed(0)
end

-- A stream of n numbers that shards itself: rank r reads every P-th.
local Sharded = Count:extend "Sharded"
function Sharded:shard(count, index)
  local part_of = Count(0)
  part_of.iterate = function()
    local i = index - count
    return function()
      i = i + count
      return i < self.n and i or nil
    end
  end
  self.asked = { count, index }
  return part_of
end

do
  local a = accel.Accelerator {} -- not dispatched either, although it is a stream
  for _, n in ipairs { 0, P, 8 * P, 8 * P + 1, 10 * P - 1 } do
    for _, drop_last in ipairs { false, true } do
      local stream = Sharded(n)
      stream.n_shards = P
      local loader = a:prepare(data.DataLoader(stream, { batch_size = 2, drop_last = drop_last }))
      for epoch = 1, 2 do
        local own, all, batches, most = {}, {}, 0, 0
        for batch in loader() do
          batches = batches + 1
          local values, mask = support.values(batch), loader:mask():tolist()
          for k, x in ipairs(values) do
            if mask[k] then own[#own + 1] = x end
          end
          if P > 1 then assert(#values == 2) end
          for _, x in ipairs(a:gather_for_metrics(batch):tolist()) do all[#all + 1] = x end
        end
        for r = 0, P - 1 do
          local m = #range(n) // P + (r < n % P and 1 or 0)
          most = r > 0 and drop_last and math.min(most, m // 2) or not drop_last and math.max(most, (m + 1) // 2) or m // 2
        end
        assert(batches == most, ("%d batches of %d samples, not %d"):format(batches, n, most)) -- the same on all ranks
        local want = {}
        for i = R, n - 1, P do want[#want + 1] = not (drop_last and #want == 2 * most) and i or nil end
        same(own, want, "its own shard")
        table.sort(all)
        if not drop_last then same(all, range(n), "gathered, every sample once") end
        assert(epoch == 2 or P == 1 or stream.asked[1] == P)
      end
      if P > 1 then same(stream.asked, { P, R }, "asked for") else assert(stream.asked == nil) end
    end
  end
  if P > 1 then
    local stream = Sharded(1)
    stream.n_shards = P
    local loader = a:prepare(data.DataLoader(stream, { batch_size = 2 }))
    fails("have no samples in their shards", function() for _ in loader() do end end) -- luacheck: ignore 542
  end
  do -- resumed anywhere, although ranks end at different batches
    local stream = Sharded(10 * P - 1)
    stream.n_shards = P
    local loader = a:prepare(data.DataLoader(stream, { batch_size = 2 }))
    local states, whole = {}, pass(loader)
    for _ in loader() do states[#states + 1] = loader:state_dict() end
    for k, state in ipairs(states) do
      loader:load_state_dict(state)
      local rest = table.move(whole, k + 1, #whole, 1, {})
      if k < #whole then same(pass(loader), rest, "taken up after batch " .. k) end
    end
  end
  if P > 1 then
    local stream = Sharded(16 * P, true)
    stream.n_shards = P
    local loader = a:prepare(data.DataLoader(stream, { batch_size = 2 }))
    local out, states, whole = {}, {}, pass(loader)
    for batch in loader() do
      for _, x in ipairs(a:gather_for_metrics(batch):tolist()) do out[#out + 1] = x end
      states[#states + 1] = loader:state_dict()
    end
    table.sort(out)
    same(out, range(16 * P), "gathered without knowing who has what")
    loader:load_state_dict(states[3])
    same(pass(loader), table.move(whole, 4, 8, 1, {}), "taken up again")
    states[3].shards = P + 1
    fails(("use %d processes"):format(P + 1), loader.load_state_dict, loader, states[3])
    -- too few shards: by samples
    stream.n_shards = P - 1
    local by_samples = make():prepare(data.DataLoader(stream, { batch_size = 2 }))
    same(support.read_by_all(by_samples), range(16 * P), "too few shards")
  end
end

do -- files of unequal length, each read by one rank: all ranks have equally many batches, and every sample counts once
  local a, n = accel.Accelerator {}, 0
  local folder = ranks.tests .. "reference/formats/"
  for _, workers in ipairs { 0, 2 } do
    local set = data.JSONL.stream({ folder .. "part-0.jsonl", folder .. "part-1.jsonl", folder .. "part-0.jsonl", folder .. "part-1.jsonl",
      folder .. "part-1.jsonl" }, { native_shards = true, columns = { "id" } })
    local loader = a:prepare(data.DataLoader(set, { batch_size = 4, num_workers = workers }))
    for _ = 1, 2 do
      local sum, all, counts = 0, 0, accel.zeros(1, { dtype = "i64" })
      for batch in loader() do
        local ids = a:gather_for_metrics(batch.id)
        sum, all = sum + ids:sum():item(), all + ids:numel()
        counts:add_(1)
      end
      assert(all == 2 * 23 + 3 * 18 and sum == 2 * 253 + 3 * (820 - 253))
      local of_all = a:gather(counts)
      assert(of_all:max():item() == of_all:min():item())
      n = n + 1
    end
  end
  assert(n == 4)
end

do -- samples as they are
  local a = make()
  local loader = a:prepare(data.DataLoader(Count(5), { batch_size = false }))
  local own = {}
  for x in loader() do own[#own + 1] = x end
  local want = {}
  for i = 1, -(-5 // P) do want[i] = ((i - 1) * P + R) % 5 end
  same(own, want, "one by one")
  local batches = a:prepare(data.DataLoader(Count(7):batch(2), { batch_size = false }))
  local seen = 0
  for batch in batches() do seen = seen + a:gather_for_metrics(batch):numel() end
  assert(seen == 7, "batches of the stream, gathered without what was repeated")
end

do -- by default rank 0 reads a stream, with the same place and state
  local a = accel.Accelerator {}
  local stream = Count(11 * P)
  local loader = a:prepare(data.DataLoader(stream, { batch_size = 2 }))
  local batches, states = {}, {}
  for batch in loader() do
    batches[#batches + 1], states[#states + 1] = support.values(batch), loader:state_dict()
  end
  assert(stream.opened == (R == 0 and 1 or 0) and states[1].samples == 2 * P, "rank 0 has read")
  support.alike(states, "states")
  local again = a:prepare(data.DataLoader(Count(11 * P), { batch_size = 2 }))
  for k = 1, #states - 1 do
    again:load_state_dict(states[k])
    same(pass(again), table.move(batches, k + 1, #batches, 1, {}), "dispatched, taken up again")
    assert(again.iteration == 1)
  end
end
case "streams of other shapes"
