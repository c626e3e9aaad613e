--- data.CSV(path, {header = true, delimiter = ",", columns = ..., types = ...}): rows of a CSV file (RFC 4180) as tables by column
--- name. Only the places of the rows are kept in memory; a row is read when it is asked for.
---
---   local rows = data.CSV("train.csv", { types = { label = "class" } })
---   print(#rows, rows:get(1).text, rows:get(1).label, rows.classes.label[1])
---
--- Types of a column: "string" (default), "number", "integer", "class" (an id from 0, in the sorted order of what occurs; rows.classes
--- holds the names). Fields may be quoted, with quotes doubled inside, and hold delimiters and line ends then. Line ends are LF or CRLF;
--- a byte order mark is skipped, as are empty lines.
local Dataset = require "accel.data.dataset"
local options = require "accel.util.options"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local MAX_ROW = 64 << 20 -- bytes: an unclosed quote ends here, not in all of memory

---@class accel.data.CSV : accel.data.Dataset
---@field columns string[]
---@field classes table<string, string[]> names of the columns of type "class"
--- example: accel.data.CSV.open("no such file") == nil --> true
local CSV = Dataset:extend("accel.data.CSV")

--- Reads the fields of the row at the file's place. Returns fields and the number of lines it took; nil at the end; nil, message
--- and the line counted from the row's first when it is malformed.
local function read_row(file, delimiter)
  local line = file:read "L"
  if not line then return nil end
  local fields, at, lines, bytes = {}, 1, 1, #line
  while true do
    local field
    if line:byte(at) == 34 then -- a quote
      local parts, opened = {}, lines
      at = at + 1
      while true do
        local close = line:find('"', at, true)
        if not close then
          parts[#parts + 1] = line:sub(at)
          line, at = file:read "L", 1
          bytes = bytes + (line and #line or 0)
          if not line or bytes > MAX_ROW then return nil, "the quote that opens here is never closed", opened end
          lines = lines + 1
        elseif line:byte(close + 1) == 34 then
          parts[#parts + 1] = line:sub(at, close)
          at = close + 2
        else
          parts[#parts + 1] = line:sub(at, close - 1)
          at = close + 1
          break
        end
      end
      field = table.concat(parts)
      local rest = line:sub(at)
      if rest ~= "" and rest:sub(1, 1) ~= delimiter and not rest:find "^\r?\n$" and rest ~= "\r" then
        return nil, "text after a closing quote (quotes inside a quoted field are doubled)", lines
      end
      if rest:sub(1, 1) ~= delimiter then at = nil end
    else
      local stop = line:find(delimiter, at, true)
      if stop then
        field, at = line:sub(at, stop - 1), stop
      else
        field, at = line:sub(at):gsub("\r?\n$", ""), nil
      end
    end
    fields[#fields + 1] = field
    if not at then return fields, lines end
    at = at + 1
  end
end

local converters = {
  string = function(text) return text end,
  number = function(text) return tonumber(text), "a number" end,
  integer = function(text) return math.tointeger(tonumber(text)), "an integer" end,
}

local function failed(path, line, fmt, ...) return nil, ("%s:%d: %s"):format(path, line, fmt:format(...)), "format" end

--- Names, types and classes of the columns, once all rows were seen.
local function set_columns(self, columns, types, seen)
  local known = {}
  for _, name in ipairs(columns) do
    if known[name] then raise("CSV: %s: two columns are called '%s'", self.path, name) end
    known[name] = true
  end
  for name in next, types do
    if not known[name] then
      local near = nearest(name, known)
      raise("CSV: %s has no column '%s'%s", self.path, tostring(name), near and ("; did you mean '%s'?"):format(near) or "")
    end
  end
  self.columns, self.types, self.classes, self.ids = columns, types, {}, {}
  for name, set in next, seen do
    local names, ids = {}, {}
    for value in next, set do names[#names + 1] = value end
    table.sort(names)
    for i, value in ipairs(names) do ids[value] = i - 1 end
    self.classes[name], self.ids[name] = names, ids
  end
end

--- Fills a new instance; true, or nil, message, code.
local function load(self, path, opts)
  local o = options("CSV", opts, { header = true, delimiter = ",", columns = options.none, types = {} })
  if #o.delimiter ~= 1 or o.delimiter:find '["\r\n]' then raise("CSV: delimiter must be one character, got '%s'", o.delimiter) end
  local file, message = io.open(path, "rb")
  if not file then return nil, message, "not_found" end
  if not file:seek("set", 0) or not file:read(0) and file:seek "end" ~= 0 then return nil, path .. ": not a regular file", "io" end
  file:seek "set"
  if file:read(3) ~= "\xEF\xBB\xBF" then file:seek "set" end
  local line, columns = 1, o.columns
  if o.header then
    local fields, lines, at = read_row(file, o.delimiter)
    if not fields then return failed(path, at or 1, "%s", lines or "the file is empty; a header line was expected") end
    line = line + lines
    if columns and #columns ~= #fields then
      return failed(path, 1, "the header names %d columns, `columns` %d", #fields, #columns)
    end
    columns = columns or fields
  end
  self.path, self.file, self.delimiter, self.offsets = path, file, o.delimiter, {}
  local seen = {} -- of columns of classes
  while true do
    local offset = file:seek()
    local fields, lines, at = read_row(file, o.delimiter)
    if not fields then
      if not lines then break end
      return failed(path, line + at - 1, "%s", lines)
    end
    if #fields > 1 or fields[1] ~= "" then
      if not columns then
        columns = {}
        for i = 1, #fields do columns[i] = ("column%d"):format(i) end
      end
      if #fields ~= #columns then
        return failed(path, line, "%d fields, expected %d (%s)", #fields, #columns, table.concat(columns, ", "))
      end
      for i, name in ipairs(columns) do
        local kind = o.types[name] or "string"
        if kind == "class" then
          seen[name] = seen[name] or {}
          seen[name][fields[i]] = true
        elseif converters[kind] then
          local value, what = converters[kind](fields[i])
          if value == nil then return failed(path, line, "%s is '%s', not %s", name, fields[i], what) end
        else
          raise("CSV: type of column '%s' must be string, number, integer or class, got '%s'", name, tostring(kind))
        end
      end
      self.offsets[#self.offsets + 1] = offset
    end
    line = line + lines
  end
  set_columns(self, columns or {}, o.types, seen)
  return true
end

--- The data set; nil, message, code when the file cannot be read or is malformed.
---@param path string
---@param opts? {header: boolean?, delimiter: string?, columns: string[]?, types: table<string, string>?}
function CSV.open(path, opts)
  local self = setmetatable({}, CSV)
  local ok, message, code = load(self, path, opts)
  if not ok then return nil, message, code end
  return self
end

function CSV:init(path, opts)
  local ok, message = load(self, path, opts)
  if not ok then raise("CSV: %s", message) end
end

function CSV:len() return #self.offsets end

--- Row i as a table by column name.
---@param i integer
function CSV:get(i)
  self:check_position(i)
  if not self.file:seek("set", self.offsets[i]) then raise("CSV: %s can no longer be read", self.path) end
  local fields, message = read_row(self.file, self.delimiter)
  if not fields or #fields ~= #self.columns then
    raise("CSV: %s has changed since it was opened: row %d %s", self.path, i, message or "is another one")
  end
  local row = {}
  for k, name in ipairs(self.columns) do
    local kind = self.types[name] or "string"
    if kind == "class" then
      row[name] = self.ids[name][fields[k]]
    else
      row[name] = (converters[kind](fields[k]))
    end
  end
  return row
end

--- All values of a column.
---@param name string
---@return any[]
function CSV:column(name)
  local out = {}
  for i = 1, self:len() do
    local value = self:get(i)[name]
    if value == nil then raise("CSV: %s has no column '%s' (it has %s)", self.path, tostring(name), table.concat(self.columns, ", ")) end
    out[i] = value
  end
  return out
end

return CSV
