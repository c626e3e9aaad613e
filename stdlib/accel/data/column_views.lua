--- Data sets of other data sets' samples: ColumnsDataset has some of their fields, CacheDataset keeps them in memory. The helpers
--- of data.Dataset make them.
local check = require "accel.util.check"
local copy_sample = require "accel.data.copy_sample"
local Dataset = require "accel.data.dataset"
local fetch = require "accel.data.fetch"
local fingerprint = require "accel.data.fingerprint"
local raise = require "accel.util.raise"

local M = {}

local function expect(who, dataset)
  if type(dataset) ~= "table" or dataset.len == nil or dataset.get == nil then
    raise("%s: expected a data set with the methods len and get, got %s", who, check.shown(dataset))
  end
end

--- Some fields of the samples.
--- example: accel.data.ColumnsDataset(accel.data.ListDataset { { a = 1, b = 2 } }, { "a" }):get(1) --> { a = 1 }
---@class accel.data.ColumnsDataset : accel.data.Dataset
---@field dataset table
---@field names string[]
M.ColumnsDataset = Dataset:extend("accel.data.ColumnsDataset")

---@param dataset table
---@param names string[]
function M.ColumnsDataset:init(dataset, names)
  expect("ColumnsDataset", dataset)
  if type(names) ~= "table" then raise("ColumnsDataset: expected a list of names, got %s", check.shown(names)) end
  self.dataset, self.names = dataset, names
end

function M.ColumnsDataset:worker_spec()
  return { module = "accel.data.column_views:ColumnsDataset", args = { self.dataset, self.names } }
end

function M.ColumnsDataset:len() return self.dataset:len() end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.ColumnsDataset:fingerprint() return fingerprint.over("columns " .. table.concat(self.names, ","), self.dataset) end

function M.ColumnsDataset:get(i)
  self:check_position(i)
  local sample, out = fetch.sample(self.dataset, i), {}
  if type(sample) ~= "table" then raise("ColumnsDataset: sample %d is %s, not a table of fields", i, check.shown(sample)) end
  for _, name in ipairs(self.names) do out[name] = sample[name] end
  return out
end

--- The samples of a data set, each read once. You get a copy of the kept sample, which you may change. Workers of a loader keep what they
--- read for as long as they live: with persistent_workers = true from one pass to the next.
--- example: accel.data.CacheDataset(accel.data.ListDataset { 5, 6 }):get(2) --> 6
---@class accel.data.CacheDataset : accel.data.Dataset
---@field dataset table
M.CacheDataset = Dataset:extend("accel.data.CacheDataset")

---@param dataset table
function M.CacheDataset:init(dataset)
  expect("CacheDataset", dataset)
  self.dataset, self.kept = dataset, {}
end

function M.CacheDataset:worker_spec()
  return { module = "accel.data.column_views:CacheDataset", args = { self.dataset } }
end

function M.CacheDataset:len() return self.dataset:len() end

--- What it reads, for states of loaders: accel.data.fingerprint.
---@return string?
function M.CacheDataset:fingerprint() return fingerprint.of(self.dataset) end

function M.CacheDataset:get(i)
  self:check_position(i)
  if self.kept[i] == nil then self.kept[i] = copy_sample(fetch.sample(self.dataset, i)) end
  return copy_sample(self.kept[i])
end

return M
