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

--- The types between the outermost brackets of a type, "map<string, list<item: binary>>" -> string, list<item: binary>.
local function parts_of(t)
  local inside, parts, depth, from = t:match "^[%w_]+<(.*)>[^>]*$", {}, 0, 1
  for i = 1, #(inside or "") + 1 do
    local c = (inside .. ","):sub(i, i)
    if c:find "[<%[(]" then depth = depth + 1 elseif c:find "[>%])]" then depth = depth - 1 end
    if c == "," and depth == 0 then
      parts[#parts + 1] = inside:sub(from, i - 1):match "^%s*(.-)%s*$"
      from = i + 1
    end
  end
  return parts
end

--- The types of the values in a value of type t: by field of a struct, or one for all.
local function inner_types(t)
  local parts = parts_of(t)
  if t:find "^struct<" then
    local by = {}
    for _, part in ipairs(parts) do
      local name, of = part:match "^(.-): (.*)$"
      by[name] = of
    end
    return function(k) return by[k] end
  end
  if t:find "^map<" then return function() return parts end end -- of a pair
  local of = (parts[1] or t):gsub("^[%w_]+: ", "")
  return function() return of end
end

--- A value in the form of the JSON. Bytes and text are both strings in Lua: the type tells.
local function form(v, t)
  t = t or ""
  if v == nil or v == accel.json.null then return accel.json.null end
  if type(v) == "number" then
    if v ~= v then return "nan" end
    if math.abs(v) == math.huge then return v > 0 and "inf" or "-inf" end
    if math.type(v) == "integer" and (v > 1 << 53 or v < -(1 << 53)) then return tostring(v) end
  elseif type(v) == "string" then
    if t:find "^%w*_?binary" or t:find "^fixed_size_binary" or t:find "^dictionary<values=%w*_?binary" then return hex(v) end
  elseif type(v) == "table" then
    local out, inner = {}, inner_types(t)
    for k, x in pairs(v) do
      local of = inner(k)
      if type(of) == "table" then out[k] = { form(x[1], of[1]), form(x[2], of[2]) } else out[k] = form(x, of) end
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
