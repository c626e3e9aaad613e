--- Accelerate's enumerations: names for the strings of options and attributes, so that you can write
--- `DistributedType.MULTI_CPU`. They have all of Accelerate's members, so that comparisons in ported scripts run. Any
--- other name is an error.
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

local function enum(name, members)
  M[name] = setmetatable(members, {
    __index = function(_, key)
      require("accel.util.absent").refuse(name .. ":", key)
      local near = type(key) == "string" and nearest(key, members)
      raise("%s has no '%s'%s", name, tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
    end,
  })
end

--- Values of distributed_type. In accel: NO, MULTI_CPU or MULTI_GPU.
--- example: accel.PartialState().distributed_type == accel.DistributedType.NO --> true
---@class accel.accelerator.DistributedType
enum("DistributedType", {
  NO = "NO", MULTI_CPU = "MULTI_CPU", MULTI_GPU = "MULTI_GPU", MULTI_NPU = "MULTI_NPU", MULTI_MLU = "MULTI_MLU",
  MULTI_SDAA = "MULTI_SDAA", MULTI_MUSA = "MULTI_MUSA", MULTI_XPU = "MULTI_XPU", MULTI_HPU = "MULTI_HPU",
  MULTI_NEURON = "MULTI_NEURON", DEEPSPEED = "DEEPSPEED", FSDP = "FSDP", TP = "TP", XLA = "XLA",
  MEGATRON_LM = "MEGATRON_LM",
})

--- Values of comm_hook and comm_wrapper in DistributedDataParallelKwargs.
--- example: accel.DDPCommunicationHookType.POWER_SGD --> "power_sgd"
---@class accel.accelerator.DDPCommunicationHookType
enum("DDPCommunicationHookType", {
  NO = "no", FP16 = "fp16", BF16 = "bf16", POWER_SGD = "power_sgd", BATCHED_POWER_SGD = "batched_power_sgd",
  INT8 = "int8", INT4 = "int4",
})

--- Values of mixed_precision.
--- example: accel.accelerator.PrecisionType.BF16 --> "bf16"
---@class accel.accelerator.PrecisionType
enum("PrecisionType", { NO = "no", FP16 = "fp16", BF16 = "bf16", FP8 = "fp8" })

--- Values of rng_types. In accel: TORCH and GENERATOR.
--- example: accel.accelerator.RNGType.GENERATOR --> "generator"
---@class accel.accelerator.RNGType
enum("RNGType", {
  TORCH = "torch", CUDA = "cuda", MLU = "mlu", SDAA = "sdaa", MUSA = "musa", NPU = "npu", XLA = "xla", XPU = "xpu",
  HPU = "hpu", NEURON = "neuron", GENERATOR = "generator",
})

--- Values of log_with. In accel: ALL, and the names of registered trackers.
--- example: accel.LoggerType.TENSORBOARD --> "tensorboard"
---@class accel.accelerator.LoggerType
enum("LoggerType", {
  ALL = "all", AIM = "aim", TENSORBOARD = "tensorboard", WANDB = "wandb", TRACKIO = "trackio", COMETML = "comet_ml",
  MLFLOW = "mlflow", CLEARML = "clearml", DVCLIVE = "dvclive", SWANLAB = "swanlab",
})

--- The location of a run's processes. In accel: LOCAL_MACHINE.
--- example: accel.ComputeEnvironment.LOCAL_MACHINE --> "LOCAL_MACHINE"
---@class accel.accelerator.ComputeEnvironment
enum("ComputeEnvironment", { LOCAL_MACHINE = "LOCAL_MACHINE", AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER" })

--- Kinds of distribution on Amazon SageMaker.
--- example: accel.SageMakerDistributedType.NO --> "NO"
---@class accel.accelerator.SageMakerDistributedType
enum("SageMakerDistributedType", { NO = "NO", DATA_PARALLEL = "DATA_PARALLEL", MODEL_PARALLEL = "MODEL_PARALLEL" })

--- Values of dynamo_backend. In accel: NO.
--- example: accel.Accelerator { dynamo_backend = accel.DynamoBackend.NO }.num_processes --> 1
---@class accel.accelerator.DynamoBackend
enum("DynamoBackend", {
  NO = "NO", EAGER = "EAGER", AOT_EAGER = "AOT_EAGER", INDUCTOR = "INDUCTOR", AOT_TS_NVFUSER = "AOT_TS_NVFUSER",
  NVPRIMS_NVFUSER = "NVPRIMS_NVFUSER", CUDAGRAPHS = "CUDAGRAPHS", OFI = "OFI", FX2TRT = "FX2TRT", ONNXRT = "ONNXRT",
  TENSORRT = "TENSORRT", AOT_TORCHXLA_TRACE_ONCE = "AOT_TORCHXLA_TRACE_ONCE",
  TORCHXLA_TRACE_ONCE = "TORCHXLA_TRACE_ONCE", TVM = "TVM", HPU_BACKEND = "HPU_BACKEND", NEURON = "NEURON",
})

--- Types of weights that are narrower than a byte or have no accel dtype.
--- example: accel.accelerator.CustomDtype.INT4 --> "int4"
---@class accel.accelerator.CustomDtype
enum("CustomDtype", { FP8 = "fp8", INT4 = "int4", INT2 = "int2" })

return M
