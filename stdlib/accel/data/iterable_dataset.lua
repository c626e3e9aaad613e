--- data.IterableDataset: the base of data sets that are read in one direction: streams, generators, data larger than
--- memory. A subclass defines iterate(epoch, seed), which begins a pass and returns the values of a generic `for` (an
--- iterator function, and up to three values with a value to close last). The iterator returns the samples, and nil
--- ends. It may define len(). Any table with this method serves as well.
---
---   local Lines = data.IterableDataset:extend "Lines"
---   function Lines:init(path) self.path = path end
---   function Lines:iterate() return io.lines(self.path) end
---   for batch in data.DataLoader(Lines("a.txt"):map(encode), { batch_size = 32 })() do ... end
---
--- A loader takes its samples in order. A resumed pass reads and drops the samples that were already delivered.
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: local Count = accel.data.IterableDataset:extend "Count"
---   function Count:iterate() local i = 0 return function() i = i + 1 return i <= 5 and i or nil end end
---   local sums = {} for batch in accel.data.DataLoader(Count():skip(1), { batch_size = 3 })() do
---   sums[#sums + 1] = batch:sum() end return sums --> { 9, 5 }
---@class accel.data.IterableDataset
local IterableDataset = class("accel.data.IterableDataset")

--- Begins a pass.
---@param epoch integer from 0
---@param seed integer
---@return fun(state: any, control: any): any
---@return any state
---@return any control
---@return any closing a value with __close, called when the pass ends
function IterableDataset:iterate(epoch, seed) -- luacheck: ignore
  raise("%s does not define iterate", getmetatable(self).__name)
end

--- #stream: len() if the class defines it. The length of other streams is unknown.
function IterableDataset.__len(self)
  if self.len then return self:len() end
  raise("%s: a stream has no known length; count its samples in a loop", getmetatable(self).__name)
end

local function derived(...) return require("accel.data.iterable_views").derived(...) end

--- fn(sample, i) in place of every sample. Pass it by its name, "my.module:fn", to use it in workers of a loader as
--- well.
---@param fn (fun(sample: any, i: integer): any)|string
---@return accel.data.IterableDataset
function IterableDataset:map(fn) return derived(self, "map", fn or false) end

--- The samples for which fn(sample, i) is true.
---@param fn (fun(sample: any, i: integer): boolean)|string
---@return accel.data.IterableDataset
function IterableDataset:filter(fn) return derived(self, "filter", fn or false) end

--- Batches of n neighbours, each one sample of the new stream.
---@param n integer
---@param opts? {drop_last: boolean?, collate_fn: (fun(samples: any[]): any)|string?}
---@return accel.data.IterableDataset
function IterableDataset:batch(n, opts, ...)
  check.surplus("IterableDataset:batch", ...)
  check.positive("IterableDataset:batch", "n", n)
  local o = options("IterableDataset:batch", opts, { drop_last = false, collate_fn = options.none })
  return derived(self, "batch", o.collate_fn, n, o.drop_last)
end

--- The first n samples.
---@param n integer
---@return accel.data.IterableDataset
function IterableDataset:take(n)
  return derived(self, "take", nil, check.count("IterableDataset:take", "n", n))
end

--- All but the first n samples.
---@param n integer
---@return accel.data.IterableDataset
function IterableDataset:skip(n)
  return derived(self, "skip", nil, check.count("IterableDataset:skip", "n", n))
end

--- Another order: each sample is drawn from a buffer of the next ones. The order depends on the seed and the epoch.
--- example: local Count = accel.data.IterableDataset:extend "Count"
---   function Count:iterate() local i = 0 return function() i = i + 1 return i <= 3 and i or nil end end
---   local sum = 0 for x in Count():shuffle(2, 7):iterate(0, 0) do sum = sum + x end return sum --> 6
---@param buffer_size integer samples in memory. As large as the stream: a uniform order
---@param seed? integer default: the loader's
---@return accel.data.IterableDataset
function IterableDataset:shuffle(buffer_size, seed, ...)
  check.surplus("IterableDataset:shuffle", ...)
  if seed ~= nil then check.integer("IterableDataset:shuffle", "seed", seed) end
  return derived(self, "shuffle", nil, check.positive("IterableDataset:shuffle", "buffer_size", buffer_size), seed)
end

--- Only these fields of the samples.
---@param names string[]
---@return accel.data.IterableDataset
function IterableDataset:select_columns(names, ...)
  check.surplus("IterableDataset:select_columns", ...)
  if type(names) ~= "table" then
    raise("IterableDataset:select_columns: expected a list of names, got %s", check.shown(names))
  end
  return derived(self, "columns", nil, names)
end

--- Samples of this stream and others in turn, or drawn with probabilities.
---@param others accel.data.IterableDataset[]
---@param opts? {probabilities: number[]?, seed: integer?, stopping_strategy: string?} stopping_strategy as in Hugging Face's datasets:
---  first_exhausted ends with the last sample of the first stream that ends. all_exhausted begins streams that end anew until each has ended
---  once. all_exhausted_without_replacement gives every sample once
---@return accel.data.IterableDataset
function IterableDataset:interleave(others, opts, ...)
  check.surplus("IterableDataset:interleave", ...)
  if type(others) ~= "table" or others.iterate ~= nil then
    raise("IterableDataset:interleave: expected a list of streams, got %s", check.shown(others))
  end
  return require("accel.data.iterable_views").interleaved({ self, table.unpack(others) }, opts)
end

--- The same samples, which are kept in memory from the first whole pass on. You get copies of them, which you may change. Workers of a
--- loader keep them only with persistent_workers = true.
---@return accel.data.IterableDataset
function IterableDataset:cache() return require("accel.data.iterable_views").cached(self) end

--- These samples, followed by the others'.
---@param ... table
---@return accel.data.IterableDataset
function IterableDataset:concat(...) return require("accel.data.iterable_views").chain { self, ... } end

return IterableDataset
