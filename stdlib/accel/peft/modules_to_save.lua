--- peft.ModulesToSaveWrapper: a fully trained copy of a module, next to the frozen original.
local Module = require "accel.nn.module"
local ModuleDict = require "accel.nn.module_dict"

--- Calls the trained copy, or the original while adapters are disabled.
--- example: local w = accel.peft.ModulesToSaveWrapper(accel.nn.Linear(2, 1), "default") return w.modules_to_save.default.weight.shape --> { 1, 2 }
---@class accel.peft.ModulesToSaveWrapper : accel.nn.Module
---@field original_module accel.nn.Module
---@field modules_to_save accel.nn.ModuleDict
local Wrapper = Module:extend("accel.peft.ModulesToSaveWrapper")

---@param module accel.nn.Module
---@param name string the adapter
function Wrapper:init(module, name)
  self.original_module = module
  self.modules_to_save = ModuleDict()
  self.disabled, self.active = false, name
  self:add(name)
end

--- Adds a copy for another adapter.
---@param name string
function Wrapper:add(name)
  local copy = self.original_module:clone()
  copy:requires_grad_(true)
  self.modules_to_save:set(name, copy)
end

--- The parameters of an adapter's copy.
---@param name string
---@return accel.Tensor[]
function Wrapper:weights_of(name)
  local copy = self.modules_to_save[name]
  return copy and copy:parameters() or {}
end

--- Deletes the copy of an adapter, if there is one.
---@param name string
function Wrapper:delete(name) self.modules_to_save[name] = nil end

function Wrapper:forward(...)
  local copy = not self.disabled and self.active and self.modules_to_save[self.active] -- an adapter may have none
  return (copy or self.original_module)(...)
end

return Wrapper
