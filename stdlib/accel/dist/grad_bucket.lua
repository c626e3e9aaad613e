--- A bucket of gradients as a communication hook sees it (torch.distributed.GradBucket).
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- The gradients of some parameters, concatenated in one flat tensor. Parameters begin at multiples of 64 bytes. The
--- bytes in between are zero.
--- example: local n = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(2, 1))
---   n:register_comm_hook(nil, function(_, b) n.last = b end) n(accel.ones(1, 2)):sum():backward()
---   return n.last:index(), #n.last:gradients(), n.last:is_last() --> 1, 2, true
---@class accel.dist.GradBucket
local GradBucket = class("accel.dist.GradBucket")

---@param slot table the reducer's: {position, n, flat, views, params, offsets, scratch, layout}
function GradBucket:init(slot) self.slot, self.flat = slot, slot.flat end

--- Its place in the order in which buckets are reduced, from 1.
---@return integer
function GradBucket:index() return self.slot.position end

--- Whether it is the last one of this backward.
function GradBucket:is_last() return self.slot.position == self.slot.n end

--- Its gradients as one flat tensor. A hook may overwrite it.
---@return accel.Tensor
function GradBucket:buffer() return self.flat end

--- Replaces the flat tensor, for this backward: by one of another dtype, say. The hook's result is converted back.
---@param t accel.Tensor
function GradBucket:set_buffer(t)
  if not tensors.is_tensor(t) or t.ndim ~= 1 or t:numel() ~= self.slot.flat:numel() then
    raise("set_buffer: expected a flat tensor of %d elements, got %s", self.slot.flat:numel(),
      tensors.is_tensor(t) and "shape " .. tensors.shape_string(t) or type(t))
  end
  self.flat = t
end

--- The gradients in the buffer, views of it in the shapes of their parameters.
---@return accel.Tensor[]
function GradBucket:gradients()
  local slot = self.slot
  if self.flat == slot.flat then return { table.unpack(slot.views) } end
  local list = {}
  for j, p in ipairs(slot.params) do list[j] = self.flat:narrow(1, slot.offsets[j] + 1, p:numel()):view(p.shape) end
  return list
end

--- The parameters whose gradients these are.
---@return accel.Tensor[]
function GradBucket:parameters() return { table.unpack(self.slot.params) } end

--- A number that changes when parameters move to other buckets: a hook must then drop its state of a bucket.
---@return integer
function GradBucket:layout() return self.slot.layout end

--- A tensor that stays with the bucket from one backward to the next, in memory that all local ranks map. Initially
--- undefined. Each name is another one.
---@param name string
---@param count? integer default: as many as the buffer has
---@param dtype? string default: the buffer's
---@return accel.Tensor
function GradBucket:scratch(name, count, dtype)
  local slot = self.slot
  count, dtype = count or slot.flat:numel(), dtype or self.flat.dtype
  local key = ("%s %d %s"):format(name, count, dtype)
  local t = slot.scratch[key]
  if not t then
    t = accel.unscoped(require "accel.dist.flat", count, dtype, tostring(slot.flat.device))
    slot.scratch[key] = t
  end
  return t
end

return GradBucket
