--- What data.Parquet and data.Arrow share: rows of one or more table files as samples, by position or as a stream. A sample has the
--- values of a row by column name. Nulls are left out, integers beyond 64 bits and decimals come as text, maps as lists of pairs.
local class = require "accel.util.class"
local core = require "accel.file.core"
local Dataset = require "accel.data.dataset"
local accel = require "accel"
local fingerprint = require "accel.data.fingerprint"
local open_files = require "accel.data.open_files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local shard_paths = require "accel.data.shard_paths"

--- example: accel.data.Parquet.get == accel.data.TableDataset.get --> true
---@class accel.data.TableDataset : accel.data.Dataset
---@field paths string[]
---@field columns {name: string, type: string, nullable: boolean}[] as in the first file
---@field metadata table<string, string> of the first file
---@field features table? Hugging Face's description of the columns, if the file has it
local TableDataset = Dataset:extend("accel.data.TableDataset")

TableDataset.SHARD_OPTIONS = { columns = options.none, nulls = false, limit = 0 }
local KEEP <const> = 8

local function open(who, path, limit)
  local t, message = core.open_table(path, { limit = limit })
  if not t then raise("%s: %s", who, message) end
  return t, t:info()
end

local function same_columns(who, path, first, columns)
  if #first ~= #columns then raise("%s: %s has %d columns, the first file %d", who, path, #columns, #first) end
  for i, c in ipairs(columns) do
    if c.name ~= first[i].name or c.type ~= first[i].type then
      raise("%s: %s has the column %s (%s), the first file %s (%s)", who, path, c.name, c.type, first[i].name, first[i].type)
    end
  end
end

local function features_of(metadata)
  local text = metadata.huggingface
  if not text then return nil end
  local ok, value = pcall(accel.json.decode, text)
  return ok and type(value) == "table" and type(value.info) == "table" and value.info.features or nil
end

local function reopen(slot)
  local t, info = open(slot.who, slot.path, slot.limit)
  local sizes = table.concat(info.batches, ",")
  if slot.sizes and slot.sizes ~= sizes then raise("%s: %s has changed since it was opened", slot.who, slot.path) end
  slot.sizes, slot.info = sizes, not slot.sizes and info or nil
  return t
end

--- Rows in memory keep their file open.
local function forget(slot)
  for _, piece in ipairs(slot.pieces) do
    if piece.rows then piece.rows:close() end
    piece.rows = nil
  end
end

--- Rows k of a file, of some columns.
local function read(slot, k, columns)
  local rows, message = open_files.get(slot, reopen):batch(k, columns)
  if not rows then raise("%s: %s", slot.who, message) end
  return rows
end

--- Opens all files, of which the last ones stay open. who: the class, for messages.
function TableDataset:_open(who, paths, o, keep)
  self.paths, self.o, self.keep = shard_paths(who, paths), o, keep
  self.pieces, self.n, self.tables, self.recent, self.who = {}, 0, {}, {}, who
  for k, path in ipairs(self.paths) do
    local slot = { who = who, path = path, limit = o.limit, pieces = {}, forget = forget }
    open_files.get(slot, reopen)
    local info = slot.info
    slot.info = nil
    if k == 1 then
      self.columns, self.metadata, self.features = info.columns, info.metadata, features_of(info.metadata)
    else
      same_columns(who, path, self.columns, info.columns)
    end
    self.tables[k] = slot
    for b, rows in ipairs(info.batches) do
      if rows > 0 then
        local piece = { file = k, batch = b, first = self.n }
        self.pieces[#self.pieces + 1], slot.pieces[#slot.pieces + 1] = piece, piece
        self.n = self.n + rows
      end
    end
  end
  local known = {}
  for _, c in ipairs(self.columns) do known[c.name] = true end
  for _, name in ipairs(o.columns or {}) do
    if not known[name] then raise("%s: %s has no column '%s'", who, self.paths[1], tostring(name)) end
  end
end

function TableDataset:len() return self.n end

--- The files and their order, for states of loaders: accel.data.fingerprint.
---@return string
function TableDataset:fingerprint() return fingerprint.files(self.paths) end

--- The rows of a piece. The last ones used stay in memory.
local function rows_of(self, piece)
  if piece.rows then return piece.rows end
  local rows = read(self.tables[piece.file], piece.batch, self.o.columns)
  piece.rows = rows
  local recent = self.recent
  recent[#recent + 1] = piece
  if #recent > self.keep then
    recent[1].rows = nil
    table.remove(recent, 1)
  end
  return rows
end

local function piece_of(pieces, i)
  local low, high = 1, #pieces
  while low < high do
    local middle = (low + high + 1) // 2
    if pieces[middle].first < i then low = middle else high = middle - 1 end
  end
  return pieces[low]
end

---@param i integer
function TableDataset:get(i)
  self:check_position(i)
  local piece = piece_of(self.pieces, i)
  return rows_of(self, piece):row(i - piece.first, self.o.nulls)
end

--- All values of a column, as a list. Null is accel.json.null.
---@param name string
---@return any[]
function TableDataset:column(name)
  local out = {}
  for _, piece in ipairs(self.pieces) do
    local rows = read(self.tables[piece.file], piece.batch, { name })
    table.move(rows:column(name), 1, rows:rows(), #out + 1, out)
  end
  return out
end

local JOINED <const> = 32 -- parts of a tensor that keep their files open

local function join(parts)
  local whole = accel.cat(parts, 1)
  for _, part in ipairs(parts) do part:release() end
  return whole
end

--- The numbers of a column as one tensor: in the file's own memory if they are in one piece, uncompressed and without nulls. Lists of
--- one length become rows, other lists are joined.
---@param name string
---@return accel.Tensor
function TableDataset:tensor(name)
  local parts = {}
  for _, piece in ipairs(self.pieces) do
    if #parts == JOINED then parts = { join(parts) } end
    local rows <close> = read(self.tables[piece.file], piece.batch, { name })
    parts[#parts + 1] = rows:tensor(name)
  end
  if #parts == 0 then raise("%s: no rows for a tensor of '%s'", self.who, name) end
  return #parts == 1 and parts[1] or join(parts)
end

-- ---- shards of a stream ----

local Shard = class("accel.data.TableDataset.Shard")

function Shard:init(path, o)
  self.path, self.o, self.k, self.i, self.n = path, o, 0, 0, 0
  self.t, self.info = open("ShardStream", path, o.limit)
end

function Shard:next(skip)
  while self.i == self.n do
    if self.k == #self.info.batches then return nil end
    self.k, self.i = self.k + 1, 0
    self.n, self.rows = self.info.batches[self.k], nil
  end
  self.i = self.i + 1
  if skip then return true end
  if not self.rows then
    local message
    self.rows, message = self.t:batch(self.k, self.o.columns)
    if not self.rows then raise("ShardStream: %s", message) end
  end
  return self.rows:row(self.i, self.o.nulls)
end

function Shard:close() self.t:close() end

--- One file of a stream, for data.ShardStream.
---@param path string
---@param o table options of the stream
---@return table shard with next and close
function TableDataset._open_shard(path, o) return Shard(path, o) end

--- A stream of the rows, which holds one row group or batch at a time: data.ShardStream.
function TableDataset._streamed(format, paths, opts) return require "accel.data.shard_stream"(format, paths, opts) end

TableDataset.KEEP = KEEP

return TableDataset
