--- Whether an output can be written, for programs that find this out before their work and not after it. The disk stays as it is:
--- the writer's temporary file is given up. Used by the programs of accel.cli that write after long work, and by examples.
local lfs = require "lfs"
local writer = require "accel.util.writer"

local M = {}

--- True if a file can be written or replaced at this path. nil and a message with the path otherwise.
--- example: return require "accel.util.writable".file "/none/trace.json" --> nil, "/none/trace.json: No such file or directory"
---@param path string
---@return true?
---@return string? why
function M.file(path)
  if lfs.attributes(path, "mode") == "directory" then return nil, path .. ": Is a directory" end
  local file, why = writer.create(path)
  if not file then return nil, ("%s: %s"):format(path, why:match "([^:]*)$":match "^%s*(.-)$") end
  file:close()
  return true
end

--- True if a folder can be written at this path, or made there with its parents. nil and a message with the path otherwise.
---@param path string
---@return true?
---@return string? why
function M.folder(path)
  local at = path
  while lfs.attributes(at, "mode") == nil do
    local above = at:gsub("/+$", ""):match "^(.*)/[^/]*$"
    at = above == nil and "." or above == "" and "/" or above
  end
  if lfs.attributes(at, "mode") ~= "directory" then return nil, ("%s: %s is not a folder"):format(path, at) end
  local file, why = writer.create(at .. "/accel-output")
  if not file then return nil, ("%s: %s"):format(path, why:match "([^:]*)$":match "^%s*(.-)$") end
  file:close()
  return true
end

return M
