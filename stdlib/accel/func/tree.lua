--- Nested tables of tensors, for accel.func: one tensor, a list, named tensors (a state_dict), or these in each other. Everything else in a
--- tree is a constant. Results keep the form: plain tables stay plain, ordered ones ordered.
local ordered = require "accel.util.ordered"
local tensors = require "accel.util.tensors"

local M = {}

local function is_node(x) return type(x) == "table" and (getmetatable(x) == nil or ordered.is(x)) end
M.is_node = is_node

local function visit(x, into)
  if tensors.is_tensor(x) then
    into[#into + 1] = x
  elseif is_node(x) then
    for _, value in ordered.iterate(x) do visit(value, into) end
  end
end

--- The tensors of a tree in order, as a list.
---@param tree any
---@return accel.Tensor[]
function M.leaves(tree)
  local list = {}
  visit(tree, list)
  return list
end

--- A tree of the same form, with fn(tensor, ...) for each tensor. more: trees of the same form, whose entries fn gets as well.
---@param fn function
---@param tree any
---@param ... any
---@return any
function M.map(fn, tree, ...)
  if tensors.is_tensor(tree) then return fn(tree, ...) end
  if not is_node(tree) then return tree end
  local out = ordered.is(tree) and ordered.new() or {}
  local more, n = { ... }, select("#", ...)
  for key, value in ordered.iterate(tree) do
    local inner = {}
    for i = 1, n do
      local other = more[i]
      if type(other) == "table" then inner[i] = rawget(other, key) else inner[i] = nil end
    end
    out[key] = M.map(fn, value, table.unpack(inner, 1, n))
  end
  return out
end

--- A tree of the same form with its tensors from a list, in the order of leaves.
---@param tree any
---@param list accel.Tensor[]
---@return any
function M.fill(tree, list)
  local i = 0
  return M.map(function()
    i = i + 1
    return list[i]
  end, tree)
end

return M
