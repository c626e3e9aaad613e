-- Folders that save_to_disk of Hugging Face's datasets wrote, for data_files.lua.
local accel = require "accel"
local tables = require "data_tables"

local M = {}

function M.read(path)
  local found, out = accel.data.Arrow.load_from_disk(path), { splits = {} }
  for name, set in pairs(found.paths and { [""] = found } or found) do
    local message
    out.splits[name], message = tables.read(set.paths)
    if not out.splits[name] then return nil, message end
  end
  return out
end

function M.compare(got, row, report, want)
  for name, split in pairs(want.splits) do
    if got.splits[name] then tables.compare(got.splits[name], row, report, split) else report("split " .. name, "missing", "it is read") end
  end
end

return M
