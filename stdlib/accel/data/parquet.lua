--- data.Parquet(paths, options): rows of Parquet files as samples. A row group is read as a whole, and the last eight stay in memory:
--- for large files in random order, use Parquet.stream with shuffle, or files with small row groups.
local check = require "accel.util.check"
local options = require "accel.util.options"
local TableDataset = require "accel.data.table_dataset"

--- example: return (pcall(accel.data.Parquet, "no such file")) --> false
---@class accel.data.Parquet : accel.data.TableDataset
local Parquet = TableDataset:extend("accel.data.Parquet")

---@param paths string|string[] with braces and patterns: "data/train-*.parquet"
---@param opts? table
---  columns string[]: read only these (default: all)
---  nulls boolean = false: null is accel.json.null in samples, instead of a missing value
---  limit integer = 0: bytes that a row group may take in memory, and a compressed file. 0: 128 MiB and 64 times the size of the file
function Parquet:init(paths, opts)
  self.given = opts
  self:_open("Parquet", paths, options("Parquet", opts, TableDataset.SHARD_OPTIONS), TableDataset.KEEP)
end

function Parquet:worker_spec() return { module = "accel.data.parquet", args = { self.paths, self.given, n = 2 } } end

--- A stream of the same samples: data.ShardStream.
---@param paths string|string[]
---@param opts? table
---@return accel.data.ShardStream
function Parquet.stream(paths, opts, ...)
  check.surplus("Parquet.stream", ...)
  return TableDataset._streamed("parquet", paths, opts)
end

return Parquet
