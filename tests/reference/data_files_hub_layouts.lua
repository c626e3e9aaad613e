-- Folders of tables as the Hugging Face hub lays them out, for data_files.lua: splits, and the values of each column. CSV has text only, so
-- numbers are compared as text there.
local accel = require "accel"
local values = require "data_values"

local M = {}

function M.read(path, row)
  local out = {}
  for split, set in pairs(accel.data.load_dataset(path, { name = row.config_name })) do
    local list = {}
    for i = 1, #set do list[i] = set:get(i) end
    out[split] = list
  end
  return out
end

function M.compare(got, row, report, want)
  local is_text = row.file:find "csv"
  for split, w in pairs(want.splits) do
    local list = got[split] or {}
    if #list ~= w.num_rows then report(split, #list, w.num_rows) end
    for _, c in ipairs(w.columns) do
      for i, value in ipairs(c.values) do
        local v = (list[i] or {})[c.name]
        if v == nil then v = accel.json.null end
        if is_text and type(value) == "number" then v = tonumber(v) end
        values.tree(report, ("%s/%s/%d"):format(split, c.name, i), v, value)
      end
    end
  end
  for split in pairs(got) do
    if not want.splits[split] then report("split " .. split, "it is there", "missing") end
  end
end

return M
