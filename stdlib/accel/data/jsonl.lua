--- data.JSONL(paths, options): a JSON value a line as samples, usually objects. Only the places of the lines are kept in memory. Files
--- may be compressed (.gz .zst .xz .bz2 .lz4): JSONL reads them into memory, JSONL.stream as it goes.
---
--- Integers of more than 64 bits come as text. null is left out of objects, and is accel.json.null in lists and with nulls = true. Blank
--- lines and a byte order mark are skipped. Repeated keys, NaN and anything else that is not JSON are errors that name the line.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.file.core"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local open_files = require "accel.data.open_files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local shard_paths = require "accel.data.shard_paths"

local BOM <const> = "\xEF\xBB\xBF"

--- example: return (pcall(accel.data.JSONL, "no such file")) --> false
---@class accel.data.JSONL : accel.data.Dataset
---@field paths string[]
local JSONL = Dataset:extend("accel.data.JSONL")

JSONL.SHARD_OPTIONS = { columns = options.none, nulls = false, ordered = false, limit = 0 }

--- Options of accel.json.decode.
local function decoding(o) return { records = true, nulls = o.nulls, ordered = o.ordered } end

local function select_columns(sample, columns)
  if not columns or type(sample) ~= "table" then return sample end
  local out = {}
  for _, name in ipairs(columns) do out[name] = sample[name] end
  return out
end

local function decode(path, line, text, how, columns)
  local ok, value = pcall(accel.json.decode, text, how)
  if ok then return select_columns(value, columns) end
  if text:find "^version https://git%-lfs" then
    raise("JSONL: %s:%d: a pointer of Git LFS, not the data; fetch the file with `git lfs pull`", path, line)
  end
  local why = tostring(value):match "JSON: (.*)" or tostring(value)
  local column
  why = why:gsub("^line %d+, column (%d+): ", function(c)
    column = c
    return ""
  end)
  raise("JSONL: %s:%d:%s %s", path, line, column and column .. ":" or "", why)
end

local function is_blank(text) return not text:find "[^ \t\r]" end

local function check_columns(columns)
  if columns ~= nil and type(columns) ~= "table" then
    raise("JSONL: columns must be a list of names, got %s", check.shown(columns))
  end
end

--- The places of all lines of a file: offsets, and numbers of the lines if some are blank.
local function scan(path, offsets, limit)
  local stream, message = core.open_stream(path, { limit = limit })
  if not stream then raise("JSONL: %s", message) end
  local number, at = 0, 0
  local lines = {}
  while true do
    local text
    text, message = stream:line()
    if not text then break end
    number = number + 1
    if number == 1 and text:sub(1, 3) == BOM then at, text = 3, text:sub(4) end
    if not is_blank(text) then
      offsets[#offsets + 1] = at
      lines[#lines + 1] = number
    end
    at = stream:at()
  end
  local fits = true
  if not message and stream:codec() then fits, message = stream:fits() end
  stream:close()
  if not fits then raise("JSONL: %s, or read it with JSONL.stream, which keeps one line in memory", message) end
  if message then raise("JSONL: %s", message) end
  return lines
end

---@param paths string|string[] with braces and patterns: "part-{0..9}.jsonl", "data/*.jsonl"
---@param opts? table
---  columns string[]: the names that samples keep (default: all)
---  nulls boolean = false: keep null in objects, as accel.json.null
---  ordered boolean = false: objects keep the order of the text
---  limit integer = 0: bytes that a line may have, and a compressed file when unpacked. 0: 128 MiB and 64 times the size of the file
function JSONL:init(paths, opts)
  local o = options("JSONL", opts, JSONL.SHARD_OPTIONS)
  check_columns(o.columns)
  self.paths, self.given, self.columns, self.how = shard_paths("JSONL", paths), opts, o.columns, decoding(o)
  self.files, self.n = {}, 0
  for k, path in ipairs(self.paths) do
    local offsets = {}
    local lines = scan(path, offsets, o.limit)
    self.files[k] = { path = path, offsets = offsets, lines = lines, first = self.n, limit = o.limit }
    self.n = self.n + #offsets
  end
end

--- A stream of the same samples, which needs no memory for the places of lines: data.ShardStream.
---@param paths string|string[]
---@param opts? table
---@return accel.data.ShardStream
function JSONL.stream(paths, opts, ...)
  check.surplus("JSONL.stream", ...)
  return require "accel.data.shard_stream"("jsonl", paths, opts)
end

function JSONL:len() return self.n end

--- The files and their order, for states of loaders: accel.data.fingerprint.
---@return string
function JSONL:fingerprint() return fingerprint.files(self.paths) end

function JSONL:worker_spec()
  local files = {}
  for k, f in ipairs(self.files) do files[k] = { path = f.path, offsets = f.offsets, lines = f.lines, first = f.first, limit = f.limit } end
  local state = { paths = self.paths, given = self.given, columns = self.columns, how = self.how, files = files, n = self.n }
  return { module = "accel.data.jsonl:reopen", args = { state } }
end

--- The object described by worker_spec: lines are not looked for again.
---@param state table
---@return accel.data.JSONL
function JSONL.reopen(state) return setmetatable(state, JSONL) end

local function file_of(files, i)
  local low, high = 1, #files
  while low < high do
    local middle = (low + high + 1) // 2
    if files[middle].first < i then low = middle else high = middle - 1 end
  end
  return files[low]
end

local function open(f)
  local file, message = core.open_unpacked(f.path, { limit = f.limit })
  if not file then raise("JSONL: %s", message) end
  return file
end

---@param i integer
function JSONL:get(i)
  self:check_position(i)
  local f = file_of(self.files, i)
  local k = i - f.first
  local file = open_files.get(f, open)
  local text = file:seek("set", f.offsets[k]) and file:read "l"
  if not text then raise("JSONL: %s has changed since it was opened: line %d is gone", f.path, f.lines[k]) end
  return decode(f.path, f.lines[k], text, self.how, self.columns)
end

-- ---- shards of a stream ----

local Shard = class("accel.data.JSONL.Shard")

function Shard:init(path, o)
  check_columns(o.columns)
  local message
  self.path, self.number, self.columns, self.how = path, 0, o.columns, decoding(o)
  self.stream, message = core.open_stream(path, { limit = o.limit })
  if not self.stream then raise("JSONL: %s", message) end
end

function Shard:next(skip)
  while true do
    local text, message = self.stream:line()
    if message then raise("JSONL: %s", message) end
    if not text then return nil end
    self.number = self.number + 1
    if self.number == 1 and text:sub(1, 3) == BOM then text = text:sub(4) end
    if not is_blank(text) then
      return skip or decode(self.path, self.number, text, self.how, self.columns)
    end
  end
end

function Shard:close() self.stream:close() end

--- One file of a stream, for data.ShardStream.
---@param path string
---@param o table options of the stream
---@return table shard with next and close
function JSONL._open_shard(path, o) return Shard(path, o) end

return JSONL
