--- Nested tables of tensors on one rank: reading their content, cutting and joining them. Part of
--- accel.accelerator.operations.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local walk = require "accel.util.walk"

local M = {}

local library = debug.getinfo(1, "S").source:match "^(.*)accelerator/" or "@"

local is_tensor = accel.is_tensor

--- Shape and dtype of a tensor on another rank. get_data_structure puts it in the place of tensors.
--- example: accel.accelerator.TensorInformation({ 2, 3 }, "f32").shape --> { 2, 3 }
---@class accel.accelerator.TensorInformation
---@field shape integer[]
---@field dtype string
local TensorInformation = class("accel.accelerator.TensorInformation")

---@param shape integer[]
---@param dtype string
function TensorInformation:init(shape, dtype) self.shape, self.dtype = shape, dtype end

M.TensorInformation = TensorInformation

---@param x any
---@return boolean
function M.is_tensor_information(x) return class.isinstance(x, TensorInformation) end

--- func(leaf) for every leaf that passes test_type (a tensor, if not given), in a tree of the same kind. Other leaves
--- stay as they are, or are an error with error_on_other_type = true.
--- example: accel.accelerator.recursively_apply(function(t) return t + 1 end, { a = accel.zeros(1), b = "x" })
---   --> { a = { 1 }, b = "x" }
---@param func fun(leaf: any): any
---@param data any
---@param opts? {test_type: (fun(leaf: any): boolean)?, error_on_other_type: boolean?}
---@return any
function M.recursively_apply(func, data, opts, ...)
  check.surplus("recursively_apply", ...)
  local who = "recursively_apply"
  check.callable(who, "func", func)
  local o = options(who, opts, { test_type = is_tensor, error_on_other_type = false })
  return M._apply(func, data, o.test_type, o.error_on_other_type)
end

function M._apply(func, data, test, strict)
  if walk.is_container(data) and test ~= is_tensor and test(data) then return func(data) end
  if not walk.is_container(data) then
    if test(data) then return func(data) end
    if strict then
      local info = debug.getinfo(func, "S")
      local where = info.source:sub(1, #library) == library and "" or (" for the function of %s:%d"):format(info.short_src, info.linedefined)
      raise("recursively_apply: %s is not a leaf%s; only lists and tables of objects that test_type accepts can be taken",
        check.shown(data), where)
    end
    return data
  end
  local out = walk.empty_like(data)
  for key, value in walk.entries(data) do walk.set(out, key, M._apply(func, value, test, strict)) end
  return out
end

--- The values as a container of the same kind as obj: its class, its order.
--- example: accel.accelerator.honor_type({ 1, 2 }, { 3, 4 }) --> { 3, 4 }
---@param obj table
---@param values table the entries of the new one
---@return table
function M.honor_type(obj, values)
  local out = walk.empty_like(obj)
  for key in walk.entries(obj) do
    if values[key] ~= nil then walk.set(out, key, values[key]) end
  end
  for key, value in walk.entries(values) do
    if rawget(out, key) == nil then walk.set(out, key, value) end
  end
  return out
end

--- Tensors as nested lists of numbers, or numbers if they have no dims.
--- example: accel.accelerator.listify { a = accel.ones(2, 1), b = accel.tensor(3) } --> { a = { { 1 }, { 1 } }, b = 3 }
---@param data any
---@return any
function M.listify(data)
  return walk.map(data, function(leaf)
    if not is_tensor(leaf) then return leaf end
    leaf = leaf:detach()
    return leaf.ndim == 0 and leaf:item() or leaf:tolist()
  end)
end

local function first_extent(data)
  if is_tensor(data) then
    if data.ndim == 0 then return nil, "a tensor without dims" end
    return data.shape[1]
  end
  if not walk.is_container(data) then return nil, check.shown(data) end
  local _, value = walk.entries(data)()
  if value == nil then return nil, "an empty table" end
  return first_extent(value)
end

--- The first extent of the first tensor.
--- example: accel.accelerator.find_batch_size { x = accel.ones(4, 2), y = accel.ones(4) } --> 4
---@param data any
---@return integer
function M.find_batch_size(data)
  local n, what = first_extent(data)
  if not n then raise("find_batch_size: expected tensors with a first dim, found %s", what) end
  return n
end

--- find_batch_size, or nil if there is none.
--- example: accel.accelerator.ignorant_find_batch_size "text" --> nil
---@param data any
---@return integer?
function M.ignorant_find_batch_size(data) return (first_extent(data)) end

--- The device of the first tensor, nil without one.
--- example: accel.accelerator.find_device { "x", { accel.ones(1) } } --> "cpu"
---@param data any
---@return string?
function M.find_device(data)
  return walk.visit(data, function(leaf)
    if is_tensor(leaf) then return tostring(leaf.device) end
  end)
end

--- The tree with a TensorInformation in the place of every tensor.
--- example: accel.accelerator.get_data_structure({ x = accel.ones(4, 2) }).x.shape --> { 4, 2 }
---@param data any
---@return any
function M.get_data_structure(data)
  return walk.map(data, function(leaf)
    if not is_tensor(leaf) then return leaf end
    return TensorInformation({ table.unpack(leaf.shape) }, leaf.dtype)
  end)
end

--- The tree with a new tensor, of undefined contents, in the place of every TensorInformation.
--- example: local a = accel.accelerator
---   return a.initialize_tensors(a.get_data_structure { accel.ones(4, 2) })[1].shape --> { 4, 2 }
---@param structure any
---@return any
function M.initialize_tensors(structure)
  return M._apply(function(info) return accel.empty(info.shape, { dtype = info.dtype }) end, structure,
    M.is_tensor_information, false)
end

--- Positions first .. last (from 1) of the first dim of every tensor. Other leaves stay.
--- example: accel.accelerator.slice_tensors({ x = accel.arange(5), s = "a" }, 2, 3) --> { x = { 1, 2 }, s = "a" }
---@param data any
---@param first integer
---@param last integer
---@return any
function M.slice_tensors(data, first, last, ...)
  check.surplus("slice_tensors", ...)
  check.positive("slice_tensors", "first", first)
  check.count("slice_tensors", "last", last)
  return walk.map(data, function(leaf, path)
    if not is_tensor(leaf) then return leaf end
    if leaf.ndim == 0 then raise("slice_tensors: the tensor %s has no dims to cut", path) end
    local to = math.min(last, leaf.shape[1])
    local from = math.min(first, to + 1)
    return leaf:narrow(1, from, to - from + 1)
  end)
end

local function join(list, dim, path)
  local like = list[1]
  if is_tensor(like) then
    for i, t in ipairs(list) do
      if not is_tensor(t) then
        raise("concatenate: batch %d has %s at '%s', batch 1 a tensor", i, check.shown(t), path)
      end
    end
    return accel.cat(list, dim)
  end
  if not walk.is_container(like) then
    raise("concatenate: %s%s is not a tensor, so it cannot be joined with other batches", check.shown(like),
      path == "" and "" or " at '" .. path .. "'")
  end
  local out = walk.empty_like(like)
  for key in walk.entries(like) do
    local column = {}
    for i, data in ipairs(list) do
      local value = type(data) == "table" and data[key]
      if value == nil or value == false then
        raise("concatenate: batch %d has no entry '%s%s', batch 1 has", i, path, tostring(key))
      end
      column[i] = value
    end
    walk.set(out, key, join(column, dim, path .. tostring(key) .. "."))
  end
  return out
end

--- Joins the tensors of several trees of one structure along dim. One tree alone is returned as it is.
--- example: accel.accelerator.concatenate { { x = accel.ones(2) }, { x = accel.zeros(1) } } --> { x = { 1, 1, 0 } }
---@param data any[] trees
---@param dim? integer from 1 (default 1)
---@return any
function M.concatenate(data, dim, ...)
  check.surplus("concatenate", ...)
  if type(data) ~= "table" or data[1] == nil then raise("concatenate: expected a list of at least one tree") end
  if #data == 1 then return data[1] end
  return join(data, dim or 1, "")
end

--- The tensors with rows of zeros at the end, so that batch_size rows can be cut for num_processes equally.
--- example: accel.accelerator.pad_input_tensors(accel.ones(3), 3, 2) --> { 1, 1, 1, 0 }
---@param data any
---@param batch_size integer
---@param num_processes integer
---@param dim? integer from 1 (default 1)
---@return any
function M.pad_input_tensors(data, batch_size, num_processes, dim, ...)
  check.surplus("pad_input_tensors", ...)
  local who = "pad_input_tensors"
  check.count(who, "batch_size", batch_size)
  check.positive(who, "num_processes", num_processes)
  local add = -batch_size % num_processes
  dim = dim or 1
  return walk.map(data, function(leaf)
    if not is_tensor(leaf) or add == 0 then return leaf end
    local shape = leaf.shape
    if dim > #shape then raise("%s: %s has no dim %d", who, tensors.shape_string(leaf), dim) end
    shape[dim] = add
    return accel.cat({ leaf, accel.zeros(shape, { dtype = leaf.dtype, device = leaf.device }) }, dim)
  end)
end

return M
