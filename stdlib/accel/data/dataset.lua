--- data.Dataset: the base of data sets. A subclass defines len() and get(i), i from 1. It may define
--- get_batch(positions), which returns a finished batch and saves the loader one call per sample, and worker_spec()
--- (accel.data.worker_spec), so that a loader's workers can recreate it. Any table with these methods serves as well.
--- The helpers make new data sets that read from this one:
---
---   local short = rows:filter(function(row) return #row.text < 200 end):map(encode):take(1000)
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- example: local D = accel.data.Dataset:extend("Squares") function D:len() return 3 end
---   function D:get(i) return i * i end return #D(), D():get(2) --> 3, 4
---@class accel.data.Dataset
local Dataset = class("accel.data.Dataset")

-- set[3] would be nil, and ipairs(set) go over nothing, without a word.
do
  local meta = getmetatable(Dataset)
  local base = meta.__index
  function meta.__index(_, key)
    if math.type(key) == "integer" then raise("a data set cannot be indexed; use set:get(%d) for sample %d", key, key) end
    return base[key]
  end
end

--- The number of samples. #set is the same. Subclasses define it.
---@return integer
function Dataset:len() -- luacheck: ignore self
  raise("%s does not define len", getmetatable(self).__name)
end

--- Sample i, from 1. Subclasses define it.
---@param i integer
function Dataset:get(i) -- luacheck: ignore
  raise("%s does not define get", getmetatable(self).__name)
end

function Dataset.__len(self) return self:len() end

--- Raises unless i is a position in this data set.
---@param i integer position, from 1
function Dataset:check_position(i)
  if math.type(i) ~= "integer" or i < 1 or i > self:len() then
    raise("%s: position %s is outside of 1 .. %d", getmetatable(self).__name, tostring(i), self:len())
  end
end

--- fn(sample, i) in place of every sample, called whenever one is read. Pass it by its name, "my.module:fn", to use it
--- in workers of a loader as well.
--- example: accel.data.ListDataset({ 1, 2, 3 }):map(function(x) return 10 * x end):get(3) --> 30
---@param fn (fun(sample: any, i: integer): any)|string
---@return accel.data.MapDataset
function Dataset:map(fn) return require("accel.data.views").MapDataset(self, fn) end

--- The samples for which fn(sample, i) is true. Reads every sample once, now.
--- example: accel.data.ListDataset({ 5, 6, 7 }):filter(function(x) return x ~= 6 end):get(2) --> 7
---@param fn fun(sample: any, i: integer): boolean
---@return accel.data.Subset
function Dataset:filter(fn)
  check.callable("Dataset:filter", "the function", fn)
  local positions = {}
  for i = 1, self:len() do
    if fn(self:get(i), i) then positions[#positions + 1] = i end
  end
  return self:subset(positions)
end

--- Batches of n neighbours, each one sample of the new data set.
--- example: accel.data.ListDataset({ 5, 6, 7 }):batch(2):get(1) --> { 5, 6 }
---@param n integer
---@param opts? {drop_last: boolean?, collate_fn: (fun(samples: any[]): any)?}
---@return accel.data.BatchDataset
function Dataset:batch(n, opts, ...)
  check.surplus("Dataset:batch", ...)
  return require("accel.data.views").BatchDataset(self, n, opts)
end

local function range(self, first, last)
  local positions = {}
  for i = first, last do positions[#positions + 1] = i end
  return self:subset(positions)
end

--- The first n samples, or all if there are fewer.
--- example: #accel.data.ListDataset({ 5, 6, 7 }):take(2) --> 2
---@param n integer
---@return accel.data.Subset
function Dataset:take(n)
  return range(self, 1, math.min(check.count("Dataset:take", "n", n), self:len()))
end

--- All but the first n samples.
--- example: accel.data.ListDataset({ 5, 6, 7 }):skip(2):get(1) --> 7
---@param n integer
---@return accel.data.Subset
function Dataset:skip(n)
  local last = self:len()
  return range(self, math.min(check.count("Dataset:skip", "n", n), last) + 1, last)
end

--- The samples in a random order that depends on the seed alone. A loader with shuffle = true draws a new order in each
--- epoch instead.
--- example: #accel.data.ListDataset({ 5, 6, 7 }):shuffle(1) --> 3
---@param seed? integer 0
---@return accel.data.Subset
function Dataset:shuffle(seed, ...)
  check.surplus("Dataset:shuffle", ...)
  local positions = {}
  for i = 1, self:len() do positions[i] = i end
  require "accel.util.random"(check.integer("Dataset:shuffle", "seed", seed or 0)):shuffle(positions)
  return self:subset(positions)
end

--- Only these fields of the samples.
--- example: accel.data.ListDataset({ { a = 1, b = 2 } }):select_columns({ "b" }):get(1) --> { b = 2 }
---@param names string[]
---@return accel.data.ColumnsDataset
function Dataset:select_columns(names) return require("accel.data.column_views").ColumnsDataset(self, names) end

--- The same samples, each read once and kept in memory. You get copies of them, which you may change. Workers of a loader keep them from
--- one pass to the next only with persistent_workers = true.
--- example: accel.data.ListDataset({ 5, 6, 7 }):cache():get(2) --> 6
---@return accel.data.CacheDataset
function Dataset:cache() return require("accel.data.column_views").CacheDataset(self) end

--- Samples of this data set and others in turn, until the shortest ends.
--- example: accel.data.ListDataset({ 5, 6, 7 }):interleave({ accel.data.ListDataset { 8 } }):get(2) --> 8
---@param others accel.data.Dataset[]
---@return accel.data.Subset
function Dataset:interleave(others, ...)
  check.surplus("Dataset:interleave", ...)
  if type(others) ~= "table" or others.len ~= nil then
    raise("Dataset:interleave: expected a list of data sets, got %s", check.shown(others))
  end
  local all, firsts, n, least = { self, table.unpack(others) }, {}, 0, math.huge
  for k, set in ipairs(all) do
    firsts[k], least, n = n, math.min(least, set:len()), n + set:len()
  end
  local positions = {}
  for i = 1, least do
    for _, first in ipairs(firsts) do positions[#positions + 1] = first + i end
  end
  return require("accel.data.views").ConcatDataset(all):subset(positions)
end

--- These samples, followed by the others'.
--- example: accel.data.ListDataset({ 5 }):concat(accel.data.ListDataset { 6, 7 }):get(3) --> 7
---@param ... accel.data.Dataset
---@return accel.data.ConcatDataset
function Dataset:concat(...) return require("accel.data.views").ConcatDataset { self, ... } end

--- The samples at these positions, in their order. A position may occur several times.
--- example: accel.data.ListDataset({ 5, 6, 7 }):subset({ 3, 1 }):get(1) --> 7
---@param positions integer[]
---@return accel.data.Subset
function Dataset:subset(positions) return require("accel.data.views").Subset(self, positions) end

return Dataset
