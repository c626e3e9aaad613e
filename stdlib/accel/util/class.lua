--- Classes: single inheritance, constructor = call. Used by every class of the training library and free
--- for scripts.
---
---   local Net = class("Net", nn.Module)      -- or nn.Module:extend("Net")
---   function Net:init(width) ... end
---   local net = Net(64)
---
--- A class is the metatable and the __index of its instances, so that a method call is one table access per level.
--- Metamethods are copied from the base when a class is made. `alloc` returns the raw table of a new instance. `init`
--- fills it. The base's init is never called implicitly: write `Base.init(self, ...)`.
local raise = require "accel.util.raise"

local M = {}

-- class -> its base. metatable of one instance (see M.fallback) -> its class. class -> metatable of fallback tables.
local classes = setmetatable({}, { __mode = "k" })
local owners = setmetatable({}, { __mode = "k" })
local fallback_metas = setmetatable({}, { __mode = "k" })

-- init of a class of the library -> its number of arguments. false: any number, or it is a script's. And init -> the same with the
-- argument check of its annotations, which objects that the library makes for itself do without.
local public = setmetatable({}, { __mode = "k" })
local arity, checked = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })

local function look_up(cls, init)
  local owner = cls
  while owner and rawget(owner, "init") ~= init do owner = classes[owner] end
  local info = debug.getinfo(init, "u")
  local known = owner and owner.__name:find "^accel%."
  checked[init] = known and public[owner] and require("accel.util.checked").wrap(init, owner.__name:match "[^.]*$", owner.__name) or init
  arity[init] = known and not info.isvararg and info.nparams - 1 -- last: memory may end before, and it tells that both are known
end

--- Lua drops arguments beyond a function's parameters, but a misplaced option must raise.
local function refuse_surplus(cls, most, ...)
  for i = most + 1, select("#", ...) do
    local value = select(i, ...)
    if value ~= nil then
      raise("%s: takes at most %d argument%s, options included; argument %d is a %s", cls.__name:match "[^.]*$", most, most == 1 and "" or "s", i,
        type(value))
    end
  end
end

local function construct(cls, ...)
  local self = setmetatable(cls.alloc(), cls)
  local init = self.init
  if arity[init] == nil then look_up(cls, init) end
  local most = arity[init]
  if most and select("#", ...) > most then refuse_surplus(cls, most, ...) end
  checked[init](self, ...)
  local hook = M.constructed
  if hook then hook(self) end
  return self
end

--- Called with every object once its init is through, or nil. Modes that watch new objects set it temporarily.
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
---@param cls table a class
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
---@param x any
function M.isclass(x) return x == Object or classes[x] ~= nil end

---@param x any
---@param cls table a class
function M.isinstance(x, cls)
  local c = M.of(x)
  while c do
    if c == cls then return true end
    c = classes[c]
  end
  return false
end

--- The class of an instance, nil for anything else.
---@param x any
function M.of(x)
  local c = type(x) == "table" and getmetatable(x) or nil
  return c and (classes[c] and c or owners[c]) or nil
end

--- The class whose instances have a metatable, nil for any other value.
---@param meta any
function M.of_metatable(meta) return meta ~= nil and (classes[meta] and meta or owners[meta]) or nil end

--- The class that cls builds on, nil for Object.
---@param cls table a class
function M.base(cls) return classes[cls] end

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

--- Marks a class that scripts can name: its constructor gets the argument check of its annotations.
---@param cls table a class
function M.publish(cls)
  public[cls] = true
  local init = rawget(cls, "init")
  if init then arity[init] = nil end
end

M.Object = Object

return setmetatable(M, { __call = function(_, name, base) return M.new(name, base) end })
