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

--- These samples, followed by the others'.
---@param ... table
---@return accel.data.IterableDataset
function IterableDataset:concat(...) return require("accel.data.iterable_views").chain { self, ... } end

return IterableDataset
