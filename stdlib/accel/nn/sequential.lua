--- nn.Sequential(m1, m2, ...): the output of each module is the input of the next. seq[i] is the i-th module.
local Module = require "accel.nn.module"
local raise = require "accel.util.raise"

---@class accel.nn.Sequential : accel.nn.Module
local Sequential = Module:extend("accel.nn.Sequential")

---@param ... accel.nn.Module or one list of them
function Sequential:init(...)
  local first = ...
  local modules = type(first) == "table" and not Module.is_module(first) and select("#", ...) == 1 and first
    or { ... }
  for _, module in ipairs(modules) do self:append(module) end
end

function Sequential:append(module)
  if not Module.is_module(module) then raise("Sequential: expected a module, got %s", type(module)) end
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
