-- Arrow's files and streams, and Feather 2, for data_files.lua: every batch, each value, types and nulls.
local tables = require "data_tables"

local M = {}

function M.read(path, row) return tables.read({ path }, row.format ~= "feather" and "batches" or nil) end

M.compare = tables.compare

return M
