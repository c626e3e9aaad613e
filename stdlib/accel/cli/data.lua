--- accel-run data: lists files of records, shows their first samples, measures columns, converts files, and makes token files.
local accel = require "accel"
local command = require "accel.cli.command"
local convert_bytes = require("accel.util.sizes").convert_bytes
local source_of = require "accel.cli.data_source"
local visible = require("accel.util.terminal").visible

local PROGRAM <const> = "accel-run data"

local function print_table(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do
      row[i] = visible(text)
      widths[i] = math.max(widths[i] or 0, #row[i])
    end
  end
  for _, row in ipairs(rows) do
    local line = {}
    for i, text in ipairs(row) do line[i] = i == #row and text or text .. (" "):rep(widths[i] - #text) end
    print((table.concat(line, "  "):gsub("%s+$", "")))
  end
end

local function names_of(text)
  if not text then return nil end
  local list = {}
  for name in text:gmatch "[^,]+" do list[#list + 1] = name end
  return list
end

local function columns_text(columns)
  if not columns then return "-" end
  local parts = {}
  for i, c in ipairs(columns) do
    if i == 9 then
      parts[i] = ("... %d in all"):format(#columns)
      break
    end
    parts[i] = c.name .. ": " .. c.type
  end
  return table.concat(parts, ", ")
end

local function ls(...)
  local o, paths = command.parse({
    name = PROGRAM .. " ls", usage = "FILE ...", summary = "Lists files of records: format, rows, size, columns.",
    { "count", "flag", false, nil, "read files that do not tell their number of rows" },
    { "json", "flag", false, nil, "print JSON" },
    source_of.LIMIT,
  }, 1, math.maxinteger, ...)
  local list, failed = {}, false
  for _, path in ipairs(paths) do
    local source, message = source_of.open(path, o.limit)
    if source and not source.rows and o.count then
      source.rows = 0
      local ok, why = source_of.each(source, nil, function() source.rows = source.rows + 1 end)
      if not ok then source, message = nil, why end
    end
    if source then
      list[#list + 1] = { path = path, format = source.format, codec = source.codec, bytes = source.bytes, rows = source.rows,
        columns = source.columns }
    else
      failed = true
      command.refuse(PROGRAM .. " ls", "%s", message)
    end
  end
  if o.json then
    print(accel.json.encode(accel.json.array(list), { pretty = true }))
  elseif #list > 0 then
    local rows = { { "FILE", "FORMAT", "ROWS", "SIZE", "COLUMNS" } }
    for _, s in ipairs(list) do
      rows[#rows + 1] = { s.path, s.codec and s.format .. ", " .. s.codec or s.format, s.rows and tostring(s.rows) or "-", convert_bytes(s.bytes),
        columns_text(s.columns) }
    end
    print_table(rows)
  end
  return not failed
end

local function head(...)
  local o, paths = command.parse({
    name = PROGRAM .. " head", usage = "FILE", summary = "Prints the first samples of a file, one JSON value per line.",
    { "rows", "int", 5, "N", "number of samples", least = 1 },
    { "columns", "string", nil, "NAME[,NAME...]", "only these columns" },
    source_of.LIMIT,
  }, 1, 1, ...)
  local source, message = source_of.open(paths[1], o.limit)
  if not source then return command.refuse(PROGRAM .. " head", "%s", message) end
  local ok, why = source_of.each(source, names_of(o.columns), function(sample, i)
    print(accel.json.encode(source_of.plain(sample)))
    return i < o.rows
  end)
  return ok or command.refuse(PROGRAM .. " head", "%s", why)
end

-- ---- stats ----

local function add_number(c, v)
  c.least, c.most = math.min(c.least or v, v), math.max(c.most or v, v)
  c.numbers, c.sum = c.numbers + 1, c.sum + v
end

local function add_value(c, v)
  c.count = c.count + 1
  if math.type(v) then add_number(c, v)
  elseif type(v) == "string" or type(v) == "table" and (#v > 0 or next(v) == nil) then
    add_number(c, #v)
    c.sized = true
  end
  local kind = math.type(v) or type(v)
  c.kinds[kind] = (c.kinds[kind] or 0) + 1
end

local function stats(...)
  local o, paths = command.parse({
    name = PROGRAM .. " stats", usage = "FILE",
    summary = "Measures the columns of a file: values, missing ones, minimum, mean and maximum (of text and lists: of their lengths).",
    { "rows", "int", nil, "N", "read the first N samples [all]", least = 1 },
    { "columns", "string", nil, "NAME[,NAME...]", "only these columns" },
    { "json", "flag", false, nil, "print JSON" },
    source_of.LIMIT,
  }, 1, 1, ...)
  local source, message = source_of.open(paths[1], o.limit)
  if not source then return command.refuse(PROGRAM .. " stats", "%s", message) end
  local columns, n = {}, 0
  local ok, why = source_of.each(source, names_of(o.columns), function(sample, i)
    n = i
    if type(sample) ~= "table" then sample = { value = sample } end
    for name, v in next, sample do
      local c = columns[name]
      if not c then
        c = { name = tostring(name), count = 0, numbers = 0, sum = 0, kinds = {} }
        columns[name] = c
      end
      add_value(c, v)
    end
    return i ~= o.rows
  end)
  if not ok then return command.refuse(PROGRAM .. " stats", "%s", why) end
  local list = {}
  for _, c in accel.pairs(columns) do
    local kinds = {}
    for kind in accel.pairs(c.kinds) do kinds[#kinds + 1] = kind end
    list[#list + 1] = { name = c.name, kinds = table.concat(kinds, " "), values = c.count, missing = n - c.count, min = c.least,
      mean = c.numbers > 0 and c.sum / c.numbers or nil, max = c.most, of_lengths = c.sized or false }
  end
  if o.json then
    print(accel.json.encode({ rows = n, columns = accel.json.array(list) }, { pretty = true }))
    return true
  end
  local rows = { { "COLUMN", "KIND", "VALUES", "MISSING", "MIN", "MEAN", "MAX" } }
  local function figure(v) return v == nil and "-" or math.type(v) == "integer" and tostring(v) or ("%.6g"):format(v) end
  for _, c in ipairs(list) do
    rows[#rows + 1] = { c.name, c.kinds .. (c.of_lengths and " (lengths)" or ""), tostring(c.values), tostring(c.missing), figure(c.min),
      figure(c.mean), figure(c.max) }
  end
  print_table(rows)
  print(("%d rows"):format(n))
  return true
end

return function(...)
  return command.dispatch(PROGRAM, "Inspects and converts files of records: Parquet, Arrow, JSON Lines, CSV, tar, TFRecord.", {
    { "ls", "FILE ...", "format, rows, size and columns", ls },
    { "head", "FILE", "the first samples", head },
    { "stats", "FILE", "measure the columns", stats },
    { "convert", "FILE OUT", "write JSON Lines or CSV", require "accel.cli.data_convert" },
    { "tokenize", "FILE ... --tokenizer DIR --output DIR", "write token files", require "accel.cli.data_tokenize" },
  }, ...)
end
