-- Prepared loaders over indexed data: what every rank gets, in which order, what the loader says of itself, and that a
-- loop leaves nothing behind, however it ends. On 1 to 4 ranks.
--   accel-run tests/stdlib/accelerator/loader_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2, 3, 4 } then return end

local support = dofile(ranks.tests .. "support/loaders.lua")
local data = accel.data
local R, P, same, fails = ranks.rank, ranks.size, ranks.same, ranks.fails
local numbers, pass = support.numbers, support.pass
local make = support.accelerator

local function range(n)
  local out = {}
  for i = 0, n - 1 do out[i + 1] = i end
  return out
end

--- The numbers at the positions of a sampler's order.
local function ordered(sampler, epoch, seed)
  local out = sampler:order(epoch, seed)
  for i, p in ipairs(out) do out[i] = p - 1 end
  return out
end

do -- every sample once, in the order of (seed, epoch), whatever the shape of the batches
  for _, n in ipairs { 0, 1, 2, 5, 12, 13, 24 } do
    for _, b in ipairs { 1, 3, 4 } do
      for k = 0, 3 do
        local split, even = k & 1 ~= 0, k & 2 ~= 0
        if not split or b % P == 0 then
          local a = make { split_batches = split, even_batches = even, data_seed = 7 }
          local loader = a:prepare(data.DataLoader(numbers(n), { batch_size = b, shuffle = true }))
          local what = ("n=%d b=%d split=%s even=%s"):format(n, b, tostring(split), tostring(even))
          for epoch = 0, 2 do
            assert(loader.iteration == epoch)
            same(support.read_by_all(loader), ordered(data.RandomSampler(math.max(n, 0)), epoch, 7), what)
          end
          loader:set_epoch(1)
          same(support.read_by_all(loader), ordered(data.RandomSampler(n), 1, 7), what .. ", again")
          local dropped = a:prepare(data.DataLoader(numbers(n), { batch_size = b, drop_last = true }))
          local total = split and b or b * P
          same(support.read_by_all(dropped), range(n // total * total), what .. ", drop_last")
          assert(dropped.total_batch_size == total and dropped.total_dataset_length == n and dropped.remainder == -1)
        end
      end
    end
  end
end

do -- what the loader and the gradient state say, batch by batch
  local a = make()
  local state = a.gradient_state
  for _, case in ipairs { { 16, 4 }, { 13, 4 }, { 12, 4 }, { 3, 4 }, { 8, 1 } } do
    local n, b = case[1], case[2]
    local loader = a:prepare(data.DataLoader(numbers(n), { batch_size = b }))
    for _ = 1, 2 do
      assert(not state.in_dataloader and state.remainder == -1 and not state.end_of_dataloader)
      local left = #loader
      for _ in loader() do
        left = left - 1
        assert(state.in_dataloader and state.active_dataloader == loader)
        assert(loader.remainder == n % (b * P) and state.remainder == loader.remainder)
        assert(loader.end_of_dataloader == (left == 0) and state.end_of_dataloader == (left == 0), "the end")
      end
      assert(left == 0 and state.active_dataloader == nil)
    end
    assert(loader.total_batch_size == b * P and loader.total_dataset_length == n and loader.dataset:len() == n)
  end
  local loader = a:prepare(data.DataLoader(numbers(12), { batch_size = 4 }))
  if P == 2 then
    for _ in loader() do assert(loader.remainder == 4) end
  end
  assert(a:prepare(loader) == loader, "what is prepared stays")
  assert(tostring(loader):find(("DataLoader(process %d of %d, %d batches"):format(R, P, #loader), 1, true))
  fails("with the parentheses", function() for _ in loader do end end)
end

do -- loops that end early leave nothing behind, and the next pass is that of the next epoch
  local a = make { data_seed = 3 }
  local state = a.gradient_state
  local loader = a:prepare(data.DataLoader(numbers(40), { batch_size = 2, shuffle = true }))
  local epochs = {}
  for epoch = 0, 5 do
    loader:set_epoch(epoch)
    epochs[epoch] = pass(loader)
  end
  loader:set_epoch(0)
  for batch in loader() do
    same(support.values(batch), epochs[0][1], "first batch")
    break
  end
  assert(not state.in_dataloader and not loader.end_of_dataloader and loader.iteration == 1)
  same(pass(loader), epochs[1], "after a break")
  fails("of its own", function()
    for _ in loader() do error "of its own" end
  end)
  assert(not state.in_dataloader and loader.iteration == 3)
  same(pass(loader), epochs[3], "after an error")
  local next_batch = loader() -- never read: no pass
  assert(loader.iteration == 4 and not state.in_dataloader)
  same(support.values(next_batch()), epochs[4][1], "an iterator by hand")
  assert(state.in_dataloader)
  same(pass(loader), epochs[5], "a new pass ends one that was not closed")
  assert(not state.in_dataloader and loader.iteration == 6)
  fails("this pass is over", next_batch)
  -- the end may be asked for again, and a data set that raises ends the pass
  loader:set_epoch(0)
  local last = loader()
  for _ = 1, #epochs[0] do last() end
  assert(last() == nil and last() == nil and loader.iteration == 1)
  local set = data.Dataset:extend "Broken"
  function set:len() return 8 * P end -- luacheck: ignore
  function set:get(i) return i <= 4 * P and i or error("no sample " .. i) end -- luacheck: ignore
  local broken = a:prepare(data.DataLoader(set(), { batch_size = 4 }))
  fails("no sample", pass, broken)
  assert(not state.in_dataloader and broken.iteration == 1)
  -- set_epoch inside a loop ends it, unless it is that of the loop
  fails("this pass is over", function()
    for _ in loader() do loader:set_epoch(9) end
  end)
  assert(not state.in_dataloader and loader.iteration == 9)
  loader:set_epoch(2)
  local seen = 0
  for batch in loader() do
    loader:set_epoch(2)
    seen = seen + 1
    same(support.values(batch), epochs[2][seen], "set_epoch of the epoch under way")
  end
end

do -- loops inside one another
  local a = make()
  local state = a.gradient_state
  local outer = a:prepare(data.DataLoader(numbers(6 * P), { batch_size = 3 }))
  local inner = a:prepare(data.DataLoader(numbers(4 * P), { batch_size = 1 }))
  for _ in outer() do
    local outer_end = outer.end_of_dataloader
    for _ in inner() do
      assert(state.active_dataloader == inner and state.end_of_dataloader == inner.end_of_dataloader)
      if outer_end and inner.row0 > 2 * P then break end
    end
    assert(state.active_dataloader == outer and state.end_of_dataloader == outer_end, "the outer loop rules again")
    assert(outer.rows.counts[1] == 3)
  end
  assert(state.active_dataloader == nil and outer.iteration == 1 and inner.iteration == 2)
  fails("this pass is over", function()
    for _ in outer() do
      for _ in outer() do end
    end
  end)
  assert(state.active_dataloader == nil)
end

do -- the seed: the loader's, the configuration's, or that of rank 0
  local function order_with(config, opts)
    opts.batch_size, opts.shuffle = 4, opts.sampler == nil
    return support.read_by_all(make(config):prepare(data.DataLoader(numbers(21), opts)))
  end
  local random = data.RandomSampler(21)
  same(order_with({ data_seed = 5 }, { seed = 6 }), ordered(random, 0, 6), "the loader's seed")
  same(order_with({ data_seed = 5 }, {}), ordered(random, 0, 5), "data_seed")
  accel.manual_seed(30 + R)
  same(order_with({}, {}), ordered(random, 0, 30), "the seed of rank 0")
  accel.accelerator.set_seed(40, { device_specific = true })
  same(order_with({}, {}), ordered(random, 0, 40), "device_specific seeds")
  same(order_with({}, { sampler = data.RandomSampler(21, { seed = 8 }) }), ordered(random, 0, 8), "the sampler's seed")
  same(order_with({}, { sampler = data.SubsetRandomSampler({ 3, 9, 4 }, { seed = 8 }) }),
    ordered(data.SubsetRandomSampler { 3, 9, 4 }, 0, 8), "a subset")
  accel.manual_seed(0)
end

do -- ranks that do not load the same are told so, all of them
  local a = make()
  local function prepared(set, opts) return a:prepare(data.DataLoader(set, opts)) end
  if P > 1 then
    fails("the loaders of rank 0 and rank 1 differ in length: 10 and 11", prepared, numbers(10 + R),
      { batch_size = 2 })
    fails("differ in batch_size: 2 and 3", prepared, numbers(10), { batch_size = 2 + R })
    fails("differ in drop_last", prepared, numbers(10), { drop_last = R == 1 })
    fails("differ in the seed of their samplers: 4 and 5", prepared, numbers(10),
      { sampler = data.RandomSampler(10, { seed = 4 + R }) })
    fails(("split_batches cannot cut batches of %d samples into %d equal parts"):format(P + 1, P),
      function() make { split_batches = true }:prepare(data.DataLoader(numbers(10), { batch_size = P + 1 })) end)
    fails("batch_size = false makes none", function()
      make { split_batches = true }:prepare(data.DataLoader(numbers(10), { batch_size = false }))
    end)
  end
  same(support.read_by_all(prepared(numbers(10), { batch_size = 2 })), range(10), "afterwards")
end

do -- the rest of an epoch
  local a = make()
  local skip = accel.accelerator.skip_first_batches
  local loader = a:prepare(data.DataLoader(numbers(16 * P), { batch_size = 4, shuffle = true, seed = 2 }))
  assert(#loader == 4)
  local first, second = pass(loader), pass(loader)
  for k = 0, 5 do
    loader:set_epoch(0)
    local rest = skip(loader, k)
    local left = math.max(0, 4 - k)
    assert(#rest == left and rest.total_batch_size == 4 * P and rest.dataset == loader.dataset)
    local got, flags = {}, {}
    for batch in rest() do
      got[#got + 1], flags[#flags + 1] = support.values(batch), loader.end_of_dataloader
      assert(#loader == left and loader.iteration == 0 and a.gradient_state.active_dataloader == loader)
    end
    same(got, table.move(first, k + 1, 4, 1, {}), "the rest after " .. k)
    for i, flag in ipairs(flags) do assert(flag == (i == left)) end
    assert(#loader == 4 and #rest == left)
    same(pass(loader), second, "the loader itself afterwards")
    fails("is for one pass", function() for _ in rest() do end end)
  end
  loader:set_epoch(0)
  assert(loader:skip(1):skip(1) == loader and #loader == 2 and #skip(skip(loader, 1), 1) == 0)
  loader:set_epoch(0)
  same(pass(loader), { first[3], first[4] }, "skip twice")
  same(pass(loader), second, "once")
  loader:skip(2)
  loader:set_epoch(1)
  same(pass(loader), second, "another epoch is a whole one")
  fails("num_batches must be an integer from 0 on", skip, loader, -1)
  fails("expected a DataLoader", skip, {}, 1)
  loader:set_epoch(0)
  for _ in loader() do -- the pass under way ends, the rest is that of the next one
    local rest = skip(loader, 3)
    assert(#rest == 1)
    same(pass(rest), { second[4] }, "from inside a loop")
    break
  end
  -- loaders that are not prepared
  local plain = data.DataLoader(numbers(16), { batch_size = 4 })
  local rest = skip(plain, 2)
  assert(#rest == 2 and rest.batch_size == 4)
  same(pass(rest), { { 8, 9, 10, 11 }, { 12, 13, 14, 15 } }, "a plain loader")
  assert(#pass(plain) == 4 and plain.epoch == 2)
  assert(#skip(plain, 9) == 0 and #pass(skip(plain, 9)) == 0)
end

do -- samplers and batch samplers of one's own, data sets that want to know the epoch
  local a = make()
  local told = {}
  local function Told(name) return function(_, epoch) told[#told + 1] = name .. epoch end end
  local Backwards = data.Sampler:extend "Backwards"
  function Backwards:len() return 7 end -- luacheck: ignore
  function Backwards:order() return { 7, 6, 5, 4, 3, 2, 1 } end -- luacheck: ignore
  local sampler, set = Backwards(), numbers(7)
  sampler.set_epoch, set.set_epoch = Told "sampler", Told "set"
  local loader = a:prepare(data.DataLoader(set, { sampler = sampler, batch_size = 2 }))
  same(support.read_by_all(loader), { 6, 5, 4, 3, 2, 1, 0 }, "a sampler of one's own")
  same(support.read_by_all(loader), { 6, 5, 4, 3, 2, 1, 0 }, "again")
  same(told, { "sampler0", "set0", "sampler1", "set1" }, "set_epoch is passed on")
  -- batches of various sizes
  local Dynamic = data.Sampler:extend "Dynamic"
  local list = { { 1 }, { 2, 3 }, { 4, 5, 6 }, { 7 }, { 2, 1 } }
  function Dynamic:len() return #list end -- luacheck: ignore
  function Dynamic:order() return list end -- luacheck: ignore
  local dynamic = a:prepare(data.DataLoader(numbers(7), { batch_sampler = Dynamic() }))
  local got = {}
  assert(#dynamic == -(-#list // P) and dynamic.total_batch_size == nil)
  for batch in dynamic() do
    got[#got + 1] = support.values(batch)
    local rows, k = dynamic.rows, (#got - 1) * P
    assert(rows.counts[R + 1] == #got[#got] and dynamic.remainder == (dynamic.end_of_dataloader and
      rows.valid[1] + (rows.valid[2] or 0) + (rows.valid[3] or 0) + (rows.valid[4] or 0) or -1))
    for r = 0, P - 1 do assert(rows.valid[r + 1] == (list[k + r + 1] and #list[k + r + 1] or 0), "valid") end
    same((accel.tensor(got[#got]) + 1):tolist(), list[(k + R) % #list + 1], "a whole batch")
  end
  assert(#got == #dynamic)
  local regular = a:prepare(data.DataLoader(numbers(7), {
    batch_sampler = data.BatchSampler(Backwards(), 3),
  }))
  same(support.read_by_all(regular), { 6, 5, 4, 3, 2, 1, 0 }, "a BatchSampler")
  assert(regular.total_batch_size == 3 * P)
end

do -- samples as they are, and a collate_fn
  local a = make()
  local words = data.ListDataset { "a", "b", "c", "d", "e" }
  local single, own = a:prepare(data.DataLoader(words, { batch_size = false })), {}
  for word in single() do own[#own + 1] = word end
  assert(#single == #own and #own == -(-5 // P))
  for i = 1, #own do
    local k = ((i - 1) * P + R) % 5 + 1
    same(own[i], ("abcde"):sub(k, k), "one by one")
  end
  local batches = a:prepare(data.DataLoader(numbers(7):batch(2), { batch_size = false }))
  local seen = 0
  for batch in batches() do
    seen = seen + a:gather_for_metrics(batch[1]):numel()
  end
  assert(seen == 7, "batches that a data set made, gathered without what was repeated")
  local joined = a:prepare(data.DataLoader(words, { batch_size = 2, collate_fn = table.concat }))
  local first = ("abcde"):sub(2 * R + 1, 2 * R + 2)
  for batch in joined() do
    if #first == 2 then same(batch, first, "collate_fn") end
    break
  end
end

do -- gather_for_metrics with padding, without, and even_batches set for a while
  local a = make()
  local loader = a:prepare(data.DataLoader(numbers(4 * P + 1), { batch_size = 2 }))
  local function gathered()
    local out = {}
    for batch in loader() do
      for _, x in ipairs(a:gather_for_metrics(batch[1]):tolist()) do out[#out + 1] = x end
    end
    return out
  end
  same(gathered(), range(4 * P + 1), "padding is dropped")
  assert(#loader == 3)
  if P > 1 then
    local was = loader:set_even_batches(false)
    assert(was == true and #loader == (R == 0 and 3 or 2) and loader:overrides_even_batches())
    same(support.read_by_all(loader), range(4 * P + 1), "uneven for a while")
    assert(loader:set_even_batches(was) == false and #loader == 3)
  end
  local by_batch = {}
  for batch in loader() do by_batch[#by_batch + 1] = batch end
  local late = a:gather_for_metrics(by_batch[1][1], { batch = by_batch[1] })
  same(late:tolist(), range(2 * P), "after the loop, of a batch")
end

do -- batches without padding share what is known of them; dropout is that of the global batch
  local a = make()
  local loader = a:prepare(data.DataLoader(numbers(12 * P), { batch_size = 4 }))
  local rows
  for _ in loader() do
    assert(loader.rows.full and (rows == nil or rows == loader.rows))
    rows = loader.rows
    local step = accel.get_rng_state()
    local dropped = a:gather(accel.nn.functional.dropout(accel.ones(4, 3), 0.5))
    accel.set_rng_state(step)
    accel.micro_batch(loader.row0 - 4 * R)
    assert(accel.equal(dropped, accel.nn.functional.dropout(accel.ones(4 * P, 3), 0.5)), "as on one rank")
  end
end

do -- generators are made alike at the start of a pass
  local a = accel.Accelerator { rng_types = { "torch" } }
  local loader = a:prepare(data.DataLoader(numbers(2 * P), { batch_size = 1 }))
  accel.manual_seed(60 + R)
  for _ in loader() do support.alike(accel.rand(3):tolist(), "random numbers") end
  accel.manual_seed(0)
end

do -- a Source that does not know its last batch is read one ahead
  local Loader = accel.accelerator.DataLoader
  local a, reads = make(), 0
  local source = {
    begin = function(_, _, first)
      local k = first
      return function()
        k = k + 1
        reads = reads + 1
        if k > 3 then return nil end
        return { accel.tensor { k } }, { counts = { 1 }, valid = { 1 }, full = true }, k - 1
      end
    end,
    len = function() return nil end, total_batch_size = function() return 1 end, total_length = function() end,
  }
  local loader = Loader(data.DataLoader(numbers(3), {}), { accelerator = a, source = source, device = "cpu" })
  local flags = {}
  for batch in loader() do
    flags[#flags + 1] = { batch[1]:item(), loader.end_of_dataloader, loader:state_dict().samples, loader.remainder }
  end
  same(flags, { { 1, false, 1, -1 }, { 2, false, 2, -1 }, { 3, true, 0, 1 } }, "read ahead")
  assert(reads == 4)
  fails("does not define len", function() return #loader end)
end
