-- What the kinds of tables in data_files.lua share: a table of the host in the form of the expected JSON.
local accel = require "accel"
local core = require "accel.file.core"
local values = require "data_values"

local M = {}

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

--- The type of a column without what Parquet does not keep: sizes of offsets, dictionaries, names of list elements.
local function plain_type(t)
  local before
  repeat
    before = t
    t = t:gsub("dictionary<values=([^,<>]+), indices=%w+, ordered=%d>", "%1"):gsub("large_", "")
      :gsub("fixed_size_list(%b<>)%[%d+%]", "list%1"):gsub("<element: ", "<item: "):gsub(" %('[^']*'%)", ""):gsub(" not null", "")
  until t == before
  return t
end

--- A value in the form of the JSON. Bytes and text are both strings in Lua: the type tells.
local function form(v, t)
  if v == nil or v == accel.json.null then return accel.json.null end
  if type(v) == "number" then
    if v ~= v then return "nan" end
    if math.abs(v) == math.huge then return v > 0 and "inf" or "-inf" end
    if math.type(v) == "integer" and (v > 1 << 53 or v < -(1 << 53)) then return tostring(v) end
  elseif type(v) == "string" then
    if t:find "binary" and not t:find "^struct<.*string" then return hex(v) end
  elseif type(v) == "table" then
    local out = {}
    for k, x in pairs(v) do
      local inner = t
      if type(k) == "string" then inner = t:match("[<,] ?" .. k:gsub("%p", "%%%0") .. ": ([%w_]+)") or t end
      out[k] = form(x, inner)
    end
    return out
  end
  return v
end

--- { num_rows, batches or row_groups, columns }, of a list of files with one schema.
function M.read(paths, counted)
  local out = { num_rows = 0, columns = {} }
  local batches = 0
  for _, path in ipairs(paths) do
    local t, message = core.open_table(path)
    if not t then return nil, message end
    local info = t:info()
    out.num_rows, batches = out.num_rows + info.rows, batches + #info.batches
    for i, c in ipairs(info.columns) do
      out.columns[i] = out.columns[i] or { name = c.name, type = c.type, nullable = c.nullable, values = {} }
    end
    for k in ipairs(info.batches) do
      local b
      b, message = t:batch(k)
      if not b then return nil, message end
      for i, c in ipairs(out.columns) do
        for _, v in ipairs(b:column(i, true)) do c.values[#c.values + 1] = form(v, c.type) end
      end
    end
  end
  if counted then out[counted] = batches end
  return out
end

--- Compares with the expected JSON. Columns of the same name are told apart by their position.
function M.compare(got, row, report, want)
  local strict = row.format ~= "parquet"
  if #got.columns ~= #want.columns then return report("columns", #got.columns, #want.columns) end
  for i, w in ipairs(want.columns) do
    local g, name = got.columns[i], "column " .. w.name
    if g.name ~= w.name then report(name, g.name, w.name) end
    local a, b = g.type, w.type
    if not strict then a, b = plain_type(a), plain_type(b) end
    if a ~= b then report(name .. " type", g.type, w.type) end
    if w.nullable ~= nil and g.nullable ~= w.nullable then report(name .. " nullable", g.nullable, w.nullable) end
    values.tree(report, name, g.values, w.values)
  end
  for _, key in ipairs { "num_rows", "batches", "row_groups" } do
    if want[key] and got[key] ~= want[key] then report(key, tostring(got[key]), want[key]) end
  end
end

return M
