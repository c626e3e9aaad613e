-- CSV files for data_files.lua: the cells as text. Types are another library's (pandas') and are not compared.
local accel = require "accel"
local values = require "data_values"

local M = {}

function M.read(path, row)
  local set, message = accel.data.CSV.open(path, { header = row.must == "refuse", delimiter = row.args and row.args.sep or nil })
  if not set then return nil, message end
  local out = {}
  for i = 1, #set do
    local cells = {}
    for k, name in ipairs(set.columns) do cells[k] = set:get(i)[name] end
    out[i] = cells
  end
  return out
end

function M.compare(got, _, report, want) values.tree(report, "rows", got, want.rows) end

return M
