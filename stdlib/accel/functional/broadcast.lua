--- Shapes that several tensors have in common: parts of accel.functional.
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local function shown(shape) return "(" .. table.concat(shape, ", ") .. ")" end

local function joined(who, shapes)
  local rank, out = 0, {}
  for _, s in ipairs(shapes) do rank = math.max(rank, #s) end
  for d = 1, rank do
    out[d] = 1
    for _, s in ipairs(shapes) do
      local n = d > rank - #s and s[#s - rank + d] or 1
      if n ~= 1 and out[d] ~= 1 and out[d] ~= n then
        local texts = {}
        for i, one in ipairs(shapes) do texts[i] = shown(table.move(one, 1, #one, 1, {})) end
        raise("%s: shapes %s do not broadcast; extents must be equal or 1", who, table.concat(texts, " and "))
      end
      if n ~= 1 then out[d] = n end
    end
  end
  return out
end

--- The shape that shapes broadcast to.
--- example: accel.broadcast_shapes({ 2, 1 }, { 3 }) --> { 2, 3 }
---@param ... integer[]|integer
---@return integer[]
function M.broadcast_shapes(...)
  local shapes = {}
  for i = 1, select("#", ...) do
    local s = select(i, ...)
    if math.type(s) == "integer" then s = { s } end
    if type(s) ~= "table" then raise("broadcast_shapes: argument %d must be a shape, got %s", i, type(s)) end
    local copy = {}
    for d = 1, #s do copy[d] = s[d] end
    shapes[i] = copy
  end
  return joined("broadcast_shapes", shapes)
end

--- The tensors as views of the shape that they broadcast to.
--- example: accel.broadcast_tensors(accel.ones(2, 1), accel.zeros(3))[2].shape --> { 2, 3 }
---@param ... accel.Tensor
---@return accel.Tensor[]
function M.broadcast_tensors(...)
  local list, shapes, out = { ... }, {}, {}
  if #list == 1 and type(list[1]) == "table" then list = list[1] end
  for i, t in ipairs(list) do
    if not tensors.is_tensor(t) then raise("broadcast_tensors: argument %d must be a tensor, got %s", i, type(t)) end
    shapes[i] = table.move(t.shape, 1, t.ndim, 1, {})
  end
  local shape = joined("broadcast_tensors", shapes)
  for i, t in ipairs(list) do out[i] = t:expand(shape) end
  return out
end

--- x summed over dims until it has a shape that broadcasts to x's: what undoes a broadcast.
--- example: accel.ones(2, 3):sum_to_size(1, 3) --> { { 2, 2, 2 } }
---@param x accel.Tensor
---@param ... integer|integer[]
---@return accel.Tensor
function M.sum_to_size(x, ...)
  local size = type((...)) == "table" and (...) or { ... }
  local lead, dims = x.ndim - #size, {}
  for d = 1, x.ndim do
    local want = d > lead and size[d - lead] or nil
    if lead < 0 or (want and want ~= 1 and want ~= x.shape[d]) then
      raise("sum_to_size: shape %s does not broadcast to %s", shown(size), tensors.shape_string(x))
    end
    if not want or (want == 1 and x.shape[d] ~= 1) then dims[#dims + 1] = d end
  end
  if #dims == 0 then return x end
  return x:sum(dims, { keepdim = true }):reshape(size)
end

return M
