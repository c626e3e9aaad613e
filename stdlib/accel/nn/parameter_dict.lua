--- nn.ParameterDict{name = p}: parameters by name, in the order of insertion. A table given to the constructor is taken
--- in sorted order.
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- Parameters by name. Plain tensors become parameters. dict.name reads one, dict:set(name, p) adds one, pairs visits
--- all.
--- example: accel.nn.ParameterDict { b = accel.ones(2), a = accel.ones(3) }:keys() --> { "a", "b" }
---@class accel.nn.ParameterDict : accel.nn.Module
local ParameterDict = Module:extend("accel.nn.ParameterDict")

---@param parameters? table<string, accel.Tensor>
function ParameterDict:init(parameters)
  for name, p in ordered.iterate(parameters or {}) do self:set(name, p) end
end

--- Puts a parameter under a name, at the end unless the name is there.
---@param name string
---@param p accel.Tensor
function ParameterDict:set(name, p)
  if not tensors.is_tensor(p) then
    raise("ParameterDict: '%s' must be a tensor, got %s", tostring(name), check.shown(p))
  end
  self:register_parameter(name, Parameter.is(p) and p or Parameter(p))
  return self
end

--- The names in order.
---@return string[]
function ParameterDict:keys()
  local names = {}
  for name in self:_fields() do names[#names + 1] = name end
  return names
end

function ParameterDict.__pairs(self)
  local next_field = self:_fields()
  return function()
    local name, p = next_field()
    return name, p
  end, self, nil
end

function ParameterDict.__len(self) return #self:keys() end

function ParameterDict:forward(...) raise "ParameterDict has no forward: use its parameters in another module" end -- luacheck: ignore

function ParameterDict:extra_repr()
  local lines = {}
  for name, p in self:_fields() do
    lines[#lines + 1] = ("(%s): Parameter of %s %s"):format(name, p.dtype, tensors.shape_string(p))
  end
  return table.concat(lines, ", ")
end

return ParameterDict
