-- Metrics over prepared loaders: for every size of data, batch size, number of ranks and way of sharing the data, each
-- number is that of one process, bit for bit, without a word about padding. Then other ways to say which rows count.
-- The script starts itself on the ranks. tier: sampled
--   accel-run tests/stdlib/metrics/accelerator_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local metrics = accel.metrics

local LARGEST_N, LARGEST_BATCH = 50, 6
local taken = ranks.sample.one_of(20) -- of the sizes

if ranks.start { 1, 2, 3, 4 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails
local DataLoader, TensorDataset = accel.data.DataLoader, accel.data.TensorDataset

local function bits(numbers)
  local parts = {}
  for name, v in accel.pairs(numbers) do
    parts[#parts + 1] = ("%s=%s"):format(name, v ~= v and "nan" or ("%a"):format(v))
  end
  return table.concat(parts, " ")
end

local all = metrics.combine {
  accuracy = "accuracy", f1 = metrics.F1 { average = "macro" }, matthews = "matthews_correlation", pearson = "pearsonr",
  loss = "loss",
}

local function feed(labels, predictions, x, y)
  local m = all.metrics
  for _, name in ipairs { "accuracy", "f1", "matthews" } do m[name]:update(predictions, labels) end
  m.pearson:update(x, y)
  m.loss:update(x)
end

accel.manual_seed(5)
local labels, predictions = accel.randint(0, 3, { LARGEST_N }), accel.randint(0, 3, { LARGEST_N })
local x = accel.randn(LARGEST_N, { dtype = "f64" }) * (accel.randint(-20, 20, { LARGEST_N }):to "f64"):exp()
local y = accel.randn(LARGEST_N, { dtype = "f64" }) + x
local function first(n)
  local columns = {}
  for i, t in ipairs { labels, predictions, x, y } do columns[i] = t:narrow(1, 1, n) end
  return columns
end

local want = {}
for n = 0, LARGEST_N do
  feed(table.unpack(first(n)))
  want[n] = bits(all:compute { sync = false })
  all:reset()
end

local ways = {
  even = {}, uneven = { even_batches = false }, split = { split_batches = true },
  dispatch = { dispatch_batches = true },
  ["split uneven"] = { split_batches = true, even_batches = false },
  ["split dispatch"] = { split_batches = true, dispatch_batches = true },
}
local runs = 0
for way, config in accel.pairs(ways) do
  local accelerator = accel.Accelerator { dataloader_config = accel.accelerator.DataLoaderConfiguration(config) }
  local most = way:find " " and 20 or LARGEST_N -- two settings at once: a shorter table
  for batch_size = 1, LARGEST_BATCH do
    for n = 0, config.split_batches and batch_size % P ~= 0 and -1 or most do
      if not taken() then goto continue end
      local loader = accelerator:prepare(DataLoader(TensorDataset(table.unpack(first(n))),
        { batch_size = batch_size, shuffle = n % 2 == 1 }))
      for batch in loader() do feed(table.unpack(batch)) end
      local got = bits(all:compute())
      assert(got == want[n], ("%s, %d rows in batches of %d on %d ranks:\n%s\nnot\n%s"):format(way, n, batch_size,
        P, got, want[n]))
      all:reset()
      runs = runs + 1
      ::continue::
    end
  end
  accelerator:free_memory()
end
assert(runs >= 3 * LARGEST_BATCH * LARGEST_N // (ranks.sample.full and 1 or 24))

-- ---- other ways to say which rows count ----

local accelerator = accel.Accelerator {}
local function prepared(n, batch_size)
  return accelerator:prepare(DataLoader(TensorDataset(table.unpack(first(n))), { batch_size = batch_size }))
end
local function of(n)
  local m = metrics.Accuracy()
  m:update(predictions:narrow(1, 1, n), labels:narrow(1, 1, n), { loader = false })
  return m:value { sync = false }
end

for _, n in ipairs { 1, 5, 17, 49 } do
  local loader, inner = prepared(n, 3), prepared(7, 2)
  local gathered, named, said, masked, other = metrics.Accuracy(), metrics.Accuracy(), metrics.Accuracy(),
    metrics.Accuracy(), metrics.Accuracy()
  local whole = metrics.Mean()
  for batch in loader() do
    local r, p = batch[1], batch[2]
    local all_p, all_r = table.unpack(accelerator:gather_for_metrics { p, r }) -- as in Accelerate's quicktour
    gathered:add_batch(all_p, all_r)
    named:add_batch { predictions = accelerator:gather_for_metrics(p), references = accelerator:gather_for_metrics(r) }
    said:update(all_p:clone(), all_r:clone(), { gathered = true })
    masked:update(p:clone(), r, { mask = loader:mask(), loader = false })
    says("loader must be one that accelerator:prepare returned", said.update, said, p, r, { loader = loader.base })
    whole:update(1.0, { mask = false, weights = 2 }) -- no rows: one number per batch and rank
    says("one number inside the loop over a prepared loader", whole.update, whole, 1.0)
    says("but this rank's batch of the prepared loader has", masked.update, masked, { 1, 2, 3, 4, 5, 6, 7 },
      { 1, 2, 3, 4, 5, 6, 7 })
    local before = other.samples
    for part in inner() do -- loops inside one another: the innermost, or the one that is named
      other:update(part[2], part[1])
      if inner.end_of_dataloader then other:update(p, r, { loader = loader }) end
    end
    assert(other.samples > before or R > 0)
  end
  for _, m in ipairs { gathered, named, said, masked } do assert(m:compute().accuracy == of(n), tostring(m)) end
  assert(whole:value() == 1)
  other:update({ 1, 2, 3 }, { 1, 2, 3 }) -- outside of loops: rows of no batch
  local rest = accel.accelerator.skip_first_batches(prepared(n, 3), #loader - 1)
  local m, tail = metrics.Mean(), n - 3 * P * (#loader - 1)
  for batch in rest() do m:update(batch[1], { loader = rest }) end
  local last = metrics.Mean()
  last:update(labels:narrow(1, n - tail + 1, tail))
  assert(m:value() == last:value { sync = false })
end

do -- a stream; rows that a mask leaves out, too; a loop left early
  local stream = accel.data.IterableDataset:extend "Stream"
  function stream:iterate()
    local i = 0
    return function()
      i = i + 1
      if i <= 23 then return { labels[i], predictions[i], accel.tensor(i % 3 > 0) } end
    end
  end
  for _, dispatch in ipairs { false, true } do
    accelerator = accel.Accelerator {
      dataloader_config = accel.accelerator.DataLoaderConfiguration { dispatch_batches = dispatch },
    }
    local loader = accelerator:prepare(DataLoader(stream(), { batch_size = 2 }))
    local m, part = metrics.Accuracy(), metrics.Accuracy()
    for batch in loader() do
      m:update(batch[2], batch[1])
      part:update(batch[2], batch[1], { mask = batch[3] })
    end
    assert(m:value() == of(23))
    local alone = metrics.Accuracy()
    local counted = accel.arange(1, 24):remainder(3):gt(0)
    alone:update(predictions:narrow(1, 1, 23), labels:narrow(1, 1, 23), { mask = counted })
    assert(part:value() == alone:value { sync = false })
    for _ in loader() do break end
    m:update({ 1, 2, 3, 4, 5 }, { 1, 2, 3, 4, 5 })
  end
end
