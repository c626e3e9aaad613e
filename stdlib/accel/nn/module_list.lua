--- nn.ModuleList{m1, m2, ...}: modules by position. list[1] is the first; its key in a state_dict is "0".
local Module = require "accel.nn.module"
local raise = require "accel.util.raise"

---@class accel.nn.ModuleList : accel.nn.Module
local ModuleList = Module:extend("accel.nn.ModuleList")

---@param modules? accel.nn.Module[]
function ModuleList:init(modules) self:extend_with(modules or {}) end

--- Adds a module at the end.
---@param module accel.nn.Module
function ModuleList:append(module)
  if not Module.is_module(module) then raise("ModuleList: %s", Module.not_a_module(module)) end
  self[rawlen(self) + 1] = module
  return self
end

--- Adds all modules of a list (PyTorch's ModuleList.extend; `extend` makes subclasses here).
function ModuleList:extend_with(modules)
  for _, module in ipairs(modules) do self:append(module) end
  return self
end

ModuleList.__len = rawlen

function ModuleList:forward()
  raise("%s has no forward: call its modules in a loop, or use nn.Sequential", getmetatable(self).__name)
end

return ModuleList
