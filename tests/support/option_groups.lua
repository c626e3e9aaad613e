--- Which test sweeps which entries of a folder that several tests share, so that a new function or class of it belongs to one of them
--- without anybody remembering: what no other group has is in "functions". Used by tests in tests/options.
local M = {}

local function set(text)
  local names = {}
  for name in text:gmatch "%S+" do names["accel.accelerator." .. name] = true end
  return names
end

local groups = {
  settings = set [[Accelerator AutocastKwargs DataLoaderConfiguration DistributedDataParallelKwargs FullyShardedDataParallelPlugin
    GradScalerKwargs GradientAccumulationPlugin InitProcessGroupKwargs MegatronLMPlugin ParallelismConfig PipelineParallelConfig
    ProfileKwargs ProjectConfiguration TERecipeKwargs AORecipeKwargs MSAMPRecipeKwargs TorchContextParallelConfig TorchDynamoPlugin
    TorchTensorParallelConfig DeepSpeedPlugin DeepSpeedSequenceParallelConfig]],
  models = set [[AlignDevicesHook CpuOffload OffloadedWeightsLoader add_hook_to_module remove_hook_from_module align_module_device
    attach_align_device_hook attach_execution_device_hook attach_layerwise_casting_hooks clean_device_map compute_module_sizes
    compute_module_total_buffer_size cpu_offload cpu_offload_with_hook disk_offload dispatch_model get_balanced_memory get_max_layer_size
    get_max_memory infer_auto_device_map init_empty_weights init_on_device load_checkpoint_and_dispatch load_checkpoint_in_model
    load_offloaded_weight named_module_tensors offload_weight set_module_tensor_to_device send_to_device]],
}

local function group_of(entry)
  local path = entry.path or ""
  local elsewhere = path:find "/accel/track/" or path:find "/accel/quant/" or path:find "/accel/data/"
  if elsewhere and not entry.name:find "%.GeneralTracker" then return "of another folder" end
  for name, members in pairs(groups) do
    if members[entry.name] then return name end
  end
  if entry.name:find "^accel%.accelerator%.Accelerator:" or entry.name:find "^accel%.accelerator%.PartialState:" then return "methods" end
  if entry.name:find "_launcher$" or entry.kind == "class" or entry.name:find ":" then return "classes" end
  return "functions"
end

--- The entries of a group: settings, models, methods, classes (and launchers), functions.
---@param name string
---@return fun(entry: table): boolean
function M.accelerator(name)
  return function(entry) return group_of(entry) == name end
end

return M
