--- nn.Sequential(m1, m2, ...): the output of each module is the input of the next.
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- Modules in a row, given one by one or as a list: the output of each is the input of the next. seq[i] is the i-th
--- module, #seq their number. seq:add_module(name, module) adds one by name.
--- example: accel.nn.Sequential(accel.nn.Linear(3, 2), accel.nn.ReLU())(accel.ones(4, 3)).shape --> { 4, 2 }
---@class accel.nn.Sequential : accel.nn.Module
local Sequential = Module:extend("accel.nn.Sequential")

local function who(self) return getmetatable(self).__name:match "[^.]*$" end

---@param ... accel.nn.Module or one list of them
function Sequential:init(...)
  local first = ...
  local listed = select("#", ...) == 1 and type(first) == "table" and not Module.is_module(first)
    and not class.isclass(first)
  if listed and #first == 0 and next(first) ~= nil then
    raise("Sequential: expected a list of modules, got a table without [1]; seq:add_module(name, module) adds by name")
  end
  local modules = listed and first or { ... }
  for i = 1, listed and #modules or select("#", ...) do self:append(modules[i]) end
end

--- Adds a module at the end. Returns the container.
---@param module accel.nn.Module
function Sequential:append(module)
  if not Module.is_module(module) then raise("Sequential: %s", Module.not_a_module(module)) end
  self[rawlen(self) + 1] = module
  return self
end

--- Adds all modules of a list or of another container.
---@param modules accel.nn.Module[]
function Sequential:extend_with(modules)
  for _, module in ipairs(modules) do self:append(module) end
  return self
end

--- PyTorch's extend: the same as extend_with. Of the class it makes a subclass, as of every class.
---@param what table|string a list of modules; on the class, the name of the new class
function Sequential:extend(what)
  if class.isclass(self) then return class.new(what, self) end
  return self:extend_with(what)
end

--- Inserts module at position i. Later modules move by one.
---@param i integer
---@param module accel.nn.Module
function Sequential:insert(i, module)
  if not Module.is_module(module) then raise("%s: %s", who(self), Module.not_a_module(module)) end
  local n = rawlen(self)
  if math.type(i) ~= "integer" or i < 1 or i > n + 1 then
    raise("%s: place must be 1 .. %d, got %s", who(self), n + 1, check.shown(i))
  end
  self[n + 1] = module
  for k = n + 1, i + 1, -1 do rawset(self, k, self[k - 1]) end
  rawset(self, i, module)
  return self
end

--- Takes out and returns the module at place i, by default the last.
---@param i? integer
---@return accel.nn.Module
function Sequential:pop(i, ...)
  check.surplus("pop", ...)
  local n = rawlen(self)
  i = i or n
  local module = self[i]
  if math.type(i) ~= "integer" or module == nil then
    raise("%s: no module at place %s of %d", who(self), check.shown(i), n)
  end
  for k = i, n - 1 do rawset(self, k, self[k + 1]) end
  rawset(self, n, nil)
  return module
end

Sequential.__len = rawlen

function Sequential:forward(...)
  local order, n = self._order, rawlen(self)
  if n == #order then
    if n == 0 then return ... end
    local x = self[1](...)
    for i = 2, n do x = self[i](x) end
    return x
  end
  local x, begun = nil, false
  for _, module, kind in self:_fields() do -- some were added by name or removed, or are not modules
    if kind == "module" then
      if begun then x = module(x) else x = module(...) end
      begun = true
    end
  end
  if not begun then return ... end
  return x
end

return Sequential
