--- Any file of records that accel reads, for accel-run data: its format by content and name, its size, and its samples in order.
local accel = require "accel"
local core = require "accel.file.core"
local lfs = require "lfs"

local M = {}

--- The row of an action's options for it.
M.LIMIT = { "limit", "int", nil, "BYTES",
  "most bytes of content in memory: of a record, or of a compressed file [128 MiB plus 64 times the file's size]", least = 0 }

---@class accel.cli.DataSource
---@field path string
---@field format string "parquet", "arrow", "jsonl", "json", "csv", "tar", "tfrecord", "saved dataset"
---@field codec string? of a compressed file
---@field bytes integer
---@field rows integer? if the file tells
---@field columns table[]? names and types, if the file tells
---@field each fun(columns: string[]?): fun(): any samples, nil at the end

local function stream(format, path, limit)
  return function(columns)
    local opts = { columns = columns, nulls = false, limit = limit }
    return (accel.data.ShardStream(format, path, opts):iterate(0, 0))
  end
end

local function rows_of(set)
  return function(columns)
    local view, i = columns and set:select_columns(columns) or set, 0
    return function()
      i = i + 1
      return i <= #view and view:get(i) or nil
    end
  end
end

--- Format of a file by its first bytes, or by its name.
local function format_of(path, head)
  local name = path:lower():gsub("%.[gxlbz][zst4][2t]?$", ""):gsub("%.zst$", ""):gsub("%.lzma$", "")
  if head:sub(1, 4) == "PAR1" then return "parquet" end
  if head:sub(1, 6) == "ARROW1" or head:sub(1, 4) == "\xff\xff\xff\xff" then return "arrow" end
  if head:sub(258, 262) == "ustar" or name:find "%.tar$" or name:find "%.tgz$" then return "tar" end
  if name:find "%.tfrecords?$" then return "tfrecord" end
  if name:find "%.csv$" or name:find "%.tsv$" then return "csv" end
  if name:find "%.json$" and head:find "^[\xEF\xBB\xBF%s]*%[" then return "json" end
  if name:find "%.jsonl$" or name:find "%.ndjson$" or name:find "%.json$" or head:find "^%s*[{%[]" then return "jsonl" end
end

local function saved(path, limit)
  local found = accel.data.Arrow.load_from_disk(path, { limit = limit })
  local list = found.paths and { found } or {}
  for _, set in accel.pairs(found.paths and {} or found) do list[#list + 1] = set end
  local rows, bytes = 0, 0
  for _, set in ipairs(list) do
    rows = rows + #set
    for _, p in ipairs(set.paths) do bytes = bytes + (lfs.attributes(p, "size") or 0) end
  end
  local set = #list == 1 and list[1] or accel.data.ConcatDataset(list)
  return { path = path, format = "saved dataset", bytes = bytes, rows = rows, columns = list[1].columns, each = rows_of(set) }
end

local function describe(path, limit)
  local mode = lfs.attributes(path, "mode")
  if mode == "directory" then return saved(path, limit) end
  local content, message = core.open_stream(path)
  if not content then error(message, 0) end
  local source = { path = path, codec = content:codec(), bytes = content:size() }
  local head, why = content:read(512)
  content:close()
  if why then error(why, 0) end
  source.format = format_of(path, head or "")
  if source.format == "parquet" or source.format == "arrow" then
    local t, wrong = core.open_table(path, { limit = limit })
    if not t then error(wrong, 0) end
    local info = t:info()
    source.rows, source.columns, source.batches = info.rows, info.columns, #info.batches
    source.each = stream(source.format, path, limit)
  elseif source.format == "csv" then
    local set, wrong = accel.data.CSV.open(path, { delimiter = path:lower():find "%.tsv" and "\t" or nil, limit = limit })
    if not set then error(wrong, 0) end
    source.rows, source.columns = #set, {}
    for i, name in ipairs(set.columns) do source.columns[i] = { name = name, type = "text" } end
    source.each = rows_of(set)
  elseif source.format == "json" then
    local set = accel.data.JSON(path, { limit = limit })
    source.rows, source.each = #set, rows_of(set)
  elseif source.format == "jsonl" then
    source.each = stream("jsonl", path, limit)
  elseif source.format == "tar" then
    source.each = function(columns) return (accel.data.WebDataset(path, { fields = columns, limit = limit }):iterate(0, 0)) end
  elseif source.format == "tfrecord" then
    source.each = function() return (accel.data.TFRecord(path, { limit = limit }):iterate(0, 0)) end
  else
    error(path .. ": unknown format; expected Parquet, Arrow, JSON Lines, CSV, tar, TFRecord, or a folder of save_to_disk", 0)
  end
  return source
end

--- The source of a path. nil and the error if it cannot be read.
---@param path string
---@param limit? integer option `limit` of the readers
---@return accel.cli.DataSource? source
---@return string? message
function M.open(path, limit)
  local ok, result = pcall(describe, path, limit)
  if ok then return result end
  return nil, (tostring(result):gsub("^[^:]+:%d+: ", ""))
end

--- Goes over the samples: fn(sample, i) until it returns false. Returns true, or nil and the error.
---@param source accel.cli.DataSource
---@param columns string[]?
---@param fn fun(sample: any, i: integer): boolean?
---@return boolean? done
---@return string? message
function M.each(source, columns, fn)
  local ok, err = pcall(function()
    local i = 0
    for sample in source.each(columns) do
      i = i + 1
      if fn(sample, i) == false then return end
    end
  end)
  if ok then return true end
  if type(err) == "table" and err.code == "interrupted" then error(err, 0) end
  return nil, (tostring(err):gsub("^[^:]+:%d+: ", ""))
end

--- A value that JSON can hold: bytes that are not UTF-8, NaN and infinity become text.
---@param v any
---@return any
function M.plain(v)
  if type(v) == "string" then return utf8.len(v) and v or ("<%d bytes>"):format(#v) end
  if type(v) == "number" and (v ~= v or v == math.huge or v == -math.huge) then return tostring(v) end
  if type(v) ~= "table" then return v end
  local out = {}
  for k, x in next, v do out[k] = M.plain(x) end
  return setmetatable(out, getmetatable(v))
end

return M
