-- gather_for_metrics: what belongs to the samples of a batch, without padding, any number of times, for several
-- loaders, inside and after loops; and what it says of everything else. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/gather_for_metrics_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data = accel.accelerator, accel.data

if ranks.start { 1, 2, 3, 4 } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

local function append(list, more)
  for _, v in ipairs(accel.is_tensor(more) and more:tolist() or more) do list[#list + 1] = v end
end

local function accelerator(o)
  return accel.Accelerator { cpu = true, dataloader_config = A.DataLoaderConfiguration(o or {}) }
end
local function loader_of(a, n, size, o)
  o = o or {}
  o.batch_size = size
  return a:prepare(data.DataLoader(data.TensorDataset(accel.arange(n)), o))
end
local function count(n)
  local list = {}
  for i = 1, n do list[i] = i - 1 end
  return list
end

do -- nested, many kinds, twice per batch; the kind of containers stays
  local a = accelerator()
  local loader = loader_of(a, 13, 2)
  local ids, rows, names, flags, twice = {}, 0, {}, {}, {}
  for batch in loader() do
    local x = batch[1]
    local tree = accel.util.ordered.new()
    tree.names, tree.x = {}, { ids = x, wide = x:view(-1, 1):expand({ x.shape[1], 3 }):to "f64" }
    tree.flag = x:ge(6)
    for i, v in ipairs(x:tolist()) do tree.names[i] = { id = v } end
    local got, keys = a:gather_for_metrics(tree), {}
    for key in got do keys[#keys + 1] = key end
    same(table.concat(keys, " "), "x names flag", "order")
    append(ids, got.x.ids)
    append(flags, got.flag)
    for _, entry in ipairs(got.names) do names[#names + 1] = entry.id end
    rows = rows + got.x.wide:sum():item()
    append(twice, a:gather_for_metrics(x))
    append(twice, a:gather_for_metrics(x, { batch = batch }))
    assert(tree.x.ids == x, "the input stays")
  end
  same(ids, count(13), "tensors")
  same(names, count(13), "objects")
  same(#twice, 26, "twice")
  assert(rows == 3 * 78 and flags[6] == false and flags[7] == true)
end

do -- after the loop, and a batch kept for later
  local a = accelerator()
  local loader = loader_of(a, 2 * P + 1, 2)
  local kept, last
  for batch in loader() do
    kept = kept or batch
    last = batch
  end
  same(a:gather_for_metrics(last[1]), { 2 * P }, "after the loop")
  case "rows of metrics"
  same(a:gather_for_metrics(kept[1], { batch = kept }), count(2 * P), "an earlier batch")
  says("must be an unchanged batch of a prepared loader", a.gather_for_metrics, a, kept[1], { batch = { kept[1] } })
end

do -- an evaluation inside of training, each loader with its own padding
  local a = accelerator()
  local train, evaluation = loader_of(a, 3 * P + 1, 3), loader_of(a, 5, 2)
  local outer = {}
  for batch in train() do
    local inner = {}
    for small in evaluation() do append(inner, a:gather_for_metrics(small[1])) end
    same(inner, count(5), "inner")
    append(outer, a:gather_for_metrics(batch[1], { batch = batch }))
    append(outer, a:gather_for_metrics(batch[1]))
  end
  same(#outer, 2 * (3 * P + 1), "outer")
end

do -- objects of any kind, and rows of a tensor as objects
  local a = accelerator()
  local got, rows = {}, {}
  for batch in loader_of(a, 22, 4)() do
    local list = {}
    for i, v in ipairs(batch[1]:tolist()) do
      list[i] = { text = ("s%d"):format(v), vector = accel.full({ v % 3 }, v) }
    end
    append(got, a:gather_for_metrics(list, true))
    for _, row in ipairs(a:gather_for_metrics(batch[1], { use_gather_object = true })) do
      rows[#rows + 1] = row:item()
    end
  end
  assert(#got == 22)
  for i, item in ipairs(got) do assert(item.text == "s" .. i - 1 and item.vector.shape[1] == (i - 1) % 3) end
  same(rows, count(22), "rows as objects")
end

do -- objects: tensors are taken apart, also in tables and pairs; padding is left out of each
  local a = accelerator()
  for _, size in ipairs { 3, 4 } do
    local n = 3 * size * P - 1 -- the last batch of the last rank is one short
    local ids, named, pairs_of, nested = {}, { x = {}, y = {} }, { {}, {} }, {}
    for batch in loader_of(a, n, size)() do
      local x = batch[1]
      local y = x:view(-1, 1):expand({ x.shape[1], 2 }) * 10
      local texts = {}
      for i, v in ipairs(x:tolist()) do texts[i] = { "t" .. v } end
      append(ids, a:gather_for_metrics(x, { use_gather_object = true }))
      local got = a:gather_for_metrics({ x = x, y = y }, { use_gather_object = true })
      append(named.x, got.x)
      append(named.y, got.y)
      got = a:gather_for_metrics({ x, y }, true)
      assert(#got == 2)
      append(pairs_of[1], got[1])
      append(pairs_of[2], got[2])
      got = a:gather_for_metrics({ inner = { x = x, texts = texts } }, { use_gather_object = true })
      for i, v in ipairs(got.inner.x) do nested[#nested + 1] = ("%d%s"):format(v:item(), got.inner.texts[i][1]) end
    end
    local function rows(list)
      local out = {}
      for i, t in ipairs(list) do out[i] = t.ndim == 0 and t:item() or t:tolist() end
      return out
    end
    local tens, marks = {}, {}
    for i = 1, n do tens[i], marks[i] = { 10 * (i - 1), 10 * (i - 1) }, ("%dt%d"):format(i - 1, i - 1) end
    same(rows(ids), count(n), "a tensor")
    same(rows(named.x), count(n), "a table of tensors: x")
    same(rows(named.y), tens, "a table of tensors: y")
    same(rows(pairs_of[1]), count(n), "a pair: first")
    same(rows(pairs_of[2]), tens, "a pair: second")
    same(nested, marks, "nested")
  end
  -- two tensors with two rows each in a batch of two: samples or columns, where no batch before tells
  a = accelerator()
  for batch in loader_of(a, 2 * P - (P > 1 and 1 or 0), 2)() do
    local x = batch[1]
    says("a list of 2 tensors with 2 rows each: its samples, or columns?", a.gather_for_metrics, a, { x, x + 1 }, true)
    says("say { a = ..., b = ... } for columns", a.gather_for_metrics, a, { x, x + 1 }, true)
    local got = a:gather_for_metrics({ a = x, b = x + 1 }, true)
    assert(#got.a == #got.b and #got.a == 2 * P - (P > 1 and 1 or 0))
    says("a list of 3, but 2 rows in its batch", a.gather_for_metrics, a, { x, x, accel.ones(5) }, true)
    assert(#a:gather_for_metrics({ accel.ones(3), accel.ones(5) }, true) == #got.a, "samples of any shapes")
    assert(#a:gather_for_metrics({ accel.ones(2), accel.ones(2) }, true) == #got.a, "samples as before")
  end
end

do -- outside of any loop everything counts, also parts of unequal lengths
  local a = accelerator()
  local all = a:gather_for_metrics(accel.full({ R + 1 }, R))
  assert(all.shape[1] == P * (P + 1) // 2 and all[-1]:item() == P - 1)
end

do -- uneven batches: those who have one gather while all have one
  local a = accelerator { even_batches = false }
  local n = 2 * P + (P > 1 and 1 or 2)
  local loader, got, k, failed = loader_of(a, n, 2), {}, 0, 0
  for batch in loader() do
    k = k + 1
    local ok, result = pcall(a.gather_for_metrics, a, batch[1])
    if ok then
      append(got, result)
    else
      failed = failed + 1
      result = tostring(result)
      assert(result:find "ranks? 1.* got no batch in this round", result)
      assert(result:find("accel.metrics", 1, true) and result:find("even_batches = true", 1, true))
    end
  end
  if P == 1 then
    same(got, count(n), "one rank")
  else
    same(got, count(2 * P), "while all have one")
    assert(failed == (R == 0 and 1 or 0), failed)
  end
  -- a last round in which all have rows, but not equally many
  loader, got = loader_of(a, 4 * P - 1, 2), {}
  for batch in loader() do append(got, a:gather_for_metrics(batch[1])) end
  same(got, count(4 * P - 1), "unequal counts")
  -- pairs as objects, where the ranks that have two rows cannot tell columns from samples, and the last one, with one, can
  for _, first in ipairs { "pair", "samples" } do
    a = accelerator { even_batches = false }
    for batch in loader_of(a, 2 * P - 1, 2)() do
      local x = batch[1]
      if P == 1 then break end
      local function pair()
        local both = a:gather_for_metrics({ x, x + 100 }, true)
        assert(#both == 2 and #both[1] == 2 * P - 1 and #both[2] == 2 * P - 1)
        for i = 1, 2 * P - 1 do assert(both[1][i]:item() == i - 1 and both[2][i]:item() == i + 99) end
      end
      if first == "pair" then
        pair()
      else
        local rows = {}
        for i, v in ipairs(x:tolist()) do rows[i] = accel.full({ 3 }, v) end
        local all = a:gather_for_metrics(rows, true)
        assert(#all == 2 * P - 1)
        for i, row in ipairs(all) do assert(row[1]:item() == i - 1) end
      end
    end
  end
end

do -- what has no row for every sample
  local a = accelerator()
  for batch in loader_of(a, 4 * P, 2)() do
    local x = batch[1]
    says("got i64 (3), but 2 rows in its batch; it takes one row", a.gather_for_metrics, a, accel.arange(3))
    says("got f32 (), which has no rows", a.gather_for_metrics, a, accel.tensor(0.5))
    says("use gather or reduce", a.gather_for_metrics, a, { x = x, loss = accel.tensor(0.5) })
    says("0.5 at 'loss', which has no rows", a.gather_for_metrics, a, { x = x, loss = 0.5 })
    says("a list of 1 at 'names', but 2 rows", a.gather_for_metrics, a, { x = x, names = { "a" } })
    says("did you mean 'use_gather_object'", a.gather_for_metrics, a, x, { use_gather_objects = true })
    if P > 1 then -- one rank is wrong: all are told, and go on
      says("rank 0 has i64 (3), but 2 rows in its batch", a.gather_for_metrics, a, R == 0 and accel.arange(3) or x)
      says("f32 (rows)", a.gather_for_metrics, a, R == P - 1 and x:to "f32" or x)
      says("(rows, 2)", a.gather_for_metrics, a, R == 0 and accel.ones(2, 2, { dtype = "i64" }) or x)
      says("at 'b'", a.gather_for_metrics, a, { [R == 0 and "a" or "b"] = x })
    end
    assert(a:gather_for_metrics(x).shape[1] == 2 * P)
  end
end

do -- a stream that shards itself: nobody knows what others have, so they say
  local Sharded = data.IterableDataset:extend "Sharded"
  function Sharded:init(num, index) self.n_shards, self.num, self.index = 8, num, index end
  function Sharded:shard(num, index) return Sharded(num, index) end -- luacheck: ignore
  function Sharded:iterate()
    local i = self.index and self.index - (self.num or 1) or -1
    return function()
      i = i + (self.num or 1)
      if i < 4 * P - 1 then return i end
    end
  end
  local a = accelerator()
  local loader, got = a:prepare(data.DataLoader(Sharded(), { batch_size = 2 })), {}
  for batch in loader() do append(got, a:gather_for_metrics(batch)) end
  table.sort(got)
  same(got, count(4 * P - 1), "sharded by itself")
end
