--- Accelerate's enumerations: names for the words that options take and attributes have, so that
--- `DistributedType.MULTI_CPU` can be written here, too. A name that there is not is an error.
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

local function enum(name, members)
  M[name] = setmetatable(members, {
    __index = function(_, key)
      local near = type(key) == "string" and nearest(key, members)
      raise("%s has no '%s'%s", name, tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
    end,
  })
end

--- What distributed_type says.
--- example: accel.PartialState().distributed_type == accel.DistributedType.NO --> true
---@class accel.accelerator.DistributedType
enum("DistributedType", { NO = "NO", MULTI_CPU = "MULTI_CPU", MULTI_GPU = "MULTI_GPU" })

--- What DistributedDataParallelKwargs takes as comm_hook and comm_wrapper.
--- example: accel.DDPCommunicationHookType.POWER_SGD --> "power_sgd"
---@class accel.accelerator.DDPCommunicationHookType
enum("DDPCommunicationHookType", {
  NO = "no", FP16 = "fp16", BF16 = "bf16", POWER_SGD = "power_sgd", BATCHED_POWER_SGD = "batched_power_sgd",
  INT8 = "int8", INT4 = "int4",
})

--- What mixed_precision may be.
--- example: accel.accelerator.PrecisionType.BF16 --> "bf16"
---@class accel.accelerator.PrecisionType
enum("PrecisionType", { NO = "no", FP16 = "fp16", BF16 = "bf16", FP8 = "fp8" })

--- What rng_types may hold.
--- example: accel.accelerator.RNGType.GENERATOR --> "generator"
---@class accel.accelerator.RNGType
enum("RNGType", { TORCH = "torch", CUDA = "cuda", GENERATOR = "generator" })

return M
