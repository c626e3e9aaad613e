-- Every way of sharing out data, for 0 .. 50 samples, batches of 1 .. 6 and 1 .. 4 ranks: the length that a loader
-- reports is the number of batches that it yields, and gathered without padding they are the data set in order. The
-- script starts itself on the ranks. tier: sampled
--   accel-run tests/stdlib/accelerator/lengths_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data, dist = accel.accelerator, accel.data, accel.dist

if ranks.start { 1, 2, 3, 4 } then return end
local R, P = ranks.rank, ranks.size

local Stream = data.IterableDataset:extend "Stream"
function Stream:init(n, known)
  self.n = n
  if not known then self.len = false end
end
function Stream:len() return self.n end
function Stream:iterate()
  local i = -1
  return function()
    i = i + 1
    if i < self.n then return i end
  end
end

local whole = {}
for n = 0, 50 do whole[n] = data.TensorDataset(accel.arange(n)) end

--- config: of the loaders; drop: drop_last; stream: of known or unknown length
local modes = {
  even = { config = {} },
  ["even, dropped"] = { config = {}, drop = true },
  uneven = { config = { even_batches = false }, uneven = true },
  ["uneven, dropped"] = { config = { even_batches = false }, drop = true },
  split = { config = { split_batches = true } },
  ["split, dropped"] = { config = { split_batches = true }, drop = true },
  ["split, uneven"] = { config = { split_batches = true, even_batches = false }, uneven = true },
  dispatched = { config = { dispatch_batches = true } },
  ["dispatched, dropped"] = { config = { dispatch_batches = true }, drop = true },
  ["dispatched, split"] = { config = { dispatch_batches = true, split_batches = true } },
  ["dispatched, split, dropped"] = { config = { dispatch_batches = true, split_batches = true }, drop = true },
  ["stream"] = { config = { dispatch_batches = false }, stream = "known" },
  ["stream, split"] = { config = { dispatch_batches = false, split_batches = true }, stream = "known" },
  ["stream, uneven"] = { config = { dispatch_batches = false, even_batches = false }, stream = "known", uneven = true },
  ["stream, dropped"] = { config = { dispatch_batches = false }, stream = "known", drop = true },
  ["stream, dispatched"] = { config = {}, stream = "unknown" },
}

local function loader_of(mode, n, size)
  local set = mode.stream and Stream(n, mode.stream == "known") or whole[n]
  return data.DataLoader(set, { batch_size = size, drop_last = mode.drop or false })
end

--- Batches of all ranks in turn: what gather gives where every rank has one.
local function in_turn(own)
  local all, out = dist.all_gather_object(own), {}
  for k = 1, #all[1] do
    for r = 1, P do
      for _, v in ipairs(all[r][k] or {}) do out[#out + 1] = v end
    end
  end
  return out
end

local checked = 0
local function check(label, mode, n, size, a)
  local loader = a:prepare_data_loader(loader_of(mode, n, size))
  a._prepared:clear()
  local known = mode.stream ~= "unknown" and #loader
  local seen, own, k, before = {}, {}, 0, nil
  for batch in loader() do
    assert(not before, "a batch after the last one")
    before, k = loader.end_of_dataloader, k + 1
    local x = mode.stream and batch or batch[1]
    local rows = loader.rows
    assert(rows.counts[R + 1] == x.shape[1])
    if mode.uneven then
      own[k] = x:narrow(1, 1, rows.valid[R + 1]):tolist()
    else
      for _, v in ipairs(a:gather_for_metrics(x):tolist()) do seen[#seen + 1] = v end
    end
  end
  assert(before ~= false, "the last batch was not known as such")
  if known and known ~= k then error(("reported length %d, yielded %d batches"):format(known, k)) end
  assert(a.gradient_state.in_dataloader == false and loader.iteration == 1)
  if mode.uneven then seen = in_turn(own) end
  local global = mode.config.split_batches and size or size * P
  local expected = mode.drop and n // global * global or n
  assert(#seen == expected, ("%d samples, expected %d"):format(#seen, expected))
  for i = 1, expected do assert(seen[i] == i - 1, ("sample %d is %s"):format(i, seen[i])) end
  checked = checked + 1
end

local taken = ranks.sample.one_of(20) -- of lengths and batch sizes
for label, mode in accel.pairs(modes) do
  local a = accel.Accelerator { cpu = true, dataloader_config = A.DataLoaderConfiguration(mode.config) }
  for size = 1, 6 do
    for n = 0, 50 do
      if taken() and (not mode.config.split_batches or size % P == 0) then
        local ok, why = pcall(check, label, mode, n, size, a)
        if not ok then
          error(("%s, %d samples, batches of %d, rank %d of %d: %s"):format(label, n, size, R, P, tostring(why)), 0)
        end
      end
    end
  end
end
assert(checked > 51 * 6 * 10 // (ranks.sample.full and 1 or 32))
case "lengths of uneven shards"
