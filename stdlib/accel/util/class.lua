--- Classes: single inheritance, constructor = call. Used by every class of the training library and free
--- for scripts.
---
---   local Net = class("Net", nn.Module)      -- or nn.Module:extend("Net")
---   function Net:init(width) ... end
---   local net = Net(64)
---
--- A class is the metatable and the __index of its instances, so that a method call is one table access per
--- level. Metamethods are copied from the base when a class is made. `alloc` returns the raw table an
--- instance starts as; `init` fills it. There is no hidden call of the base's init: say `Base.init(self,
--- ...)`.
local raise = require "accel.util.raise"

local M = {}

local classes = setmetatable({}, { __mode = "k" })

local function construct(cls, ...)
  local self = setmetatable(cls.alloc(), cls)
  self:init(...)
  return self
end

---@class accel.Class
local Object = { __name = "accel.Object" }
Object.__index = Object

function Object.alloc() return {} end

function Object:init() end

--- A new class below this one.
---@param name string shown by tostring and in error messages
function Object:extend(name) return M.new(name, self) end

--- Whether self is an instance of cls or of a class below it.
function Object:isinstance(cls) return M.isinstance(self, cls) end

local function class_tostring(cls) return "class " .. cls.__name end

---@param name string
---@param base? table a class
---@return table
function M.new(name, base)
  base = base or Object
  if type(name) ~= "string" then raise("class name must be a string, got %s", type(name)) end
  local cls = {}
  for key, value in next, base do
    if type(key) == "string" and key:sub(1, 2) == "__" then cls[key] = value end
  end
  cls.__name, cls.__index = name, cls
  classes[cls] = base
  return setmetatable(cls, { __index = base, __call = construct, __tostring = class_tostring })
end

--- Whether x is a class.
function M.isclass(x) return x == Object or classes[x] ~= nil end

function M.isinstance(x, cls)
  local c = type(x) == "table" and getmetatable(x) or nil
  while c do
    if c == cls then return true end
    c = classes[c]
  end
  return false
end

--- The class of an instance, nil for anything else.
function M.of(x)
  local c = type(x) == "table" and getmetatable(x) or nil
  return classes[c] and c or nil
end

M.Object = Object

return setmetatable(M, { __call = function(_, name, base) return M.new(name, base) end })
