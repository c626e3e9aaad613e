--- nn.Sequential(m1, m2, ...): the output of each module is the input of the next. seq[i] is the i-th module.
local Module = require "accel.nn.module"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

---@class accel.nn.Sequential : accel.nn.Module
local Sequential = Module:extend("accel.nn.Sequential")

---@param ... accel.nn.Module or one list of them
function Sequential:init(...)
  local first = ...
  local listed = select("#", ...) == 1 and type(first) == "table" and not Module.is_module(first)
    and not class.isclass(first)
  local modules = listed and first or { ... }
  for i = 1, listed and #modules or select("#", ...) do self:append(modules[i]) end
end

function Sequential:append(module)
  if not Module.is_module(module) then raise("Sequential: %s", Module.not_a_module(module)) end
  self[rawlen(self) + 1] = module
  return self
end

Sequential.__len = rawlen

function Sequential:forward(...)
  local n = rawlen(self)
  if n == 0 then return ... end
  local x = self[1](...)
  for i = 2, n do x = self[i](x) end
  return x
end

return Sequential
