--- The tensors passed between stages: tensors among the arguments of a block, including those in plain tables, each by its path
--- ("1", "2.mask"). Used by runner.lua.
local accel = require "accel"
local means = require "accel.autograd.means"

local M = {}

local DEPTH <const> = 4

local function is_plain(x) return type(x) == "table" and getmetatable(x) == nil end

--- Calls fn(tensor, path, holder, key) for every tensor, in the order of keys.
---@param args table packed, with n
---@param fn fun(t: accel.Tensor, path: string, holder: table, key: any)
function M.visit(args, fn)
  local function walk(holder, key, path, depth)
    local x = holder[key]
    if accel.is_tensor(x) then
      fn(x, path, holder, key)
    elseif is_plain(x) and depth < DEPTH then
      for k in accel.pairs(x) do
        if math.type(k) == "integer" or type(k) == "string" then walk(x, k, path .. "." .. tostring(k), depth + 1) end
      end
    end
  end
  for i = 1, args.n do walk(args, i, tostring(i), 1) end
end

--- The tensor at a path, or nil.
---@param args table
---@param path string
---@return any
function M.at(args, path)
  local x = args
  for key in path:gmatch "[^.]+" do
    if type(x) ~= "table" then return nil end
    local i = math.tointeger(tonumber(key))
    local y = rawget(x, key)
    if y == nil and i then y = rawget(x, i) end
    x = y
  end
  return x
end

--- Rows of a batch: the first extent of its first tensor. nil without one.
---@param args table packed
---@return integer?
function M.rows(args)
  local n
  M.visit(args, function(t)
    if n == nil and t.ndim > 0 then n = t.shape[1] end
  end)
  return n
end

--- The arguments with every tensor replaced by fn(tensor). Containers are copied.
---@param args table packed
---@param fn fun(t: accel.Tensor): accel.Tensor
---@return table
function M.map(args, fn)
  local function map(x)
    if accel.is_tensor(x) then return fn(x) end
    if not is_plain(x) then return x end
    local out = {}
    for key, value in next, x do out[key] = map(value) end
    return out
  end
  local out = { n = args.n }
  for i = 1, args.n do out[i] = map(args[i]) end
  return out
end

--- The batch with every tensor of that many rows replaced by fn(tensor). Containers are copied, other values are the
--- same.
---@param args table packed
---@param rows integer
---@param fn fun(t: accel.Tensor): accel.Tensor
---@return table
function M.map_rows(args, rows, fn)
  return M.map(args, function(t) return t.ndim > 0 and t.shape[1] == rows and fn(t) or t end)
end

--- The mean of losses over the labels of all, if each has a known count.
local function over_labels(list)
  local sum, all = 0, 0
  for _, loss in ipairs(list) do
    local terms = means.of(loss)
    if not terms or #terms > 1 then return nil end
    local count = terms[1].count:to "f64"
    sum, all = sum + loss:detach() * count, all + count
  end
  return (sum / all:clamp(1)):to(list[1].dtype)
end

--- Results of micro-batches as one: tensors are concatenated, losses of labels become the mean over all labels, other numbers without
--- dims their mean, and containers are combined by entry. Other values are the first's.
---@param list any[]
---@return any
function M.concatenate(list)
  local first = list[1]
  if accel.is_tensor(first) then
    if #list == 1 then return first end
    if first.ndim > 0 then return accel.cat(list, 1) end
    return over_labels(list) or accel.stack(list, 1):mean()
  end
  if not is_plain(first) then return first end
  local out = {}
  for key in next, first do
    local column = {}
    for i, x in ipairs(list) do column[i] = x[key] end
    out[key] = M.concatenate(column)
  end
  return out
end

--- Shapes and dtypes of a batch, as a key.
---@param args table packed
---@return string
function M.signature(args)
  local parts = {}
  M.visit(args, function(t, path)
    parts[#parts + 1] = ("%s %s %s"):format(path, t.dtype, table.concat(t.shape, ","))
  end)
  return table.concat(parts, ";")
end

return M
