--- Modules below a module by dotted names, as families store them: paths.put(layer, "attn.attention", module).
local nn = require "accel.nn"

local M, split = {}, {}

local function parts(path)
  local found = split[path]
  if not found then
    found = {}
    for part in path:gmatch "[^.]+" do found[#found + 1] = part end
    split[path] = found
  end
  return found
end

--- Registers a module under a path. Modules on the way are made.
---@param module accel.nn.Module
---@param path string
---@param value accel.nn.Module
function M.put(module, path, value)
  local names = parts(path)
  for i = 1, #names - 1 do
    if not module[names[i]] then module[names[i]] = nn.Module() end
    module = module[names[i]]
  end
  module[names[#names]] = value
end

--- The module that a path leads to.
---@param module accel.nn.Module
---@param path string
---@return accel.nn.Module
function M.get(module, path)
  local names = parts(path)
  for i = 1, #names do module = module[names[i]] end
  return module
end

--- The module that a path leads to, or nil.
---@param module accel.nn.Module
---@param path string
---@return accel.nn.Module?
function M.find(module, path)
  local names = parts(path)
  for i = 1, #names do
    module = module[names[i]]
    if not module then return nil end
  end
  return module
end

return M
