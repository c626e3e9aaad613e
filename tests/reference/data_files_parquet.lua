-- Parquet for data_files.lua: every row group, each value, nulls, and the types that Parquet itself keeps.
local tables = require "data_tables"

local M = {}

function M.read(path) return tables.read({ path }, "row_groups") end

M.compare = tables.compare

return M
