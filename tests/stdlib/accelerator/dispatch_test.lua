-- Loaders whose batches rank 0 alone reads: data that others cannot reach, batches that cannot be joined, batches of
-- unequal sizes, resuming, errors, passes left by break. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/dispatch_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data, dist = accel.accelerator, accel.data, accel.dist

if ranks.start { 1, 2, 3, 4 } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

local function plain(x)
  if accel.is_tensor(x) then return x:tolist() end
  if type(x) ~= "table" then return x end
  local out = {}
  for key, value in pairs(x) do out[key] = plain(value) end
  return out
end

local function accelerator(o)
  o = o or {}
  o.dispatch_batches = true
  return accel.Accelerator { cpu = true, dataloader_config = A.DataLoaderConfiguration(o) }
end

--- What every rank got: batches[k][r], and the Rows of each.
local function rounds_of(loader)
  local own, rows = {}, {}
  for batch in loader() do
    own[#own + 1], rows[#rows + 1] = plain(batch), { counts = loader.rows.counts, valid = loader.rows.valid }
  end
  local all, out = dist.all_gather_object(own), {}
  for k = 1, #own do
    out[k] = {}
    for r = 1, P do out[k][r] = all[r][k] end
  end
  for r = 1, P do assert(#all[r] == #own) end
  return out, rows
end

--- A data set that rank 0 alone has: touching it elsewhere is an error.
local Private = data.Dataset:extend "Private"
function Private:init(n) self.n = n end
function Private:len()
  assert(R == 0, "len of a data set that is not here")
  return self.n
end
function Private:get(i)
  assert(R == 0, "get of a data set that is not here")
  return i - 1
end

do -- rank 0 alone can read
  local a = accelerator()
  local loader = a:prepare(data.DataLoader(Private(13), { batch_size = 2, shuffle = true }))
  assert(#loader == -(-13 // (2 * P)) and loader.total_dataset_length == 13 and loader.total_batch_size == 2 * P)
  for _ = 1, 3 do
    local got = {}
    for batch in loader() do
      for _, v in ipairs(a:gather_for_metrics(batch):tolist()) do got[#got + 1] = v end
    end
    assert(#got == 13)
    table.sort(got)
    for i = 1, 13 do assert(got[i] == i - 1) end
  end
  assert(loader.iteration == 3)
end

do -- shuffled: the samples of every epoch in the order of the same loader without dispatch
  local function order(dispatched)
    local a = dispatched and accelerator() or accel.Accelerator { cpu = true }
    local set = data.TensorDataset(accel.arange(4 * P + 1))
    local loader = a:prepare(data.DataLoader(set, { batch_size = 2, shuffle = true, seed = 3 }))
    local got = {}
    for _ = 1, 2 do
      for batch in loader() do
        for _, v in ipairs(a:gather_for_metrics(batch[1]):tolist()) do got[#got + 1] = v end
      end
    end
    return got
  end
  same(order(true), order(false), "order")
end

do -- strings go whole; ranks left over get one again, as padding
  local a = accelerator()
  local loader = a:prepare(data.DataLoader(data.ListDataset { "a", "b", "c", "d", "e" }, { batch_size = 2 }))
  local got = {}
  for batch in loader() do
    assert(type(batch[1]) == "string")
    for _, s in ipairs(a:gather_for_metrics(batch)) do got[#got + 1] = s end
  end
  same(table.concat(got), "abcde", "strings")
  local rounds, rows = rounds_of(loader)
  if P == 2 then
    same(rounds, { { { "a", "b" }, { "c", "d" } }, { { "e" }, { "e" } } }, "strings")
    same(rows[2], { counts = { 1, 1 }, valid = { 1, 0 } }, "strings")
  end
end

do -- shapes that differ from batch to batch; tables of tensors, numbers and strings
  local list = {}
  for i = 1, 7 do list[i] = { ids = accel.full({ i }, i), text = ("t%d"):format(i) } end
  local a = accelerator()
  local loader = a:prepare(data.DataLoader(data.ListDataset(list), { batch_size = 1, collate_fn = function(samples)
    return { ids = samples[1].ids:view(1, -1), text = { samples[1].text }, id = 3, flag = true }
  end }))
  local got = {}
  for batch in loader() do
    assert(batch.id == 3 and batch.flag == true and batch.ids.shape[1] == 1)
    assert(batch.text[1] == "t" .. batch.ids.shape[2])
    for _, s in ipairs(a:gather_for_metrics(batch.text)) do got[#got + 1] = s end
  end
  same(table.concat(got), "t1t2t3t4t5t6t7", "ragged")
end

do -- samples as they are: one per rank
  local a = accelerator()
  local loader = a:prepare(data.DataLoader(data.ListDataset { { 1 }, { 2, 2 }, { 3 } }, { batch_size = false }))
  local rounds = rounds_of(loader)
  for k, round in ipairs(rounds) do
    for r = 1, P do
      local i = (k - 1) * P + r
      if i <= 3 then same(round[r], ({ { 1 }, { 2, 2 }, { 3 } })[i], "sample") end
    end
  end
end

do -- fewer samples than ranks: fillers go round
  local a = accelerator()
  for n = 1, P do
    local rounds, rows = rounds_of(a:prepare(data.DataLoader(data.TensorDataset(accel.arange(n)), { batch_size = 4 })))
    local flat = {}
    for r = 1, P do
      for _, v in ipairs(rounds[1][r][1]) do flat[#flat + 1] = v end
    end
    assert(#rounds == 1 and #flat == -(-n // P) * P, "every rank has rows")
    for i, v in ipairs(flat) do same(v, (i - 1) % n, "fillers") end
    local valid = 0
    for r = 1, P do valid = valid + rows[1].valid[r] end
    assert(valid == n and a.gradient_state.remainder == -1)
  end
end

do -- a batch sampler whose batches have unequal sizes
  local batches = { { 1, 2, 3 }, { 4, 5 }, { 6, 7, 8, 9 }, { 10, 11, 12 }, { 13, 14 } }
  local sampler = { len = function() return #batches end, order = function() return batches end }
  local a = accelerator()
  local loader = a:prepare(data.DataLoader(data.TensorDataset(accel.arange(14)), { batch_sampler = sampler }))
  local got, k = {}, 0
  for batch in loader() do
    k = k + 1
    for _, v in ipairs(a:gather_for_metrics(batch[1]):tolist()) do got[#got + 1] = v end
  end
  assert(k == #loader and k == -(-5 // P) and #got == 14)
  for i = 1, 14 do assert(got[i] == i - 1) end
end

do -- skipping and resuming: the rest of the pass, fillers included
  for _, split in ipairs { false, true } do
    local n, a = 6 * P + 1, accelerator { split_batches = split }
    local function fresh()
      return a:prepare(data.DataLoader(data.TensorDataset(accel.arange(n)),
        { batch_size = split and 2 * P or 2, shuffle = true, seed = 1 }))
    end
    local all = rounds_of(fresh())
    for skip = 0, #all do
      local loader = fresh()
      local part = A.skip_first_batches(loader, skip)
      assert(#part == #all - skip)
      same(rounds_of(part), table.move(all, skip + 1, #all, 1, {}), "skipped")
      assert(#loader == #all)
      if skip > 0 and skip < #all then
        local first, k = fresh(), 0
        for _ in first() do
          k = k + 1
          if k == skip then break end
        end
        local second = fresh()
        first = fresh()
        k = 0
        local state
        for _ in first() do
          k = k + 1
          if k == skip then
            state = first:state_dict()
            break
          end
        end
        second:load_state_dict(state)
        same(rounds_of(second), table.move(all, skip + 1, #all, 1, {}), "resumed")
      end
    end
  end
end

do -- streams: known and unknown length, closed by break, skipped by reading
  local open = 0
  local Stream = data.IterableDataset:extend "Stream"
  function Stream:iterate()
    assert(R == 0, "a stream that is not here")
    open = open + 1
    local i = -1
    return function()
      i = i + 1
      if i < 7 then return i end
    end, nil, nil, setmetatable({}, { __close = function() open = open - 1 end })
  end
  local a = accel.Accelerator { cpu = true }
  local loader = a:prepare(data.DataLoader(Stream(), { batch_size = 2 }))
  if P > 1 then assert(loader.source.ranks, "streams are dispatched") end
  if P == 1 then loader = accelerator():prepare(data.DataLoader(Stream(), { batch_size = 2 })) end
  says("does not define len", function() return #loader end)
  local all = rounds_of(loader)
  assert(open == 0, "closed at the end")
  for _ in loader() do break end -- luacheck: ignore 512
  assert(loader.iteration == 2 and not a.gradient_state.in_dataloader)
  assert(open == 0, "closed by break")
  same(rounds_of(A.skip_first_batches(loader, 1)), table.move(all, 2, #all, 1, {}), "skipped")
  says("told", function()
    for _ in loader() do error "told" end
  end)
  assert(loader.iteration == 4 and open == 0, "closed by an error")
end

do -- what fails on rank 0 fails everywhere, at its batch
  local Failing = data.IterableDataset:extend "Failing"
  function Failing:iterate()
    local i = 0
    return function()
      i = i + 1
      if i == 2 * P + 1 then error "disk full" end
      return i
    end
  end
  local loader = accelerator():prepare(data.DataLoader(Failing(), { batch_size = 2 }))
  local k = 0
  says("disk full", function()
    for _ in loader() do k = k + 1 end
  end)
  assert(k == 1, k)
  local at_once = data.IterableDataset:extend "AtOnce"
  function at_once:iterate() error "no such file" end
  says("no such file", function()
    for _ in accelerator():prepare(data.DataLoader(at_once(), { batch_size = 2 }))() do end
  end)
  local Lengthless = data.Dataset:extend "Lengthless"
  function Lengthless:len() error "cannot tell" end
  function Lengthless:get() end
  local fake = { len = function() error "cannot tell" end, order = function() return {} end }
  says("cannot tell", function()
    accelerator():prepare(data.DataLoader(Lengthless(), { batch_size = 2, sampler = fake }))
  end)
  if P > 1 then
    says("cannot encode", function()
      local odd = data.ListDataset { print, print, print, print, print }
      for _ in accelerator():prepare(data.DataLoader(odd, { batch_size = false }))() do end
    end)
    says(("batch_size 5 is not a multiple of the %d processes"):format(P), function()
      local set = data.TensorDataset(accel.arange(20))
      accelerator { split_batches = true }:prepare(data.DataLoader(set, { batch_size = 5 }))
    end)
    says("split_batches cannot cut the batch: 'w' has the shape (3)", function()
      local set = data.TensorDataset(accel.arange(2 * P))
      local loader2 = accelerator { split_batches = true }:prepare(data.DataLoader(set, { batch_size = 2 * P,
        collate_fn = function(s) return { w = accel.ones(3), a = accel.ones(#s) } end }))
      for _ in loader2() do end
    end)
  end
end

do -- split: lists with an entry per row are cut, single values are the same for all
  local list = {}
  for i = 1, 3 * P - 1 do list[i] = { x = i, s = ("s%d"):format(i) } end
  local a = accelerator { split_batches = true }
  local loader = a:prepare(data.DataLoader(data.ListDataset(list), { batch_size = 2 * P }))
  local got, names = {}, {}
  for batch in loader() do
    assert(#batch.s == batch.x.shape[1])
    for _, v in ipairs(a:gather_for_metrics(batch.x):tolist()) do got[#got + 1] = v end
    for _, s in ipairs(a:gather_for_metrics({ x = batch.x, s = batch.s }).s) do names[#names + 1] = s end
  end
  assert(#got == 3 * P - 1 and #names == 3 * P - 1)
  for i = 1, #got do assert(got[i] == i and names[i] == "s" .. i) end
end

do -- a cut of one's own
  local a = accelerator()
  local calls = 0
  local loader = a:prepare_data_loader(data.DataLoader(data.TensorDataset(accel.arange(4 * P)), { batch_size = 2 }), {
    slice_fn_for_dispatch = function(batch, first, last, rank, num_processes)
      assert(num_processes == P)
      calls = calls + 1
      return { batch[1]:narrow(1, first, last - first + 1) + 100 * rank }
    end,
  })
  for batch in loader() do
    if P > 1 then assert(batch[1][1]:item() >= 100 * R and batch[1][1]:item() < 100 * R + 4 * P) end
  end
  assert(P == 1 or calls == (R == 0 and 2 * P or 0), calls)
end
