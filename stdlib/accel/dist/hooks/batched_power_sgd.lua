--- PowerSGD on a whole bucket as one square matrix: one product instead of one per parameter, but the approximation
--- ignores their shapes.
local Future = require "accel.dist.hooks.future"
local accel = require "accel"
local dist = require "accel.dist"

local M = {}

--- Averages gradients by a rank-r approximation of the bucket, filled up with zeros to a square. state: a
--- PowerSGDState.
--- example: local m = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(8, 8, { bias = false }))
---   m:register_comm_hook(accel.dist.hooks.PowerSGDState { start_powerSGD_iter = 0 },
---   accel.dist.hooks.batched_powerSGD_hook) m(accel.ones(1, 8)):sum():backward() return m.weight.grad[8][8] --> 1
---@param state accel.dist.hooks.PowerSGDState
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.batched_powerSGD_hook(state, bucket)
  local buffer, group = bucket:buffer(), state.process_group
  local function mean(t) return dist.all_reduce(t, { op = "mean", group = group, async_op = true }) end
  if not state:started() then
    state:sent(bucket)
    return Future(mean(buffer), buffer)
  end
  local memory, n = state:of(bucket), buffer:numel()
  local side = math.ceil(math.sqrt(n))
  local r = math.min(side, state.matrix_approximation_rank)
  local fresh = not memory.square
  if fresh then
    accel.unscoped(function()
      memory.square = accel.zeros(side * side, { dtype = buffer.dtype, device = buffer.device })
      memory.p = bucket:scratch("batched p", side * r):view(1, side, r)
      memory.q = bucket:scratch("batched q", side * r):view(1, side, r)
    end)
  end
  state:sent(bucket, n, 2 * side * r)
  local padded = memory.square
  padded:narrow(1, 1, n):copy_(buffer)
  local lost, matrix = state:feed_back(memory, padded), padded:view(1, side, side)
  state:begin(memory.q, fresh)
  memory.p:copy_(accel.bmm(matrix, memory.q))
  return Future(mean(memory.p), buffer):and_then(function()
    state:basis(memory.p)
    memory.q:copy_(accel.bmm(matrix:transpose(2, 3), memory.p))
    return Future(mean(memory.q), buffer)
  end):and_then(function()
    matrix:copy_(accel.bmm(memory.p, memory.q:transpose(2, 3)))
    lost(padded)
    buffer:copy_(padded:narrow(1, 1, n))
    if n < side * side then padded:narrow(1, n + 1, side * side - n):zero_() end
    return buffer
  end)
end

return M
