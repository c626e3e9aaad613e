--- Nested tables: how every operation on them goes through a tree and builds one of the same kind. Containers are
--- tables: lists, tables with string keys, ordered tables, instances of classes. Leaves are tensors, objects with a
--- method `to` (they know how to go through themselves), and everything else. Used by accel.accelerator.operations and
--- its files.
local accel = require "accel"
local check = require "accel.util.check"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local is_tensor, each = accel.is_tensor, accel.pairs
local MOST <const> = 200 -- levels: as in accel.encode. Deeper ones are cycles

--- Whether x is a table to go into.
---@return boolean
function M.is_container(x)
  return type(x) == "table" and (ordered.is(x) or type(x.to) ~= "function")
end

--- An empty container of the same kind: class, metatable, order.
---@param like table
---@return table
function M.empty_like(like)
  if ordered.is(like) then return ordered.new() end
  return setmetatable({}, type(like) == "table" and debug.getmetatable(like) or nil)
end

--- Sets an entry of a container made by empty_like.
function M.set(container, key, value)
  if ordered.is(container) then container[key] = value else rawset(container, key, value) end
end

--- (key, value) of a container: ordered tables in their order, others sorted, so that all ranks see one order.
function M.entries(container)
  if ordered.is(container) then return ordered.iterate(container) end
  if debug.getmetatable(container) == nil then return each(container) end
  local plain = {}
  for key, value in next, container do plain[key] = value end -- raw: a class may have its own __pairs
  return each(plain)
end

--- "", "b[3]", "b[3].c": the way to an entry.
local function way(path, key)
  if math.type(key) == "integer" then return ("%s[%d]"):format(path, key) end
  return path == "" and tostring(key) or path .. "." .. tostring(key)
end

local function too_deep(path)
  raise("nested tables: more than %d levels at %s...; does a table contain itself?", MOST, path:sub(1, 40))
end

--- The tree with fn(leaf, path) in the place of every leaf. x itself is not modified.
---@param x any
---@param fn fun(leaf: any, path: string): any
function M.map(x, fn, path, depth)
  path, depth = path or "", depth or 0
  if is_tensor(x) or not M.is_container(x) then return fn(x, path) end
  if depth > MOST then too_deep(path) end
  local out = M.empty_like(x)
  for key, value in M.entries(x) do M.set(out, key, M.map(value, fn, way(path, key), depth + 1)) end
  return out
end

--- Calls fn(leaf, path) for every leaf in order. A value other than nil ends the walk with it.
---@param x any
---@param fn fun(leaf: any, path: string): any
function M.visit(x, fn, path, depth)
  path, depth = path or "", depth or 0
  if is_tensor(x) or not M.is_container(x) then return fn(x, path) end
  if depth > MOST then too_deep(path) end
  for key, value in M.entries(x) do
    local found = M.visit(value, fn, way(path, key), depth + 1)
    if found ~= nil then return found end
  end
end

--- The error about a leaf that is not a tensor.
function M.refuse(who, leaf, path)
  local what = path == "" and "the value" or "entry '" .. path .. "'"
  raise("%s: %s is %s; expected tensors, or lists and tables of them; send other objects by "
    .. "gather_object and broadcast_object_list", who, what, check.shown(leaf))
end

--- The tree with the tensors replaced by the list's, in the order of visit. Other leaves stay.
---@param x any
---@param list accel.Tensor[]
function M.rebuild(x, list)
  local k = 0
  return M.map(x, function(leaf)
    if not is_tensor(leaf) then return leaf end
    k = k + 1
    return list[k]
  end)
end

--- The tree with f16 and bf16 tensors converted to f32. Other leaves stay.
function M.widen(x)
  if is_tensor(x) then
    local dtype = x.dtype
    return (dtype == "f16" or dtype == "bf16") and x:to "f32" or x
  end
  if not M.is_container(x) then return x end
  local out = M.empty_like(x)
  for key, value in M.entries(x) do M.set(out, key, M.widen(value)) end
  return out
end

return M
