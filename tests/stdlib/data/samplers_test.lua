--- Samplers: what they draw, that the order is a function of (seed, epoch) alone, and that the loader keeps its
--- place with each of them.
local accel = require "accel"
local data = accel.data

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end
local function join(list) return table.concat(list, ",") end
local function sorted(list)
  local copy = table.move(list, 1, #list, 1, {})
  table.sort(copy)
  return copy
end
local function counts(list)
  local n = {}
  for _, i in ipairs(list) do n[i] = (n[i] or 0) + 1 end
  return n
end
local numbers = {}
for i = 1, 10 do numbers[i] = i end
local set = data.ListDataset(numbers)

do -- sequential and random
  assert(join(data.SequentialSampler(set):order(3)) == join(numbers) and #data.SequentialSampler(4) == 4)
  local random = data.RandomSampler(set, { seed = 7 })
  local first, second = random:order(0), random:order(1)
  assert(join(sorted(first)) == join(numbers) and join(first) ~= join(second) and join(first) ~= join(numbers))
  assert(join(random:order(0)) == join(first) and join(random:order(0, 99)) == join(first), "its own seed")
  local open = data.RandomSampler(set)
  assert(join(open:order(0, 7)) == join(first) and join(open:order(0, 8)) ~= join(first), "the loader's seed")

  local few = data.RandomSampler(set, { num_samples = 4, seed = 7 })
  assert(#few == 4 and join(few:order(0)) == join(table.move(first, 1, 4, 1, {})))
  local many = data.RandomSampler(set, { num_samples = 25 }):order(0)
  assert(#many == 25)
  for i, n in ipairs(counts(many)) do assert(n == 2 or n == 3, i) end
  for i, n in ipairs(counts(table.move(many, 11, 20, 1, {}))) do assert(n == 1, i) end

  local again = data.RandomSampler(4, { replacement = true, num_samples = 40000 })
  local n = counts(again:order(0))
  for i = 1, 4 do assert(math.abs(n[i] - 10000) < 500, n[i]) end -- six standard deviations
  assert(#data.RandomSampler(4, { replacement = true }):order(0) == 4)
  assert(#data.RandomSampler(0):order(0) == 0 and #data.RandomSampler(0, { replacement = true }):order(0) == 0)
  fails("num_samples must be a positive integer, got 0", data.RandomSampler, set, { num_samples = 0 })
  fails("unknown option 'replacment'; did you mean 'replacement'", data.RandomSampler, set, { replacment = true })
  fails("RandomSampler: the source %(a data set or a count%) must be an integer from 0 on, got 'x'",
    data.RandomSampler, "x")
  fails("RandomSampler: seed must be an integer, got 'x'", data.RandomSampler, set, { seed = "x" })

  local subset = data.SubsetRandomSampler { 9, 2, 4 }
  assert(#subset == 3 and join(sorted(subset:order(0, 1))) == "2,4,9" and join(subset.positions) == "9,2,4")
  fails("positions%[2%] must be a positive integer, got 0", data.SubsetRandomSampler, { 1, 0 })
end

do -- weighted: frequencies follow the weights; without replacement nothing comes twice
  local weights = { 1, 0, 3, 4, 0, 2 }
  local n = counts(data.WeightedRandomSampler(weights, 50000):order(0))
  for i, w in ipairs(weights) do
    local p = w / 10
    assert(math.abs((n[i] or 0) - 50000 * p) <= 6 * math.sqrt(50000 * p * (1 - p)), i)
  end
  local firsts = {}
  local without = data.WeightedRandomSampler(accel.tensor { 1.0, 0.0, 3.0 }, 2, { replacement = false, seed = 3 })
  for epoch = 1, 4000 do
    local order = without:order(epoch)
    assert(join(sorted(order)) == "1,3")
    firsts[epoch] = order[1]
  end
  assert(math.abs(counts(firsts)[3] - 3000) < 170, counts(firsts)[3])
  -- tiny weights beside huge ones: all that can be drawn is drawn, and nothing else
  local wide = { 1e-300, 0, 1e300, 1, 0, 1e-12, 7 }
  local all = data.WeightedRandomSampler(wide, 5, { replacement = false })
  for epoch = 0, 50 do assert(join(sorted(all:order(epoch))) == "1,3,4,6,7") end
  assert(join(data.WeightedRandomSampler({ 3 }, 2):order(0)) == "1,1")
  fails("3 draws without replacement from 2 samples of positive weight", data.WeightedRandomSampler, { 1, 0, 1 }, 3,
    { replacement = false })
  fails("finite and not all zero", data.WeightedRandomSampler, { 0, 0 }, 1)
  fails("finite and not all zero", data.WeightedRandomSampler, { 1, math.huge }, 1)
  fails("weights%[2%] must be at least 0, got %-1", data.WeightedRandomSampler, { 1, -1 }, 1)
  fails("weights%[1%] must be a number, got %-?nan", data.WeightedRandomSampler, accel.tensor { 0 / 0 }, 1)
  fails("one dimension, got shape %(2, 1%)", data.WeightedRandomSampler, accel.ones(2, 1), 1)
end

do -- grouped by length: groups of mega_batch_mult batches, each from long to short, the longest of all first
  local random, lengths, longest = accel.util.Random(4), {}, 0
  for i = 1, 103 do
    lengths[i] = random:below(12)
    longest = math.max(longest, lengths[i])
  end
  local sampler = data.LengthGroupedSampler(4, lengths, { seed = 5 })
  assert(#sampler == 103 and sampler.mega_batch_mult == 6)
  local order = sampler:order(0)
  local seen = counts(order)
  for i = 1, 103 do assert(seen[i] == 1) end
  assert(lengths[order[1]] == longest)
  for first = 1, 103, 24 do
    for k = first + 1, math.min(first + 23, 103) do
      -- but for the one that changed places with the longest
      assert(k == first + 1 or lengths[order[k]] <= lengths[order[k - 1]])
    end
  end
  assert(join(sampler:order(0)) == join(order) and join(sampler:order(1)) ~= join(order))
  assert(join(data.LengthGroupedSampler(4, accel.tensor(lengths), { seed = 5 }):order(0)) == join(order))
  -- many equal lengths: the sort must not decide by chance
  local same = {}
  for i = 1, 3000 do same[i] = i % 2 end
  local ties = data.LengthGroupedSampler(30, same, { mega_batch_mult = 100 })
  for _ = 1, 5 do assert(join(ties:order(0)) == join(ties:order(0))) end

  local rows = data.ListDataset { { input_ids = { 1 } }, { input_ids = accel.ones(3) }, { input_ids = { 1, 2 } } }
  assert(join(data.LengthGroupedSampler(2, rows, { mega_batch_mult = 9 }):order(0)) == "2,3,1")
  local named = data.ListDataset { { words = {} }, { words = { 1 } } }
  local by_words = data.LengthGroupedSampler(1, named, { model_input_name = "words", mega_batch_mult = 2 })
  assert(join(by_words:order(0)) == "2,1")
  fails("sample 1 has no sequence 'input_ids'; give model_input_name", data.LengthGroupedSampler, 2, named)
  fails("batch_size must be a positive integer", data.LengthGroupedSampler, 0, { 1 })
  assert(#data.LengthGroupedSampler(2, {}):order(0) == 0)
end

local function pass(loader)
  local out = {}
  for batch in loader() do out[#out + 1] = join(batch:tolist()) end
  return table.concat(out, "|")
end

do -- in the loader
  local loader = data.DataLoader(set, { batch_size = 4, sampler = data.SubsetRandomSampler { 8, 8, 8, 8, 8, 8 } })
  assert(#loader == 2 and pass(loader) == "8,8,8,8|8,8")
  local batches = data.BatchSampler(data.SequentialSampler(set), 4, { drop_last = true })
  assert(#batches == 2)
  loader = data.DataLoader(set, { batch_sampler = batches })
  assert(#loader == 2 and pass(loader) == "1,2,3,4|5,6,7,8")
  assert(tostring(loader) == "DataLoader(batch_sampler, 2 batches)")
  assert(#data.BatchSampler(data.SequentialSampler(10), 4) == 3)
  -- any table with the two methods serves
  local own = { len = function() return 2 end, order = function(_, epoch) return { { 1, 2 }, { 10 - epoch } } end }
  loader = data.DataLoader(set, { batch_sampler = own })
  assert(pass(loader) == "1,2|10" and pass(loader) == "1,2|9")
  -- shuffle is a random sampler under the loader's seed
  local a = data.DataLoader(set, { batch_size = 3, shuffle = true, seed = 11 })
  local b = data.DataLoader(set, { batch_size = 3, sampler = data.RandomSampler(set), seed = 11 })
  local c = data.DataLoader(set, { batch_size = 3, sampler = data.RandomSampler(set, { seed = 11 }) })
  local d = data.DataLoader(set, { batch_sampler = data.BatchSampler(data.RandomSampler(set), 3), seed = 11 })
  for _ = 1, 3 do
    local want = pass(a)
    assert(pass(b) == want and pass(c) == want and pass(d) == want)
  end
  -- drop_last with a sampler; batch_size = false
  local threes = data.SubsetRandomSampler { 3, 3, 3 }
  assert(pass(data.DataLoader(set, { sampler = threes, batch_size = 2, drop_last = true })) == "3,3")
  local plain = {}
  for sample in data.DataLoader(set, { batch_size = false })() do plain[#plain + 1] = sample end
  assert(join(plain) == join(numbers) and #data.DataLoader(set, { batch_size = false }) == 10)

  local sampler = data.RandomSampler(set, { seed = 2 })
  fails("sampler gives the order; leave out 'shuffle'", data.DataLoader, set, { sampler = sampler, shuffle = true })
  fails("batch_sampler makes the batches; leave out 'batch_size'", data.DataLoader, set,
    { batch_sampler = batches, batch_size = 1 })
  fails("batch_sampler makes the batches; leave out 'sampler'", data.DataLoader, set,
    { batch_sampler = batches, sampler = sampler })
  fails("batch_sampler makes the batches; leave out 'drop_last'", data.DataLoader, set,
    { batch_sampler = batches, drop_last = true })
  fails("seed is 1, but the sampler has its own, 2", data.DataLoader, set, { sampler = sampler, seed = 1 })
  fails("sampler must have the methods len and order, got 3", data.DataLoader, set, { sampler = 3 })
  fails("batch_sampler must have the methods len and order", data.DataLoader, set, { batch_sampler = { 1 } })
  fails("BatchSampler: sampler must have the methods", data.BatchSampler, { 1, 2 }, 2)
  fails("batch_size = false makes no batches; leave out 'drop_last'", data.DataLoader, set,
    { batch_size = false, drop_last = true })
  fails("collate_fn must be a function, got 3", data.DataLoader, set, { collate_fn = 3 })
  fails("unknown option 'num_worker'; did you mean 'num_workers'", data.DataLoader, set, { num_worker = 2 })
  fails("position 11 is outside of 1 .. 10", function()
    pass(data.DataLoader(set, { sampler = data.SequentialSampler(11) }))
  end)
end

do -- every kind of loader continues with the very next batch, in this pass and the next
  local weights = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }
  local kinds = {
    shuffle = function() return data.DataLoader(set, { batch_size = 3, shuffle = true, seed = 3 }) end,
    weighted = function()
      return data.DataLoader(set, { batch_size = 2, sampler = data.WeightedRandomSampler(weights, 9), seed = 3 })
    end,
    grouped = function()
      return data.DataLoader(set, { batch_size = 2, sampler = data.LengthGroupedSampler(2, weights), seed = 3 })
    end,
    replaced = function()
      local sampler = data.RandomSampler(set, { replacement = true, num_samples = 8, seed = 6 })
      return data.DataLoader(set, { batch_size = 3, sampler = sampler })
    end,
    batches = function()
      return data.DataLoader(set, { batch_sampler = data.BatchSampler(data.RandomSampler(set), 4), seed = 3 })
    end,
    plain = function()
      local lists = set:map(function(i) return accel.tensor { i } end)
      return data.DataLoader(lists, { batch_size = false, shuffle = true })
    end,
  }
  for name, make in pairs(kinds) do
    local whole = make()
    local want = pass(whole) .. "|" .. pass(whole) .. "|" .. pass(whole)
    for stop = 1, #whole + 1 do
      local part, got, state = make(), {}, nil
      got[1] = pass(part)
      for batch in part() do
        got[#got + 1] = join(batch:tolist())
        if #got == stop + 1 then
          state = part:state_dict()
          break
        end
      end
      state = state or part:state_dict()
      local resumed = make()
      resumed:load_state_dict(state)
      local rest = pass(resumed)
      if rest ~= "" then got[#got + 1] = rest end
      if state.epoch == 1 then got[#got + 1] = pass(resumed) end
      assert(table.concat(got, "|") == want, name .. " stopped after " .. stop)
    end
  end
end

do -- a state that does not fit is refused; moving the loader ends the pass under way
  local loader = data.DataLoader(set, { batch_size = 3, shuffle = true })
  local state
  for _ in loader() do state = state or loader:state_dict() end
  fails("is 1 batches of 3 into a pass, but batch_size is 2", function()
    data.DataLoader(set, { batch_size = 2 }):load_state_dict(state)
  end)
  data.DataLoader(set, { batch_size = 2 }):load_state_dict { epoch = 4, position = 0, seed = 1, batch_size = 3 }
  fails("state is of seed 0, this loader's sampler has 8", function()
    local sampler = data.RandomSampler(set, { seed = 8 })
    data.DataLoader(set, { batch_size = 3, sampler = sampler }):load_state_dict(state)
  end)
  fails("not the state of a loader", loader.load_state_dict, loader, {})
  fails("not the state of a loader", loader.load_state_dict, loader, nil)
  fails("this pass is over", function()
    for _ in loader() do loader:set_epoch(0) end
  end)
  assert(loader.epoch == 0 and loader.position == 0)
  fails("this pass is over", function()
    for _ in loader() do loader:load_state_dict(state) end
  end)
  assert(loader.position == 1)
end
