-- TFRecord files for data_files.lua: size and SHA-256 of each record, and the Example in it.
local accel = require "accel"
local core = require "accel.file.core"
local sha256 = require("accel.track.core").sha256
local values = require "data_values"

local M = {}

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

local function example_of(record)
  local lists, kinds = core.parse_example(record)
  if not lists then return nil, kinds end
  local out = {}
  for name, list in pairs(lists) do
    if kinds[name] == "bytes" then
      for i, bytes in ipairs(list) do list[i] = hex(bytes) end
    end
    for i, v in ipairs(list) do
      if math.type(v) == "integer" and (v > 1 << 53 or v < -(1 << 53)) then list[i] = tostring(v) end
    end
    out[#out + 1] = { name, kinds[name] and { [kinds[name]] = list } or {} }
  end
  table.sort(out, function(a, b) return a[1] < b[1] end)
  return out
end

function M.read(path, row)
  local out = {}
  for record in accel.data.TFRecord(path, { raw = true }):iterate(0, 0) do
    local example, why = example_of(record)
    if row.example == false then example = accel.json.null end
    if not example then return nil, ("%s: %s"):format(path, why) end
    out[#out + 1] = { size = #record, sha256 = sha256(record), example = example }
  end
  return { records = out }
end

function M.compare(got, _, report, want) values.tree(report, "records", got, want) end

return M
