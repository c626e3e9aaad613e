--- nn.ModuleList{m1, m2, ...}: modules by position.
local Module = require "accel.nn.module"
local Sequential = require "accel.nn.sequential"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- Modules by position, for loops. list[1] is the first, and its key in a state_dict is "0". It supports #list and
--- ipairs(list).
--- example: local l = accel.nn.ModuleList { accel.nn.ReLU(), accel.nn.Tanh() } return #l --> 2
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

--- Adds all modules of a list.
---@param modules accel.nn.Module[]
function ModuleList:extend_with(modules)
  for _, module in ipairs(modules) do self:append(module) end
  return self
end

--- PyTorch's extend: the same as extend_with. Of the class it makes a subclass, as of every class.
---@param what table|string a list of modules; on the class, the name of the new class
function ModuleList:extend(what)
  if class.isclass(self) then return class.new(what, self) end
  return self:extend_with(what)
end

--- insert(i, module): puts a module at place i. pop(i): takes one out, by default the last, and returns it.
ModuleList.insert = Sequential.insert
ModuleList.pop = Sequential.pop

ModuleList.__len = rawlen

--- Printed as PyTorch prints it: equal neighbours in one line, with their number.
function ModuleList.__tostring(self)
  local lines, i, n = {}, 1, rawlen(self)
  while i <= n do
    local text, last = tostring(self[i]), i
    while last < n and tostring(self[last + 1]) == text do last = last + 1 end
    text = text:gsub("\n", "\n  ")
    lines[#lines + 1] = i == last and ("  (%d): %s"):format(i - 1, text)
      or ("  (%d-%d): %d x %s"):format(i - 1, last - 1, last - i + 1, text)
    i = last + 1
  end
  local name = getmetatable(self).__name:match "[^.]*$"
  return #lines == 0 and name .. "()" or ("%s(\n%s\n)"):format(name, table.concat(lines, "\n"))
end

function ModuleList:forward(...) -- luacheck: ignore
  raise("%s has no forward: call its modules in a loop, or use nn.Sequential", getmetatable(self).__name)
end

return ModuleList
