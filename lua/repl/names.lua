-- The names available on a value, and the name of a module. Used by complete.lua and show.lua.
local accel = ...

local M = {}

local ATTRIBUTES = { "shape", "dtype", "device", "grad", "requires_grad", "is_leaf", "grad_fn", "ndim" }

-- Names of accel, or of its tensors' methods, that are found on first use: ops, their aliases and functions of accel.functional.
local function late(set, methods)
  local function note(name)
    if set[name] == nil then set[name] = true end
  end
  for _, op in ipairs(accel.ops()) do
    if not op.hidden and (op.method or not methods) then
      note(op.name)
      for word in op.alias:gmatch "%S+" do note(op.inplace and word .. "_" or word) end
    end
  end
  local all = accel.functional and getmetatable(accel.functional).__names or {} -- nil under accel.core alone
  for name in next, all do
    if accel.functional._find(name, methods) then note(name) end
  end
end

--- Every name available on a value, nearest first: set[name] = its value, or true if it is not read.
---@param value any
---@param set? table<string, any>
---@return table<string, any>
function M.of(value, set, depth)
  set, depth = set or {}, depth or 0
  if depth > 20 then return set end
  if accel.is_tensor(value) then
    for _, name in ipairs(ATTRIBUTES) do set[name] = set[name] or true end
    return M.of(accel.Tensor, set, depth + 1)
  end
  local meta = debug.getmetatable(value)
  if type(value) == "table" then
    for name, field in next, value do
      if type(name) == "string" and set[name] == nil then set[name] = field end
    end
  end
  if value == accel or value == accel.Tensor then late(set, value == accel.Tensor) end
  if type(meta) ~= "table" then return set end
  local listed = rawget(meta, "__names")
  for name in next, type(listed) == "table" and listed or {} do
    if type(name) == "string" and set[name] == nil then set[name] = true end
  end
  local index = rawget(meta, "__index")
  if type(index) == "table" then M.of(index, set, depth + 1) end
  return set
end

-- Belongs to classes and is not asked of their instances.
local OF_CLASSES = { alloc = true, init = true, extend = true }

--- Whether a name that was found on a value is a method to be called on it. Functions whose first parameter has a name
--- other than self are their class's own. `_` is an unused self.
function M.is_method(value, name, field)
  if field == true or type(field) == "userdata" then return true end
  if type(field) ~= "function" then return false end
  if type(value) ~= "table" or not require "accel.util.class".of(value) then return true end
  if OF_CLASSES[name] then return false end
  field = require "accel.util.checked".original(field)
  local info = debug.getinfo(field, "Su")
  local first = info.what == "Lua" and info.nparams > 0 and debug.getlocal(field, 1)
  return not first or first == "self" or first == "_"
end

--- "accel.nn" for the result of require "accel.nn". nil: not a module of the library.
---@return string?
function M.module(value)
  if type(value) ~= "table" or require "accel.util.class".isclass(value) then return nil end
  local name
  for key, loaded in next, package.loaded do
    local library = loaded == value and type(key) == "string" and (key == "accel" or key:find "^accel%.")
    if library and (not name or #key < #name) then name = key end
  end
  return name
end

return M
