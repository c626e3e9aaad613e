--- Names of files that Accelerate writes, from accelerate.utils, for scripts that read its folders. Files that accel
--- writes itself are safetensors.
local M = {}

--- Names of files, without the number of a shard or rank.
--- example: accel.accelerator.SAFE_WEIGHTS_NAME, accel.accelerator.RNG_STATE_NAME --> "model.safetensors", "random_states"
for name, value in next, {
  MODEL_NAME = "pytorch_model", SAFE_MODEL_NAME = "model", OPTIMIZER_NAME = "optimizer", SCHEDULER_NAME = "scheduler",
  SAMPLER_NAME = "sampler", SCALER_NAME = "scaler.pt", RNG_STATE_NAME = "random_states",
  PROFILE_PATTERN_NAME = "profile_{suffix}.json",
  WEIGHTS_NAME = "pytorch_model.bin", WEIGHTS_PATTERN_NAME = "pytorch_model{suffix}.bin",
  WEIGHTS_INDEX_NAME = "pytorch_model.bin.index.json",
  SAFE_WEIGHTS_NAME = "model.safetensors", SAFE_WEIGHTS_PATTERN_NAME = "model{suffix}.safetensors",
  SAFE_WEIGHTS_INDEX_NAME = "model.safetensors.index.json", FSDP_MODEL_NAME = "pytorch_model_fsdp",
} do
  M[name] = value
end

return M
