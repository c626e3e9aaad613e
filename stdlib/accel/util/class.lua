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

-- class -> its base; metatable of one instance (see M.fallback) -> its class; class -> metatable of fallback tables.
local classes = setmetatable({}, { __mode = "k" })
local owners = setmetatable({}, { __mode = "k" })
local fallback_metas = setmetatable({}, { __mode = "k" })

local function construct(cls, ...)
  local self = setmetatable(cls.alloc(), cls)
  self:init(...)
  local hook = M.constructed
  if hook then hook(self) end
  return self
end

--- Called with every object once its init is through, or nil. Modes that look at what is made set it for a while.
---@type fun(object: table)?
M.constructed = nil

--- example: local Point = accel.util.class("Point") function Point:init(x) self.x = x end return Point(3).x --> 3
---@class accel.util.class.Object
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
  local c = M.of(x)
  while c do
    if c == cls then return true end
    c = classes[c]
  end
  return false
end

--- The class of an instance, nil for anything else.
function M.of(x)
  local c = type(x) == "table" and getmetatable(x) or nil
  return c and (classes[c] and c or owners[c]) or nil
end

--- Puts a new table, the fallback table, between an instance and its class: a field that the instance itself lacks is
--- looked up there, then in the class. Assigning such a field passes through __newindex every time, not
--- only the first, and reading it needs no function. The class's metamethods are taken as they are now.
---@param self table an instance
---@return table fallback
function M.fallback(self)
  local cls, own = M.of(self), {}
  for key, value in next, cls do
    if type(key) == "string" and key:sub(1, 2) == "__" then own[key] = value end
  end
  local rest, meta = cls.__index, fallback_metas[cls]
  if type(rest) == "function" then
    meta = { __index = function(_, key) return rest(self, key) end }
  elseif not meta then
    meta = { __index = rest }
    fallback_metas[cls] = meta
  end
  own.__index = setmetatable({}, meta)
  owners[own] = cls
  setmetatable(self, own)
  return own.__index
end

M.Object = Object

return setmetatable(M, { __call = function(_, name, base) return M.new(name, base) end })
