--- Data sets that read from others: Subset, ConcatDataset, MapDataset, BatchDataset. The helpers of data.Dataset make
--- them. Nothing is copied: a sample is read from its source when it is asked for.
local check = require "accel.util.check"
local Dataset = require "accel.data.dataset"
local fetch = require "accel.data.fetch"
local fingerprint = require "accel.data.fingerprint"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local worker_spec = require "accel.data.worker_spec"

local M = {}

local function check_source(who, source, ...)
  local good = type(source) == "table" and source.len ~= nil
  for _, method in ipairs { ... } do good = good and source[method] ~= nil end
  if not good then
    raise("%s: expected a data set with the methods %s, got %s", who, table.concat({ "len", ... }, ", "),
      check.shown(source))
  end
end

--- Some samples of a data set, in a given order.
--- example: local set = accel.data.TensorDataset(accel.arange(9))
---   return accel.data.Subset(set, { 4, 2 }):get_batch({ 1, 2 })[1] --> { 3, 1 }
---@class accel.data.Subset : accel.data.Dataset
---@field dataset table
---@field positions integer[]
M.Subset = Dataset:extend("accel.data.Subset")

local function subset_batch(self, places)
  local positions = {}
  for k, i in ipairs(places) do
    self:check_position(i)
    positions[k] = self.positions[i]
  end
  return self.dataset:get_batch(positions)
end

---@param dataset table
---@param positions integer[] from 1
function M.Subset:init(dataset, positions)
  check_source("Subset", dataset)
  if type(positions) ~= "table" then
    raise("Subset: positions must be a list, got %s", check.shown(positions))
  end
  local n = dataset:len()
  for k, i in ipairs(positions) do
    if math.type(i) ~= "integer" or i < 1 or i > n then
      raise("Subset: position %s (entry %d) is outside of 1 .. %d", check.shown(i), k, n)
    end
  end
  self.dataset, self.positions = dataset, positions
  if dataset.get_batch then self.get_batch = subset_batch end
end

function M.Subset:len() return #self.positions end

function M.Subset:worker_spec()
  return { module = "accel.data.views:Subset", args = { self.dataset, self.positions } }
end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.Subset:fingerprint() return fingerprint.over("subset " .. fingerprint.hash(self.positions), self.dataset) end

function M.Subset:get(i)
  self:check_position(i)
  return self.dataset:get(self.positions[i])
end

--- Data sets one after the other.
--- example: #accel.data.ConcatDataset { accel.data.ListDataset { 5, 6 }, accel.data.ListDataset { 7 } } --> 3
---@class accel.data.ConcatDataset : accel.data.Dataset
---@field datasets table[]
M.ConcatDataset = Dataset:extend("accel.data.ConcatDataset")

---@param datasets table[]
function M.ConcatDataset:init(datasets)
  if type(datasets) ~= "table" or #datasets == 0 then
    raise "ConcatDataset: expected a list of at least one data set"
  end
  self.datasets, self.ends = datasets, {} -- ends[k]: position of the last sample of data set k
  local n = 0
  for k, set in ipairs(datasets) do
    check_source(("ConcatDataset: data set %d"):format(k), set, "get")
    n = n + set:len()
    self.ends[k] = n
  end
end

function M.ConcatDataset:len() return self.ends[#self.ends] end

function M.ConcatDataset:worker_spec()
  return { module = "accel.data.views:ConcatDataset", args = { self.datasets } }
end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.ConcatDataset:fingerprint() return fingerprint.over("concat", table.unpack(self.datasets)) end

function M.ConcatDataset:get(i)
  self:check_position(i)
  local low, high = 1, #self.ends
  while low < high do
    local middle = (low + high) // 2
    if i <= self.ends[middle] then high = middle else low = middle + 1 end
  end
  return self.datasets[low]:get(i - (self.ends[low - 1] or 0))
end

--- A function of every sample of a data set.
--- example: local set = accel.data.ListDataset { 5, 6 }
---   return accel.data.MapDataset(set, function(x, i) return x + i end):get(2) --> 8
---@class accel.data.MapDataset : accel.data.Dataset
---@field dataset table
M.MapDataset = Dataset:extend("accel.data.MapDataset")

---@param dataset table
---@param fn (fun(sample: any, i: integer): any)|string or its name, "my.module:fn", by which it goes to workers
function M.MapDataset:init(dataset, fn)
  check_source("MapDataset", dataset, "get")
  self.dataset, self.given, self.fn = dataset, fn, worker_spec.callable("MapDataset", "the function", fn)
end

function M.MapDataset:worker_spec()
  return { module = "accel.data.views:MapDataset", args = { self.dataset, self.given } }
end

function M.MapDataset:len() return self.dataset:len() end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.MapDataset:fingerprint() return fingerprint.over("map", self.dataset) end

function M.MapDataset:get(i)
  self:check_position(i)
  local sample = self.fn(fetch.sample(self.dataset, i), i)
  if sample == nil then raise("MapDataset: the function returned nil for sample %d", i) end
  return sample
end

--- Batches of neighbours: sample i is the collated batch i. Give DataLoader `batch_size = false` to get
--- them as they are.
--- example: local set = accel.data.ListDataset { 5, 6, 7 }
---   return #accel.data.BatchDataset(set, 2, { drop_last = true }) --> 1
---@class accel.data.BatchDataset : accel.data.Dataset
---@field dataset table
---@field batch_size integer
M.BatchDataset = Dataset:extend("accel.data.BatchDataset")

---@param dataset table
---@param batch_size integer
---@param opts? {drop_last: boolean?, collate_fn: (fun(samples: any[]): any)|string?}
function M.BatchDataset:init(dataset, batch_size, opts)
  check_source("BatchDataset", dataset)
  local o = options("BatchDataset", opts, { drop_last = false, collate_fn = options.none })
  local collate
  if o.collate_fn ~= nil then
    collate = worker_spec.callable("BatchDataset", "collate_fn", o.collate_fn)
    check_source("BatchDataset with a collate_fn", dataset, "get")
  end
  self.batch_size = check.positive("BatchDataset", "batch_size", batch_size)
  self.dataset, self.drop_last, self.collate_fn, self.given = dataset, o.drop_last, collate, o.collate_fn
end

--- The object described by worker_spec.
function M.rebatch(dataset, n, drop_last, collate)
  return M.BatchDataset(dataset, n, { drop_last = drop_last, collate_fn = collate })
end

function M.BatchDataset:worker_spec()
  return { module = "accel.data.views:rebatch",
    args = { self.dataset, self.batch_size, self.drop_last, self.given, n = 4 } }
end

function M.BatchDataset:len()
  local n, size = self.dataset:len(), self.batch_size
  return self.drop_last and n // size or -(-n // size)
end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.BatchDataset:fingerprint() return fingerprint.over(("batch %d"):format(self.batch_size), self.dataset) end

function M.BatchDataset:get(i)
  self:check_position(i)
  local positions, size = {}, self.batch_size
  for k = (i - 1) * size + 1, math.min(i * size, self.dataset:len()) do
    positions[#positions + 1] = k
  end
  return fetch.batch(self.dataset, positions, self.collate_fn)
end

return M
