--- Parametrisations: a parameter that is computed by modules from others, before every forward of its owner.
--- The names in a state_dict are PyTorch's: parametrizations.<name>.original (or original0, original1, ...).
---
---   local Symmetric = nn.Module:extend "Symmetric"
---   function Symmetric.forward(_, x) return x:triu() + x:triu(1):t() end
---   nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
---
--- A right_inverse(value) method returns the originals that make `value`. Without one the parameter itself is the
--- original. Between forwards layer.weight is the last computed value.
local accel = require "accel"
local Module = require "accel.nn.module"
local ModuleDict = require "accel.nn.module_dict"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local is_arguments = arguments("is_parametrized", { "name" })
local remove_arguments = arguments("remove_parametrizations", { "leave_parametrized", true })

local List = Module:extend("accel.nn.utils.ParametrizationList")

--- The originals in order.
local function originals(list)
  if list.original ~= nil then return list.original end
  local out, i = {}, 0
  while list["original" .. i] ~= nil do
    out[i + 1] = list["original" .. i]
    i = i + 1
  end
  return table.unpack(out, 1, i)
end

function List:forward(...) -- luacheck: ignore
  local value = self[1](originals(self))
  for i = 2, rawlen(self) do value = self[i](value) end
  return value
end

local function list_of(module, name)
  local all = Module.is_module(module) and rawget(module, "parametrizations")
  return all and rawget(all, name) or nil
end

--- Whether the module, or its tensor `name`, is parametrised.
--- example: accel.nn.utils.parametrize.is_parametrized(accel.nn.Linear(2, 2), "weight") --> false
---@param module accel.nn.Module
---@param ... any name, by position or in a table
---@return boolean
function M.is_parametrized(module, ...)
  local name = is_arguments(...).name
  if name then return list_of(module, name) ~= nil end
  local all = Module.is_module(module) and rawget(module, "parametrizations")
  return all and #all > 0 or false
end

local function recompute(module)
  for name, list in pairs(module.parametrizations) do module[name] = list() end
end

--- Computes the parameter `name` of module by parametrization(original) from now on. Further ones are applied to the
--- result of the first. Returns the module.
---@param module accel.nn.Module
---@param name string
---@param parametrization accel.nn.Module
---@return accel.nn.Module
function M.register_parametrization(module, name, parametrization)
  local who = "register_parametrization"
  if not Module.is_module(module) then raise("%s: %s", who, Module.not_a_module(module)) end
  if not Module.is_module(parametrization) then raise("%s: %s", who, Module.not_a_module(parametrization)) end
  local list = list_of(module, name)
  if list then
    list[rawlen(list) + 1] = parametrization
    recompute(module)
    return module
  end
  local value = module[name]
  if not tensors.is_tensor(value) or not Parameter.is(value) then
    raise("%s: the module has no parameter '%s'", who, tostring(name))
  end
  list = List()
  if parametrization.right_inverse then
    local _ <close> = accel.no_grad()
    local parts = table.pack(parametrization:right_inverse(value:detach()))
    for i = 1, parts.n do
      local key = parts.n == 1 and "original" or ("original%d"):format(i - 1)
      list[key] = Parameter(parts[i], value.requires_grad)
    end
  else
    list.original = value
  end
  list[1] = parametrization
  module[name] = nil
  module:_unregister(name)
  if not rawget(module, "parametrizations") then
    module.parametrizations = ModuleDict()
    module:register_forward_pre_hook(function(m)
      if rawget(m, "parametrizations") then recompute(m) end
    end, { copied = true })
  end
  module.parametrizations:set(name, list)
  recompute(module)
  return module
end

--- Makes `name` a plain parameter again: the computed value, or with leave_parametrized = false the original
--- (which must be one tensor).
---@param module accel.nn.Module
---@param name string
---@param ... any leave_parametrized = true, by position or in a table
---@return accel.nn.Module
function M.remove_parametrizations(module, name, ...)
  local leave_parametrized = remove_arguments(...).leave_parametrized
  local list = list_of(module, name)
  if not list then raise("remove_parametrizations: '%s' of the module is not parametrised", tostring(name)) end
  local parameter
  if not leave_parametrized then
    if list.original == nil then
      raise("remove_parametrizations: '%s' has several originals, so none can become the parameter", name)
    end
    parameter = list.original
  else
    local _ <close> = accel.no_grad()
    parameter = Parameter(list())
  end
  local all = module.parametrizations
  all[name] = nil
  all:_unregister(name)
  module[name] = nil
  module:register_parameter(name, parameter)
  if #all == 0 then
    module.parametrizations = nil
    module:_unregister("parametrizations")
  end
  return module
end

return M
