--- data.TFRecord(paths, options): records of TFRecord files as a stream, with both checksums of each compared. A sample is an Example of
--- TensorFlow: { name = { values } }, with a list of bytes, numbers or integers for each feature. Files may be compressed.
local class = require "accel.util.class"
local core = require "accel.file.core"
local raise = require "accel.util.raise"
local ShardStream = require "accel.data.shard_stream"

--- example: local set = accel.data.TFRecord("no such file") return (pcall(set.iterate(set, 0, 0))) --> false
---@class accel.data.TFRecord : accel.data.ShardStream
local TFRecord = ShardStream:extend("accel.data.TFRecord")

TFRecord.SHARD_OPTIONS = { raw = false, limit = 0 }

local Shard = class("accel.data.TFRecord.Shard")

function Shard:init(path, o)
  local message
  self.path, self.raw, self.number = path, o.raw, 0
  self.file, message = core.open_tfrecord(path, { limit = o.limit })
  if not self.file then raise("TFRecord: %s", message) end
end

function Shard:next(skip)
  local record, message = self.file:next()
  if message then raise("TFRecord: %s", message) end
  if not record then return nil end
  self.number = self.number + 1
  if skip then return true end
  if self.raw then return record end
  local values, why = core.parse_example(record)
  if not values then raise("TFRecord: %s: record %d: %s", self.path, self.number, why) end
  return values
end

function Shard:close() self.file:close() end

--- One file of a stream, for data.ShardStream.
---@param path string
---@param o table options of the stream
---@return table shard with next and close
function TFRecord._open_shard(path, o) return Shard(path, o) end

---@param paths string|string[] with braces and patterns: "train-*.tfrecord"
---@param opts? table
---  raw boolean = false: the bytes of each record instead of an Example
---  limit integer = 0: bytes that a record may have. 0: 128 MiB and 64 times the size of the file
---  shuffle_shards boolean = false: the files in another order in every epoch
---  native_shards boolean = false: each rank of a prepared loader reads only its own files
function TFRecord:init(paths, opts) ShardStream.init(self, "tfrecord", paths, opts) end

function TFRecord:worker_spec() return { module = "accel.data.tfrecord", args = { self.paths, self.given, n = 2 } } end

return TFRecord
