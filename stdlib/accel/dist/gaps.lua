--- gaps(t, offsets, numels, from): the bytes between the tensors of a flat buffer and after the last one, as views to be zeroed. The one
--- rule of buckets (accel.dist.Reducer) and flat units (accel.shard.Unit): their gaps are zero when the buffer is made, and after every
--- write to all of it that does not keep zeros. Blocks of a quantised exchange reach across gaps, so that a NaN that stays in one would
--- spoil the gradients next to it in every step that follows.
local accel = require "accel"

---@param t accel.Tensor the buffer, or a contiguous part of it
---@param offsets integer[] of the tensors in the buffer, from 0, ascending
---@param numels integer[]
---@param from? integer the start of t in the buffer [0]
---@return accel.Tensor[]
return function(t, offsets, numels, from)
  from = from or 0
  local list, n = {}, #offsets
  for i = 0, n do
    local first = math.max(i > 0 and offsets[i] + numels[i] or 0, from)
    local last = math.min(offsets[i + 1] or math.maxinteger, from + t:numel())
    if last > first then list[#list + 1] = accel.unscoped(t.narrow, t, 1, first - from + 1, last - first) end
  end
  return list
end
