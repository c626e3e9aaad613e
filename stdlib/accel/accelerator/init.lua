--- accel.accelerator: the names of `accelerate` and `accelerate.utils`, loaded on first use. The most used ones are
--- entries of accel as well: accel.Accelerator, accel.set_seed ...
local home = {
  Accelerator = "accelerator", PartialState = "state", AcceleratorState = "state", GradientState = "gradient_view",
  AcceleratedOptimizer = "optimizer", AcceleratedScheduler = "scheduler", DataLoader = "loader",
  DataLoaderConfiguration = "configuration", ProjectConfiguration = "configuration",
  GradientAccumulationPlugin = "configuration",
  KwargsHandler = "handlers", AutocastKwargs = "handlers", DistributedDataParallelKwargs = "handlers",
  GradScalerKwargs = "handlers", InitProcessGroupKwargs = "handlers", ProfileKwargs = "handlers",
  prepare_pippy = "inference", notebook_launcher = "launchers", debug_launcher = "launchers",
  FullyShardedDataParallelPlugin = "plugins.fsdp", DeepSpeedPlugin = "plugins.deepspeed",
  HfDeepSpeedConfig = "plugins.deepspeed", DummyOptim = "accel.deepspeed.dummies", DummyScheduler = "accel.deepspeed.dummies",
  DeepSpeedEngineWrapper = "accel.deepspeed.engine",
  GatheredParameters = "accel.deepspeed.zero", MegatronLMPlugin = "plugins.megatron",
  MegatronLMDummyScheduler = "megatron_schedule", MegatronLMDummyDataLoader = "megatron_data",
  AbstractTrainStep = "megatron_step", GPTTrainStep = "megatron_step", BertTrainStep = "megatron_step", T5TrainStep = "megatron_step",
  avg_losses_across_data_parallel_group = "data_parallel", gather_across_data_parallel_groups = "data_parallel",
  TorchDynamoPlugin = "plugins.dynamo",
  ParallelismConfig = "plugins.parallelism", TorchTensorParallelConfig = "plugins.parallelism",
  PipelineParallelConfig = "plugins.parallelism",
  TorchContextParallelConfig = "plugins.parallelism", DeepSpeedSequenceParallelConfig = "plugins.parallelism",
  TERecipeKwargs = "plugins.fp8", AORecipeKwargs = "plugins.fp8", MSAMPRecipeKwargs = "plugins.fp8",
  FP8RecipeKwargs = "plugins.fp8",
  is_compiled_module = "accel.compile", has_compiled_regions = "accel.compile", compile_regions = "accel.compile",
  find_first_last_linear_layers = "accel.fp8.convert", filter_linear_layers = "accel.fp8.convert",
  replace_with_bnb_layers = "accel.quant.replace", get_keys_to_not_convert = "accel.quant.replace", is_initialized = "accel.dist",
  BatchSamplerShard = "accel.data.shards", IterableDatasetShard = "accel.data.shards",
  DistributedType = "enums", DDPCommunicationHookType = "enums", PrecisionType = "enums", RNGType = "enums",
  LoggerType = "enums", ComputeEnvironment = "enums", SageMakerDistributedType = "enums", DynamoBackend = "enums",
  CustomDtype = "enums",
  GeneralTracker = "accel.track.general_tracker", LocalSGD = "local_sgd", skip_first_batches = "skip",
  get_logger = "logging", tqdm = "tqdm",
  set_seed = "random", synchronize_rng_state = "random", synchronize_rng_states = "random",
  find_executable_batch_size = "memory", release_memory = "memory", convert_bytes = "accel.util.sizes",
  convert_file_size_to_int = "accel.util.sizes", dtype_byte_size = "accel.nn.module_sizes",
  compute_module_sizes = "accel.nn.module_sizes", compute_module_total_buffer_size = "accel.nn.module_sizes",
  calculate_maximum_sizes = "accel.nn.module_sizes", get_max_layer_size = "accel.nn.module_sizes", named_module_tensors = "accel.nn.module_sizes",
  find_tied_parameters = "accel.nn.module_sizes", get_max_memory = "device_map", get_balanced_memory = "device_map",
  clean_device_map = "device_map", check_device_map = "device_map", infer_auto_device_map = "device_map",
  check_tied_parameters_on_same_device = "device_map",
  BnbQuantizationConfig = "accel.quant.config", load_and_quantize_model = "accel.quant.load",
  init_empty_weights = "big_modeling", init_on_device = "big_modeling", cpu_offload = "big_modeling",
  cpu_offload_with_hook = "big_modeling", disk_offload = "big_modeling", dispatch_model = "big_modeling",
  load_checkpoint_and_dispatch = "big_modeling", attach_layerwise_casting_hooks = "big_modeling",
  ModelHook = "model_hooks", SequentialHook = "model_hooks", AlignDevicesHook = "model_hooks", CpuOffload = "model_hooks",
  UserCpuOffloadHook = "model_hooks", LayerwiseCastingHook = "model_hooks", add_hook_to_module = "model_hooks",
  remove_hook_from_module = "model_hooks", remove_hook_from_submodules = "model_hooks",
  attach_align_device_hook = "model_hooks", attach_execution_device_hook = "model_hooks",
  offload_weight = "offload_folder", load_offloaded_weight = "offload_folder", offload_state_dict = "offload_folder",
  save_offload_index = "offload_folder", extract_submodules_state_dict = "offload_folder",
  OffloadedWeightsLoader = "offload_folder", PrefixedDataset = "offload_folder",
  set_module_tensor_to_device = "module_tensors", retie_parameters = "module_tensors", id_tensor_storage = "module_tensors",
  has_offloaded_params = "module_tensors", align_module_device = "module_tensors",
  should_reduce_batch_size = "memory", get_pretty_name = "memory", merge_dicts = "memory",
  enable_fsdp_ram_efficient_loading = "accel.shard.efficient_loading",
  disable_fsdp_ram_efficient_loading = "accel.shard.efficient_loading",
  TensorBoardTracker = "accel.track.tensorboard", MLflowTracker = "accel.track.mlflow", TrackioTracker = "accel.track.trackio",
  ClearMLTracker = "accel.track.clearml", CometMLTracker = "accel.track.comet_ml", DVCLiveTracker = "accel.track.dvclive",
  WandBTracker = "accel.track.wandb", AimTracker = "accel.track.by_events", SwanLabTracker = "accel.track.by_events",
  register_tracker_class = "accel.track.general_tracker", load_checkpoint_in_model = "load_checkpoint",
  prepare_data_loader = "standalone", wait_for_everyone = "standalone", extract_model_from_parallel = "standalone",
  save = "standalone", load = "standalone", is_torch_tensor = "standalone", recursive_getattr = "standalone",
  str_to_bool = "environment", parse_flag_from_env = "environment", get_int_from_env = "environment",
  parse_choice_from_env = "environment",
  patch_environment = "environment", clear_environment = "environment",
  purge_accelerate_environment = "environment",
  recursively_apply = "operations", send_to_device = "operations", find_batch_size = "operations",
  ignorant_find_batch_size = "operations", find_device = "operations", listify = "operations",
  honor_type = "operations", is_tensor_information = "operations", TensorInformation = "operations",
  get_data_structure = "operations", initialize_tensors = "operations",
  gather = "operations", gather_object = "operations", broadcast = "operations",
  broadcast_object_list = "operations", reduce = "operations", pad_across_processes = "operations",
  pad_input_tensors = "operations", concatenate = "operations", slice_tensors = "operations",
  copy_tensor_to_devices = "operations", convert_to_fp32 = "operations", convert_outputs_to_fp32 = "operations",
}

for name in ([[MODEL_NAME SAFE_MODEL_NAME OPTIMIZER_NAME SCHEDULER_NAME SAMPLER_NAME SCALER_NAME RNG_STATE_NAME
  PROFILE_PATTERN_NAME WEIGHTS_NAME WEIGHTS_PATTERN_NAME WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME SAFE_WEIGHTS_PATTERN_NAME
  SAFE_WEIGHTS_INDEX_NAME FSDP_MODEL_NAME]]):gmatch "%S+" do
  home[name] = "constants"
end

for name in ([[cuda bf16 fp16 tqdm schedulefree torchdata_stateful_dataloader weights_only mps npu xpu hpu mlu musa sdaa
  neuron torch_xla ipex ccl xccl fp8 transformer_engine torchao msamp 4bit_bnb 8bit_bnb bnb
  bitsandbytes_multi_backend deepspeed megatron_lm lomo pippy aim clearml comet_ml dvclive mlflow swanlab tensorboard
  trackio wandb boto3 sagemaker datasets transformers timm peft torchdata torchvision triton pandas pynvml pytest rich
  import_timer]]):gmatch "%S+" do
  home[("is_%s_available"):format(name)] = "availability"
end

return require "accel.util.lazy" ("accel.accelerator", home)
