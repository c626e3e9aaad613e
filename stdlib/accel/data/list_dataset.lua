--- data.ListDataset(list): the entries of a Lua list as samples.
local check = require "accel.util.check"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local raise = require "accel.util.raise"

--- example: accel.data.ListDataset({ { text = "yes" }, { text = "no" } }):get(2).text --> "no"
---@class accel.data.ListDataset : accel.data.Dataset
local ListDataset = Dataset:extend("accel.data.ListDataset")

---@param list any[]
function ListDataset:init(list)
  if type(list) ~= "table" then raise("ListDataset: expected a list, got %s", check.shown(list)) end
  self.list = list
end

function ListDataset:len() return #self.list end

--- Some entries, for states of loaders: accel.data.fingerprint.
---@return string
function ListDataset:fingerprint() return fingerprint.values(self.list) end

--- For workers: a copy of the list, which must be plain data.
function ListDataset:worker_spec() return { module = "accel.data.list_dataset", args = { self.list } } end

function ListDataset:get(i)
  self:check_position(i)
  return self.list[i]
end

return ListDataset
