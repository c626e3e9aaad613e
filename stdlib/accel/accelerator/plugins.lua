--- Plugins of features that Accelerate has and this build does not: making one says so. They are entries so that a
--- ported script gets that message instead of "attempt to call a nil value".
local raise = require "accel.util.raise"

local M = {}

for name, feature in next, {
  DeepSpeedPlugin = "sharding by DeepSpeed's options", FullyShardedDataParallelPlugin = "sharding of models",
  MegatronLMPlugin = "Megatron-LM", TorchTensorParallelPlugin = "tensor parallelism",
  ParallelismConfig = "a mesh of parallelisms", TorchDynamoPlugin = "compilation",
  TERecipeKwargs = "fp8 by TransformerEngine", AORecipeKwargs = "fp8 by torchao", MSAMPRecipeKwargs = "fp8 by MS-AMP",
  FP8RecipeKwargs = "fp8",
} do
  --- Not in this build: raises, and names the feature.
  --- example: (pcall(accel.accelerator.DeepSpeedPlugin, {})) --> false
  M[name] = function() raise("%s: %s is not in this build", name, feature) end
end

return M
