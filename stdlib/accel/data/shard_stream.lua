--- data.ShardStream(format, paths, options): samples of many files in order, as a stream: JSON Lines, Parquet, Arrow, WebDataset,
--- TFRecord. The order depends only on the seed, the epoch and the number of workers, not on ranks. A resumed pass continues with the
--- exact sample.
---
--- Workers of a loader share the work: whole files in turn if there are at least as many files as workers, otherwise samples in turn.
--- Ranks of a prepared loader read all files and keep their own samples, which makes the order the same for any number of ranks. With
--- native_shards = true each rank reads only its own files, which is faster and gives each number of ranks another order. Ranks whose files
--- end first repeat their first batch as padding (even_batches), or all ranks end with them (drop_last).
local check = require "accel.util.check"
local fingerprint = require "accel.data.fingerprint"
local IterableDataset = require "accel.data.iterable_dataset"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Random = require "accel.util.random"
local shard_paths = require "accel.data.shard_paths"
local worker_info = require "accel.data.worker_info"

-- format -> module with _open_shard(path, options) -> next(skip) -> sample or true if it was skipped, nil at the end; close()
local WHO <const> = { jsonl = "JSONL.stream", parquet = "Parquet.stream", arrow = "Arrow.stream", webdataset = "WebDataset", tfrecord = "TFRecord" }
local FORMATS <const> = {
  jsonl = "accel.data.jsonl", parquet = "accel.data.table_dataset", arrow = "accel.data.table_dataset",
  webdataset = "accel.data.webdataset", tfrecord = "accel.data.tfrecord",
}

--- example: return (pcall(accel.data.ShardStream, "csv", "a.csv")) --> false
---@class accel.data.ShardStream : accel.data.IterableDataset
---@field format string
---@field paths string[]
---@field n_shards integer? number of files, if ranks read their own
local ShardStream = IterableDataset:extend("accel.data.ShardStream")

---@param format "jsonl"|"parquet"|"arrow"|"webdataset"|"tfrecord"
---@param paths string|string[] with braces and patterns: "train-{000..099}.tar", "data/*.parquet"
---@param opts? table options of the format, and
---  shuffle_shards boolean = false: the files in another order in every epoch
---  native_shards boolean = false: each rank of a prepared loader reads only its own files
function ShardStream:init(format, paths, opts)
  local who = WHO[format] or "ShardStream"
  local module = FORMATS[format]
  if not module then raise("%s: format must be jsonl, parquet, arrow, webdataset or tfrecord, got %s", who, check.shown(format)) end
  local declared = { shuffle_shards = false, native_shards = false }
  for name, value in next, require(module).SHARD_OPTIONS do declared[name] = value end
  local o = options(who, opts, declared)
  self.format, self.paths, self.options = format, shard_paths(who, paths), o
  self.given, self.splits = opts, true
  if o.native_shards then self.n_shards = #self.paths end
end

function ShardStream:worker_spec()
  return { module = "accel.data.shard_stream", args = { self.format, self.paths, self.given, n = 3 } }
end

--- The files and their order, for states of loaders: accel.data.fingerprint.
---@return string
function ShardStream:fingerprint()
  local text = ("%s, %s"):format(self.format, fingerprint.files(self.paths))
  return self.options.shuffle_shards and text .. ", shuffle_shards" or text
end

--- The stream of every n-th file, from file i (0-based) on.
---@param n integer
---@param i integer
---@return accel.data.ShardStream
function ShardStream:shard(n, i)
  local own = {}
  for k = i + 1, #self.paths, n do own[#own + 1] = self.paths[k] end
  if #own == 0 then raise("ShardStream:shard: %d files cannot be shared by %d ranks", #self.paths, n) end
  return ShardStream(self.format, own, self.given)
end

local function order_of(self, epoch, seed)
  local order = table.move(self.paths, 1, #self.paths, 1, {})
  if self.options.shuffle_shards then Random(seed, 0x5aad + epoch):shuffle(order) end
  return order
end

function ShardStream:iterate(epoch, seed)
  local order, info = order_of(self, epoch or 0, seed or 0), worker_info.get_worker_info()
  local n, id = info and info.num_workers or 1, info and info.id or 0
  local by_file = #order >= n
  local open_shard = require(FORMATS[self.format])._open_shard
  local file, at, k = nil, by_file and id + 1 or 1, -1
  local closing = setmetatable({}, { __close = function()
    if file then file:close() end
    file = nil
  end })
  return function()
    while true do
      if not file then
        if not order[at] then return nil end
        file = open_shard(order[at], self.options)
      end
      k = k + 1
      local skip = not by_file and k % n ~= id
      local sample = file:next(skip)
      if sample == nil then
        file:close()
        file, k = nil, k - 1
        at = at + (by_file and n or 1)
      elseif not skip then
        return sample
      end
    end
  end, nil, nil, closing
end

return ShardStream
