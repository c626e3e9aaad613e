--- The plain hooks: the mean unchanged, or sent as 16-bit floats, and wrappers that convert for other hooks. Ranks'
--- values are summed in f32 and divided before the sum is rounded, so that f16 overflows only if a single gradient
--- does.
local Future = require "accel.dist.hooks.future"
local check = require "accel.util.check"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

local M = {}

--- The tensor of a bucket. It raises for any other value.
local function buffer_of(bucket)
  if type(bucket) ~= "table" or type(bucket.buffer) ~= "function" then
    raise("a communication hook is called with a bucket of gradients, got %s; give the hook to register_comm_hook", check.shown(bucket))
  end
  return bucket:buffer()
end

--- A future of the mean of flat tensor t over the group.
local function mean(t, group) return Future(dist.all_reduce(t, { op = "mean", group = group, async_op = true }), t) end

--- The mean of the gradients, as without a hook.
--- example: local m = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(1, 1)) m:register_comm_hook(nil,
---   accel.dist.hooks.allreduce_hook) m(accel.ones(1, 1)):sum():backward() return m.weight.grad --> { { 1 } }
---@param group any the ranks, nil: all
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.allreduce_hook(group, bucket) return mean(buffer_of(bucket), group) end

local function compress(dtype, group, bucket)
  local buffer, short = buffer_of(bucket), bucket:scratch("short", nil, dtype)
  short:copy_(buffer)
  return mean(short, group):and_then(function(value)
    buffer:copy_(value)
    return buffer
  end)
end

--- The mean of the gradients as f16: half the bytes of f32.
---@param group any the ranks, nil: all
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.fp16_compress_hook(group, bucket) return compress("f16", group, bucket) end

--- The mean of the gradients as bf16: half the bytes of f32, with its range.
---@param group any the ranks, nil: all
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.bf16_compress_hook(group, bucket) return compress("bf16", group, bucket) end

local function wrapper(dtype, hook)
  return function(state, bucket)
    local buffer, short = bucket:buffer(), bucket:scratch("wrapped", nil, dtype)
    short:copy_(buffer)
    bucket:set_buffer(short)
    local result = hook(state, bucket)
    local function widen(value)
      buffer:copy_(value ~= nil and value or short)
      return buffer
    end
    if type(result) == "table" and result.and_then then return result:and_then(widen) end
    return widen(result)
  end
end

--- A hook that hands f16 gradients to another hook.
---@param hook fun(state: any, bucket: accel.dist.GradBucket): any
---@return fun(state: any, bucket: accel.dist.GradBucket): any
function M.fp16_compress_wrapper(hook) return wrapper("f16", hook) end

--- A hook that hands bf16 gradients to another hook.
---@param hook fun(state: any, bucket: accel.dist.GradBucket): any
---@return fun(state: any, bucket: accel.dist.GradBucket): any
function M.bf16_compress_wrapper(hook) return wrapper("bf16", hook) end

return M
