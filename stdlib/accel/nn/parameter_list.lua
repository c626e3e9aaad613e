--- nn.ParameterList{p1, p2, ...}: parameters by position. list[1] is the first, and its key in a state_dict is "0".
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- Parameters by position. Plain tensors become parameters.
--- example: local l = accel.nn.ParameterList { accel.ones(2), accel.zeros(3) } return #l, l[2] --> 2, { 0, 0, 0 }
---@class accel.nn.ParameterList : accel.nn.Module
local ParameterList = Module:extend("accel.nn.ParameterList")

--- The number of parameters in a list: they are stored outside the instance, invisible to rawlen.
local function count(self)
  local n = 0
  while self[n + 1] ~= nil do n = n + 1 end
  return n
end

---@param parameters? accel.Tensor[]
function ParameterList:init(parameters) self:extend_with(parameters or {}) end

--- Adds a parameter at the end.
---@param p accel.Tensor
function ParameterList:append(p)
  if not tensors.is_tensor(p) then raise("ParameterList: expected a tensor, got %s", check.shown(p)) end
  self[count(self) + 1] = Parameter.is(p) and p or Parameter(p)
  return self
end

--- Adds all parameters of a list.
---@param parameters accel.Tensor[]
function ParameterList:extend_with(parameters)
  for _, p in ipairs(parameters) do self:append(p) end
  return self
end

--- PyTorch's extend: the same as extend_with. Of the class it makes a subclass, as of every class.
---@param what table|string a list of modules; on the class, the name of the new class
function ParameterList:extend(what)
  if class.isclass(self) then return class.new(what, self) end
  return self:extend_with(what)
end

ParameterList.__len = count

function ParameterList:forward(...) raise "ParameterList has no forward: use its parameters in another module" end -- luacheck: ignore

function ParameterList:extra_repr()
  local lines = {}
  for i = 1, count(self) do
    lines[i] = ("(%d): Parameter of %s %s"):format(i - 1, self[i].dtype, tensors.shape_string(self[i]))
  end
  return table.concat(lines, ", ")
end

return ParameterList
