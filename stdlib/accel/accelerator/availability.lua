--- is_*_available(): the installation checks of accelerate.utils, answered for this build. Python packages are never
--- available. Devices and formats are those accel supports.
local accel = require "accel"

local M = {}

local function cuda() return accel.features().devices.cuda.count > 0 end

--- Whether a CUDA GPU can be used.
--- example: accel.accelerator.is_cuda_available() == (accel.features().devices.cuda.count > 0) --> true
---@return boolean
function M.is_cuda_available() return cuda() end

--- Whether mixed_precision = "bf16" can be asked for: on every device here.
--- example: accel.accelerator.is_bf16_available() --> true
---@param ignore_tpu? boolean without effect: there are none
---@return boolean
function M.is_bf16_available(ignore_tpu, ...)
  require "accel.util.check".surplus("is_bf16_available", ...)
  require "accel.util.no_effect"("accel.accelerator.is_bf16_available", { ignore_tpu = ignore_tpu })
  return true
end

--- Whether mixed_precision = "fp16" can be asked for: on every device here.
--- example: accel.accelerator.is_fp16_available() --> true
---@return boolean
function M.is_fp16_available() return true end

-- Features that accel has built in and for which Accelerate needs a package or a chip.
for name in ("fp8 tqdm schedulefree torchdata_stateful_dataloader weights_only tensorboard mlflow trackio clearml comet_ml dvclive"):gmatch "%S+" do
  --- Always true: it is part of accel.
  --- example: accel.accelerator.is_tqdm_available() --> true
  ---@return boolean
  M[("is_%s_available"):format(name)] = function() return true end
end

-- Other devices and formats, and packages of Python.
for name in ([[mps npu xpu hpu mlu musa sdaa neuron torch_xla ipex ccl xccl transformer_engine torchao msamp
  4bit_bnb 8bit_bnb bnb bitsandbytes_multi_backend deepspeed megatron_lm lomo pippy aim
  swanlab wandb boto3 sagemaker datasets transformers timm peft torchdata torchvision triton pandas
  pynvml pytest rich import_timer]]):gmatch "%S+" do
  --- Always false, for every min_version: accel uses no such package, and no such device or format.
  --- example: accel.accelerator.is_mps_available "2.0" --> false
  ---@return boolean
  M[("is_%s_available"):format(name)] = function(_) return false end
end

return M
