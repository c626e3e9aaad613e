-- The tensors of a value with their names: itself, a table's entries, a module's state_dict or parameters. Used by server.lua and
-- inspecting.lua.
local accel = ...

local M = {}

local MOST <const> = 100000

--- Tensors of a value, {name, tensor} each.
---@return {name: string, tensor: any}[]
function M.of(value)
  local list, seen = {}, {}
  local function walk(name, x, depth)
    if #list >= MOST or depth > 20 then return end
    if accel.is_tensor(x) then
      if x.device ~= "meta" then list[#list + 1] = { name = name, tensor = x } end
    elseif type(x) == "table" and not seen[x] then
      seen[x] = true
      if type(x.state_dict) == "function" then x = x:state_dict() end
      for key, item in accel.pairs(x) do
        local part = type(key) == "number" and ("[%s]"):format(key) or tostring(key)
        local dot = name ~= "" and type(key) ~= "number" and "." or ""
        walk(name .. dot .. part, item, depth + 1)
      end
    end
  end
  walk("", value, 0)
  return list
end

local function is_module(x)
  return type(x) == "table" and require "accel.util.class".of(x) ~= nil and type(x.named_parameters) == "function"
end

--- The parameters of a module or tensor, or of all modules among the variables of a session: {name, tensor} each.
---@param session table
---@param value? any nil: all modules
function M.parameters(session, value)
  local list, seen = {}, {}
  local function add(prefix, x)
    if accel.is_tensor(x) then
      if not seen[x] then list[#list + 1] = { name = prefix ~= "" and prefix or "the tensor", tensor = x } end
      seen[x] = true
    elseif is_module(x) then
      for name, p in pairs(x:named_parameters()) do add(prefix ~= "" and prefix .. "." .. name or name, p) end
    elseif type(x) == "table" and value ~= nil and not seen[x] then
      seen[x] = true
      for key, item in accel.pairs(x) do
        local name = tostring(key)
        add(type(key) == "number" and ("%s[%s]"):format(prefix, name) or prefix ~= "" and prefix .. "." .. name or name, item)
      end
    end
  end
  if value ~= nil then
    add("", value)
    return list
  end
  for _, v in ipairs(session.frames and session.frames:variables() or {}) do
    if is_module(v.value) then add(v.name, v.value) end
  end
  for name, x in accel.pairs(session.kept) do
    if is_module(x) then add(tostring(name), x) end
  end
  for name, x in accel.pairs(_G) do
    if is_module(x) then add(tostring(name), x) end
  end
  return list
end

return M
