--- One collective for many tensors: small ones are packed by dtype into flat pieces, large ones travel as they lie.
--- Used to broadcast parameters and buffers, to average parameters and to sum gradients of parts of a sequence.
local accel = require "accel"
local dist = require "accel.dist"
local flat = require "accel.dist.flat"

local M = {}

local ALONE, PIECE = 1 << 18, 8 << 20 -- bytes

--- Writes the pieces of flat tensor t back to their origins.
local function unpack_into(list, t)
  local at = 1
  for _, x in ipairs(list) do
    local n = x:numel()
    x:copy_(t:narrow(1, at, n):view(x.shape))
    at = at + n
  end
end

--- Calls fn(flat) for all tensors of a list, in its order, with flat tensors that hold them. Changes by fn are copied
--- back to them. Gradients are not recorded.
---@param list accel.Tensor[] on all ranks the same shapes and dtypes in the same order
---@param fn fun(t: accel.Tensor)
function M.each(list, fn)
  local _ <close> = accel.no_grad()
  local kinds, order = {}, {}
  local function flush(kind)
    local k = kinds[kind]
    kinds[kind] = nil
    if #k.list == 1 and k.list[1]:is_contiguous() then return fn(k.list[1]:view(-1)) end
    local t, at = flat(k.count, k.dtype, k.device), 1
    for _, x in ipairs(k.list) do
      t:narrow(1, at, x:numel()):view(x.shape):copy_(x)
      at = at + x:numel()
    end
    fn(t)
    unpack_into(k.list, t)
  end
  for _, x in ipairs(list) do
    x = x:detach()
    local bytes = x:numel() * x:element_size()
    if bytes >= ALONE and x:is_contiguous() then
      fn(x:view(-1))
    elseif bytes > 0 then
      local kind = x.dtype .. " " .. tostring(x.device)
      local k = kinds[kind]
      if not k then
        k = { list = {}, count = 0, bytes = 0, dtype = x.dtype, device = tostring(x.device) }
        kinds[kind] = k
        order[#order + 1] = kind
      end
      k.list[#k.list + 1], k.count, k.bytes = x, k.count + x:numel(), k.bytes + bytes
      if k.bytes >= PIECE then flush(kind) end
    end
  end
  for _, kind in ipairs(order) do
    if kinds[kind] then flush(kind) end
  end
end

--- Gives all ranks the values that rank `src` of the group has.
---@param list accel.Tensor[]
---@param src integer rank within the group
---@param group? any
function M.broadcast(list, src, group)
  M.each(list, function(t) dist.broadcast(t, { group_src = src, group = group }) end)
end

--- The sums over the ranks, as new tensors.
---@param list accel.Tensor[]
---@param group? any
---@return accel.Tensor[]
function M.sum(list, group)
  local own = {}
  for i, t in ipairs(list) do own[i] = t:detach():contiguous():clone() end
  M.each(own, function(t) dist.all_reduce(t, { group = group }) end)
  return own
end

--- Replaces each tensor by its mean over the ranks.
---@param list accel.Tensor[]
---@param group? any
function M.mean(list, group)
  M.each(list, function(t) dist.all_reduce(t, { op = "mean", group = group }) end)
end

return M
