--- Trees of folders, on LuaFileSystem: removing one, and finding its files. Links are never followed. Used by commands that work in a
--- temporary folder, and by the generator of the reference pages.
local lfs = require "lfs"

local M = {}

--- The names in a folder, sorted, without "." and "..". Raises if it cannot be read.
---@param path string
---@return string[]
function M.names(path)
  local list = {}
  for name in lfs.dir(path) do
    if name ~= "." and name ~= ".." then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- Removes a file, or a folder with all that is in it. A link is removed, not the folder to which it points.
---@param path string
---@return boolean? true
---@return string? message if something stays
function M.remove(path)
  if lfs.symlinkattributes(path, "mode") == "directory" then
    local ok, names = pcall(M.names, path)
    if not ok then return nil, names end
    for _, name in ipairs(names) do
      local removed, why = M.remove(path .. "/" .. name)
      if not removed then return nil, why end
    end
  end
  return os.remove(path)
end

--- Paths of the files below a folder whose names end so, sorted by path.
---@param root string
---@param ending string ".lua"
---@return string[]
function M.files(root, ending)
  local list = {}
  local function visit(folder)
    for _, name in ipairs(M.names(folder)) do
      local path = folder .. "/" .. name
      if lfs.symlinkattributes(path, "mode") == "directory" then visit(path)
      elseif name:sub(-#ending) == ending then list[#list + 1] = path end
    end
  end
  visit(root)
  table.sort(list)
  return list
end

return M
