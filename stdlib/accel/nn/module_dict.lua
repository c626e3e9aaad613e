--- nn.ModuleDict{name = module}: modules by name.
local Module = require "accel.nn.module"
local ordered = require "accel.util.ordered"

--- Modules by name, in the order of insertion. A table given to the constructor is taken in sorted order. dict.name
--- reads one, dict:set(name, module) adds one, pairs visits all.
--- example: accel.nn.ModuleDict { b = accel.nn.ReLU(), a = accel.nn.Tanh() }:keys() --> { "a", "b" }
---@class accel.nn.ModuleDict : accel.nn.Module
local ModuleDict = Module:extend("accel.nn.ModuleDict")

---@param modules? table<string, accel.nn.Module>
function ModuleDict:init(modules)
  for name, module in ordered.iterate(modules or {}) do self:set(name, module) end
end

--- Puts a module under a name, at the end unless the name is there.
---@param name string
---@param module accel.nn.Module
function ModuleDict:set(name, module)
  if rawget(self, name) ~= nil and Module.is_module(rawget(self, name)) then
    rawset(self, name, module)
  else
    self:register_module(name, module)
  end
  return self
end

--- The names in order.
function ModuleDict:keys()
  local names = {}
  for name in self:_fields() do names[#names + 1] = name end
  return names
end

function ModuleDict.__pairs(self)
  local next_field = self:_fields()
  return function()
    local name, module = next_field()
    return name, module
  end, self, nil
end

function ModuleDict.__len(self) return #self:keys() end

return ModuleDict
