--- accel.open_sharded: the logical tensors of several safetensors files, any box of which can be read.
local accel = require "accel.core"
local core = require "accel.file.core"
local raise = require "accel.util.raise"

--- The *.safetensors of a folder, sorted. On failure returns nil, message, code.
local function files_of(dir)
  local names, message, code = accel.listdir(dir)
  if not names then return nil, message, code end
  local paths = {}
  for _, name in ipairs(names) do
    if name:find "%.safetensors$" and not name:find "^%." then paths[#paths + 1] = dir .. "/" .. name end
  end
  if #paths == 0 then return nil, dir .. ": the folder has no safetensors files", "not_found" end
  return paths
end

---@param where string|string[] a folder, or the paths of the files
---@return table? files
---@return string? message
---@return string? code
return function(where)
  if type(where) ~= "string" and type(where) ~= "table" then
    raise("open_sharded: expected a folder or a list of paths, got %s", type(where))
  end
  local paths, message, code = where, nil, nil
  if type(where) == "string" then
    paths, message, code = files_of(where)
    if not paths then return nil, message, code end
  end
  return core.open_sharded(paths)
end
