--- Data sets and functions for tests of data workers, which get them by the name of this module: tests put the folder
--- tests/support on package.path.
local accel = require "accel"
local data = accel.data

local M = {}

--- Random samples of n: {i, two numbers of accel, one of math.random}. fail, loop, slow: positions that raise, never
--- end, or take a while; seconds: what these take.
M.Random = data.Dataset:extend "Random"
function M.Random:init(n, opts)
  opts = opts or {}
  self.n, self.fail, self.loop, self.slow, self.seconds = n, opts.fail, opts.loop, opts.slow, opts.seconds or 0.05
  if opts.never then error "this data set cannot be opened" end
end
function M.Random:len() return self.n end
local function slow(seconds)
  local ends = accel.clock() + seconds
  repeat until accel.clock() >= ends
end
function M.Random:get(i)
  if i == self.fail then error("sample " .. i .. " is bad") end
  if i == self.slow or self.slow == true then slow(self.seconds) end
  while i == self.loop do end
  return { i = i, x = accel.rand(2), y = math.random() }
end

--- Four samples, of which the last two do not go together: what = "nil", "function", "ragged", "mixed".
M.Unfit = data.Dataset:extend "Unfit"
function M.Unfit:init(what) self.what = what end
function M.Unfit:len() return 4 end
function M.Unfit:get(i)
  if i < 3 then return accel.ones(2) end
  if self.what == "nil" then return nil end
  if self.what == "function" then return print end
  if self.what == "mixed" then return i == 3 and 1 or "text" end
  return accel.ones(i)
end

--- Finished batches, with one draw for all.
M.Batches = data.Dataset:extend "Batches"
function M.Batches:init(n) self.n = n end
function M.Batches:len() return self.n end
function M.Batches:get_batch(positions) return { accel.tensor(positions), accel.rand(1):item() } end

--- The numbers 1 .. n, shared out among workers.
M.Count = data.IterableDataset:extend "Count"
function M.Count:init(n, opts)
  opts = opts or {}
  self.n, self.fail, self.all, self.length = n, opts.fail, opts.all, opts.length
  if self.length then self.len = function() return self.n end end
end
function M.Count:iterate(epoch, seed)
  local info, i = data.get_worker_info(), 0
  local every, id = info and info.num_workers or 1, info and info.id or 0
  if self.all then every, id = 1, 0 end
  local closed = setmetatable({}, { __close = function() M.closed = (M.closed or 0) + 1 end })
  return function()
    while i < self.n do
      i = i + 1
      if i == self.fail then error("number " .. i .. " is bad") end
      if (i - 1) % every == id then return i + 1000 * epoch + 100000 * seed end
    end
  end, nil, nil, closed
end

--- A stream that shards itself over ranks.
M.Sharded = data.IterableDataset:extend "Sharded"
function M.Sharded:init(n, n_shards, index, of) self.n, self.n_shards, self.index, self.of = n, n_shards, index, of end
function M.Sharded:shard(of, index)
  return data.worker_dataset("worker_data:Sharded", self.n, self.n_shards, index, of)
end
function M.Sharded:iterate()
  local i = (self.index or 0) - (self.of or 1) + 1
  return function()
    i = i + (self.of or 1)
    if i <= self.n then return i end
  end
end

--- Who reads: samples are what get_worker_info says.
M.Who = M.Random:extend "Who"
function M.Who:get(i)
  local info = data.get_worker_info()
  return { i, info.id, info.num_workers, info.seed, info.epoch, M.inited or -1, self.told or -1 }
end
function M.Who:set_epoch(epoch) self.told = epoch end

--- Samples that a worker of the worker reads.
M.Nested = M.Random:extend "Nested"
function M.Nested:get(i)
  for batch in data.DataLoader({ dataset = data.ListDataset { 10 * i }, num_workers = 1 })() do return batch:item() end
end

--- Samples that are one shared tensor, views of it, tables, strings.
M.Kinds = data.Dataset:extend "Kinds"
function M.Kinds:init(t) self.t = t end
function M.Kinds:len() return 4 end
function M.Kinds:get(i)
  if i == 1 then return self.t end
  if i == 2 then return self.t:select(1, 2) end
  if i == 3 then return { a = self.t, b = { self.t, "text", 1.5, true } } end
  return i == 4 and { f = self.t.sum } or nil
end

--- Samples that no worker can send, or cannot even make: what = "history", "memory".
M.Heavy = data.Dataset:extend "Heavy"
function M.Heavy:init(what) self.what = what end
function M.Heavy:len() return 4 end
function M.Heavy:get(i)
  if i < 3 then return accel.ones(2) end
  if self.what == "memory" then return ("x"):rep(1 << 60) end
  return accel.ones(2, { requires_grad = true }) * i
end

--- Finished batches, of which the second is nil.
M.Gap = M.Batches:extend "Gap"
function M.Gap:get_batch(positions) return positions[1] == 1 and accel.tensor(positions) or nil end

function M.no_batch(samples) return samples[1].i == 1 and accel.ones(1) or nil end
function M.no_numbers(samples) return samples[1] == 1 and accel.ones(1) or nil end

function M.double(x)
  x.i = 2 * x.i
  return x
end
function M.add_one(x) return x + 1 end
function M.odd(x) return x % 2 == 1 end
function M.noisy_collate(samples)
  local ids = {}
  for k, s in ipairs(samples) do ids[k] = s.i end
  return { ids = ids, noise = accel.rand(1):item() }
end
function M.init(id) M.inited = 10 + id end
function M.bad_init(id) error("init of " .. id) end
M.number = 3

--- What nothing but a closure could be.
M.Closure = data.Dataset:extend "Closure"
function M.Closure:len() return 3 end
function M.Closure:get(i) return i end

return M
