--- data.CSV(path, {header = true, delimiter = ",", columns = ..., types = ...}): rows of a CSV file (RFC 4180) as
--- tables by column name. Only the positions of the rows are kept in memory. A row is read on request.
---
---   local rows = data.CSV("train.csv", { types = { label = "class" } })
---   print(#rows, rows:get(1).text, rows:get(1).label, rows.classes.label[1])
---
--- Types of a column: "string" (default), "number" (a float), "integer", "class" (an id from 0, in the sorted order of
--- the values. rows.classes holds the names). Fields may be quoted, with quotes doubled inside, and hold delimiters and
--- line ends then.
--- Line ends are LF or CRLF, or CR alone in a whole file. A byte order mark and empty lines are skipped. Text must be UTF-8. Files may
--- be compressed (.gz .zst .xz .bz2 .lz4), and are unpacked into memory then. `limit` is the bytes that a row may have (0: 64 MiB), and a
--- compressed file when unpacked (0: 128 MiB and 64 times the size of the file).
local check = require "accel.util.check"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local open_unpacked = require("accel.file.core").open_unpacked

local MAX_ROW <const> = 64 << 20 -- bytes: an unclosed quote or a line without an end stops here, not in all of memory
local RAISE_LIMIT <const> = "set the option limit (bytes) if you trust the file"
local BLOCK = 1 << 20
local QUOTE = 34
local NOT_UTF8 <const> = "text that is not UTF-8; convert the file (iconv -f LATIN1 -t UTF-8)"

---@class accel.data.CSV : accel.data.Dataset
---@field columns string[]
---@field classes table<string, string[]> names of the columns of type "class"
--- example: accel.data.CSV.open("no such file") == nil --> true
local CSV = Dataset:extend("accel.data.CSV")

local MAX_COLUMNS <const> = 1 << 16

--- Reads a quoted field that begins at line[at]. Returns the field, the position after its closing quote, the line that
--- holds it and the number of lines read on. On a quote that is never closed, returns nil, message.
local function read_quoted(file, line, at, most)
  local parts, more, bytes = {}, 0, #line
  at = at + 1
  while true do
    local close = line:find('"', at, true)
    if not close then
      parts[#parts + 1] = line:sub(at)
      line, at = file:read "L", 1
      bytes = bytes + (line and #line or 0)
      if not line then return nil, "the quote that opens here is never closed" end
      if bytes > most then return nil, ("the quote that opens here is not closed within %d bytes (limit)"):format(most) end
      if not utf8.len(line) then return nil, NOT_UTF8 end
      more = more + 1
    elseif line:byte(close + 1) == QUOTE then
      parts[#parts + 1] = line:sub(at, close)
      at = close + 2
    else
      parts[#parts + 1] = line:sub(at, close - 1)
      return table.concat(parts), close + 1, line, more
    end
  end
end

--- Reads the fields of the row at the file's place. Returns fields and the number of its lines (no fields for an empty
--- line). nil at the end. On a malformed row, nil, message and the line counted from the row's first.
local function read_row(file, delimiter, most)
  local line = file:read "L"
  if not line then return nil end
  if #line > most then return nil, ("a line of %d bytes, more than the limit of %d; %s"):format(#line, most, RAISE_LIMIT), 1 end
  if line:find "^\r?\n?$" then return {}, 1 end
  if not utf8.len(line) then return nil, NOT_UTF8, 1 end
  local fields, at, lines = {}, 1, 1
  while at do
    local field
    if line:byte(at) == QUOTE then
      local after, last, more
      field, after, last, more = read_quoted(file, line, at, most)
      if not field then return nil, after, lines end
      line, lines = last, lines + more
      if line:sub(after, after) == delimiter then
        at = after + 1
      elseif line:find("^\r?\n?$", after) then
        at = nil
      else
        return nil, "text after a closing quote (quotes inside a quoted field are doubled)", lines
      end
    else
      local stop = line:find(delimiter, at, true)
      if stop then
        field, at = line:sub(at, stop - 1), stop + 1
      else
        field, at = line:sub(at):gsub("\r?\n?$", ""), nil
      end
    end
    if #fields == MAX_COLUMNS then return nil, ("more than %d columns"):format(MAX_COLUMNS), lines end
    fields[#fields + 1] = field
  end
  return fields, lines
end

--- Value of a field. nil if the text does not have the type, and the expected form.
local converters = {
  string = function(text) return text end,
  class = function(text) return text end,
  number = function(text)
    local value = tonumber(text)
    return value and value + 0.0, "a number"
  end,
  integer = function(text) return math.tointeger(tonumber(text)), "an integer" end,
}

local function failed(path, line, fmt, ...) return nil, ("%s:%d: %s"):format(path, line, fmt:format(...)), "format" end

--- Raises when `types` names an unknown column or type.
local function check_types(path, columns, types)
  local known = {}
  for _, name in ipairs(columns) do known[name] = true end
  for name, kind in next, types do
    if not known[name] then
      local near = nearest(tostring(name), known)
      raise("CSV: %s has no column '%s'%s", path, tostring(name), near and ("; did you mean '%s'?"):format(near) or "")
    elseif not converters[kind] then
      raise("CSV: type of column '%s' must be string, number, integer or class, got %s", name, check.shown(kind))
    end
  end
end

local function check_columns(columns)
  if columns == nil then return end
  if type(columns) ~= "table" then raise("CSV: columns must be a list of names, got %s", check.shown(columns)) end
  for i, name in ipairs(columns) do
    if type(name) ~= "string" then raise("CSV: columns[%d] must be a string, got %s", i, check.shown(name)) end
  end
end

local function duplicate(columns)
  local seen = {}
  for _, name in ipairs(columns) do
    if seen[name] then return name end
    seen[name] = true
  end
end

--- Whether every line of the file is short enough to be read at once. nil for a device or a folder. Leaves the file at
--- its begin.
local function has_lines(file, most)
  local size = file:seek "end"
  if not size or not file:seek "set" then return nil end
  if size == 0 then return not file:read(0) or nil end -- a device has something to read
  local without = 0 -- bytes since the block that last had a line end
  while size > most do
    local block = file:read(BLOCK)
    if not block then break end
    without = block:find("\n", 1, true) and 0 or without + #block
    if without > most then return false end
  end
  if not file:seek "set" then return nil end
  return file:read(0) ~= nil or nil
end

--- The content of a file whose lines end with CR alone, as files of old Macintosh programs do, with the methods of a file
--- that are used here.
local old_macintosh = {}
old_macintosh.__index = old_macintosh

function old_macintosh:read(form)
  local at = self.at
  if at > #self.text then return nil end
  if form ~= "L" then
    self.at = at + form
    return self.text:sub(at, at + form - 1)
  end
  self.at = (self.text:find("\n", at, true) or #self.text) + 1
  return self.text:sub(at, self.at - 1)
end

function old_macintosh:seek(whence, offset)
  if whence == "set" then self.at = (offset or 0) + 1 end
  return self.at - 1
end

function old_macintosh:close() self.text = "" end

--- The file itself, or its content with LF, if it has no LF and its lines end with CR. nil, message for another encoding.
local function with_lines(file, path, most)
  local head = file:read(BLOCK) or ""
  if head:find "^\xFF\xFE" or head:find "^\xFE\xFF" then
    return nil, path .. ": UTF-16 text; convert the file (iconv -f UTF-16 -t UTF-8)"
  end
  local old = head:find("\r", 1, true) and not head:find("\n", 1, true)
  if old then old = head .. (file:read(math.max(0, most - BLOCK)) or "") end
  if old and not old:find("\n", 1, true) and not file:read(1) then
    file:close()
    return setmetatable({ text = old:gsub("\r", "\n"), at = 1 }, old_macintosh)
  end
  file:seek "set"
  return file
end

--- Names of the classes and their ids, from the sets of values.
local function set_classes(self, seen)
  self.classes, self.ids = {}, {}
  for name, kind in next, self.types do
    if kind == "class" then
      local names, ids = {}, {}
      for value in next, seen[name] or {} do names[#names + 1] = value end
      table.sort(names)
      for i, value in ipairs(names) do ids[value] = i - 1 end
      self.classes[name], self.ids[name] = names, ids
    end
  end
end

--- Determines the columns. Returns true and the number of header lines. On failure returns nil, message, code.
local function read_header(self, o)
  local line, columns = 1, o.columns
  if o.header then
    local fields, lines, at
    repeat
      line = line + (lines or 0)
      fields, lines, at = read_row(self.file, self.delimiter, self.most)
    until not fields or #fields > 0
    if not fields then
      return failed(self.path, at and line + at - 1 or 1, "%s",
        lines or "the file is empty; a header line was expected")
    end
    if columns and #columns ~= #fields then
      return failed(self.path, line, "the header names %d columns, `columns` %d", #fields, #columns)
    end
    columns, line = columns or fields, line + lines
  end
  if columns then
    local twice = duplicate(columns)
    if twice then return failed(self.path, 1, "two columns are called '%s'", twice) end
    check_types(self.path, columns, self.types)
  end
  self.columns = columns
  return line
end

--- Goes over all rows from `line` on: their places, number of fields, values. True, or nil, message, code.
local function scan(self, line)
  local seen = {} -- of columns of classes
  self.offsets = {}
  while true do
    local offset = self.file:seek()
    local fields, lines, at = read_row(self.file, self.delimiter, self.most)
    if not fields then
      if not lines then break end
      return failed(self.path, line + at - 1, "%s", lines)
    end
    if #fields > 0 then
      if not self.columns then
        self.columns = {}
        for i = 1, #fields do self.columns[i] = ("column%d"):format(i) end
        check_types(self.path, self.columns, self.types)
      end
      local columns = self.columns
      if #fields ~= #columns then
        return failed(self.path, line, "%d fields, expected %d (%s)", #fields, #columns, table.concat(columns, ", "))
      end
      for i, name in ipairs(columns) do
        local kind = self.types[name] or "string"
        local value, what = converters[kind](fields[i])
        if value == nil then return failed(self.path, line, "%s is '%s', not %s", name, fields[i], what) end
        if kind == "class" then
          seen[name] = seen[name] or {}
          seen[name][value] = true
        end
      end
      self.offsets[#self.offsets + 1] = offset
    end
    line = line + lines
  end
  self.columns = self.columns or {}
  set_classes(self, seen)
  return true
end

--- Fills a new instance. Returns true. On failure returns nil, message, code.
local function load(self, path, opts)
  local o = options("CSV", opts, { header = true, delimiter = ",", columns = options.none, types = {}, limit = 0 })
  if #o.delimiter ~= 1 or o.delimiter:find '["\r\n]' then
    raise("CSV: delimiter must be one character, got '%s'", o.delimiter)
  end
  check_columns(o.columns)
  if type(path) ~= "string" then raise("CSV: path must be a string, got %s", check.shown(path)) end
  local file, message, code = open_unpacked(path, { limit = o.limit })
  if not file then return nil, message, code end
  self.path, self.file, self.delimiter, self.types = path, file, o.delimiter, o.types
  self.limit, self.most = o.limit, o.limit > 0 and o.limit or MAX_ROW
  local ok
  local lines = has_lines(file, self.most)
  if lines == nil then
    ok, message, code = nil, path .. ": not a regular file", "io"
  elseif not lines then
    ok, message, code = nil, ("%s: more than %d bytes without a line end; %s"):format(path, self.most, RAISE_LIMIT), "format"
  else
    file:seek "set"
    ok, message = with_lines(file, path, self.most)
    if ok then
      file, self.file = ok, ok
      if file:read(3) ~= "\xEF\xBB\xBF" then file:seek "set" end
      ok, message, code = read_header(self, o)
      if ok then ok, message, code = scan(self, ok) end
    else
      code = "format"
    end
  end
  if not ok then file:close() end
  return ok, message, code
end

--- The data set. nil, message, code if the file cannot be read or is malformed.
---@param path string
---@param opts? {header: boolean?, delimiter: string?, columns: string[]?, types: table<string, string>?, limit: integer?}
---@return accel.data.CSV? set
---@return string? message
---@return string? code
function CSV.open(path, opts, ...)
  check.surplus("open", ...)
  local self = setmetatable({}, CSV)
  local ok, message, code = load(self, path, opts)
  if not ok then return nil, message, code end
  return self
end

---@param path string
---@param opts? {header: boolean?, delimiter: string?, columns: string[]?, types: table<string, string>?, limit: integer?}
function CSV:init(path, opts)
  local ok, message = load(self, path, opts)
  if not ok then raise("CSV: %s", message) end
end

function CSV:len() return #self.offsets end

local STATE <const> = { "path", "delimiter", "types", "columns", "offsets", "classes", "ids", "limit", "most" }

--- The file, for states of loaders: accel.data.fingerprint.
---@return string
function CSV:fingerprint() return fingerprint.files { self.path } end

--- For workers: the same file with its known layout, so that it is not scanned again.
function CSV:worker_spec()
  local state = {}
  for _, key in ipairs(STATE) do state[key] = self[key] end
  return { module = "accel.data.csv:reopen", args = { state } }
end

--- The object described by worker_spec.
---@param state table
---@return accel.data.CSV
function CSV.reopen(state)
  local self = setmetatable(state, CSV)
  local message
  self.file, message = open_unpacked(self.path, { limit = self.limit })
  if self.file then self.file, message = with_lines(self.file, self.path, self.most) end
  if not self.file then raise("CSV: %s", message) end
  return self
end

--- Row i as a table by column name.
---@param i integer
---@return table<string, any>
function CSV:get(i)
  self:check_position(i)
  if not self.file:seek("set", self.offsets[i]) then raise("CSV: %s can no longer be read", self.path) end
  local fields, message = read_row(self.file, self.delimiter, self.most)
  if not fields or #fields ~= #self.columns then
    raise("CSV: %s has changed since it was opened: row %d %s", self.path, i,
      fields and "is another one" or message or "is gone")
  end
  local row = {}
  for k, name in ipairs(self.columns) do
    local value = converters[self.types[name] or "string"](fields[k])
    if self.ids[name] then value = self.ids[name][value] end
    if value == nil then
      raise("CSV: %s has changed since it was opened: row %d has the %s '%s'", self.path, i, name, fields[k])
    end
    row[name] = value
  end
  return row
end

--- All values of a column.
---@param name string
---@return any[]
function CSV:column(name)
  local found, out = false, {}
  for _, column in ipairs(self.columns) do found = found or column == name end
  if not found then
    raise("CSV: %s has no column '%s' (it has %s)", self.path, tostring(name), table.concat(self.columns, ", "))
  end
  for i = 1, self:len() do out[i] = self:get(i)[name] end
  return out
end

return CSV
