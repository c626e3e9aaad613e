--- Rows of util/absent.lua for the internals of Accelerate 1.15: names of accelerate.utils, data_loader, inference and others that
--- documentation lists or scripts import. A row: false; what to use; the names, of which "Class#name" is a method or field.
return {
  -- versions, devices and what a machine can do
  { false, "accel.features() tells what this build can do",
    [[MITA_PROFILING_AVAILABLE_PYTORCH_VERSION XPU_PROFILING_AVAILABLE_PYTORCH_VERSION is_amdsmi_available is_matplotlib_available
      is_rocm_available is_transformer_engine_mxfp8_available check_cuda_fp8_capability get_driver_version is_torch_xpu_tensor]] },
  { false, "a tensor's device is t.device, the device of new tensors is accel.PartialState().device",
    "get_current_device_type get_parameter_device" },
  { false, "accel.empty_cache() frees the unused memory of a device", "clear_device_cache" },
  { false, "accel.PartialState() knows the ranks: process_index, num_processes, local_process_index", "CPUInformation" },
  { false, "`accel-run --help` lists the options of a launch", "TORCH_LAUNCH_PARAMS" },
  { false, "a function of its own does nothing: function() end", "do_nothing" },
  { false, "accel.PartialState() and accel.AcceleratorState() are tables of this process", "ThreadLocalSharedDict" },
  { false, "torchao is not called: accel.AORecipeKwargs describes its recipe", "torchao_required" },
  -- launches
  { false, "`accel-run --num-processes 4 train.lua` starts ranks, with the environment that they need",
    "prepare_deepspeed_cmd_env prepare_multi_gpu_env prepare_simple_launcher_cmd_env test_launch" },
  { false, "there are CPUs and CUDA GPUs, no TPU and no SageMaker", "prepare_tpu prepare_sagemager_args_inputs" },
  -- sharding, compilation, tensor parallelism
  { false, "accelerator:prepare(model) shards a model by accel.FullyShardedDataParallelPlugin { fsdp_version = 2 }",
    [[fsdp2_apply_ac fsdp2_canonicalize_names fsdp2_load_full_state_dict fsdp2_prepare_model fsdp2_switch_optimizer_parameters
      fsdp2_prepare_auto_wrap_policy get_fsdp2_grad_scaler get_parameters_from_modules get_module_children_bottom_up]] },
  { false, "accel.accelerator.compile_regions(model) compiles the repeated blocks of a model",
    "compile_regions_deepspeed compile_regions_fsdp2 is_repeated_blocks has_repeated_blocks" },
  { false,
    "accel.Accelerator { parallelism_config = accel.ParallelismConfig { tp_size = 2 } } states the size; parameters keep their names and shapes",
    "model_has_dtensor get_model_tp_size" },
  { false, "the functions of the Megatron step are methods of accel.accelerator.GPTTrainStep; accelerator:prepare makes the rest",
    "model_provider_func prepare_model_optimizer_scheduler prepare_optimizer prepare_scheduler finish_mpu_init initialize" },
  -- loaders
  { false, "accelerator:prepare(loader) gives an accel.accelerator.DataLoader, which shards or dispatches by its configuration",
    [[DataLoaderShard DataLoaderDispatcher DataLoaderStateMixin DataLoaderAdapter get_sampler]] },
  { false, "accel.skip_first_batches(loader, n) skips batches", "SkipBatchSampler SkipDataLoader" },
  { false, "the order of accel.data.RandomSampler is a function of seed and epoch on every rank", "SeedableRandomSampler" },
  -- optimizers, checkpoints, trackers, logging
  { false, "accelerator:prepare(optimizer) moves its state and counts its steps", "move_to_device patch_optimizer_step" },
  { false, "accelerator:register_for_checkpointing(object) saves an object with the run", "save_custom_state load_custom_state" },
  { false, "accelerator:on_main_process(fn) runs a function on the main process", "on_main_process" },
  { false, "accel.Accelerator { log_with = ... } takes the names of trackers", "get_available_trackers filter_trackers" },
  { false, "accel.get_logger(name) writes on the main process, or in the order of ranks", "MultiProcessAdapter" },
  -- pipelines
  { false, "accel.accelerator.prepare_pippy(model) cuts a model into stages",
    "generate_device_map find_pippy_batch_size build_pipeline pippy_forward" },
  -- big models
  { false, "accel.infer_auto_device_map(model) places the parts of a model, tied parameters included",
    "check_device_same get_module_leaves get_module_size_with_ties fallback_allocate" },
  { false, "module:named_buffers() lists buffers; those that are not persistent are missing in module:state_dict()", "get_non_persistent_buffers" },
  { false, "accelerator:get_state_dict(model) reads offloaded weights as well", "get_state_dict_offloaded_model get_state_dict_from_offload" },
  { false, "accel.load_and_quantize_model(model, config) replaces layers; config.skip_modules names those that stay",
    [[get_quantized_model_device_map quantize_and_offload_8bit]] },
  -- operations
  { false, "accel.accelerator.get_data_structure(t) gives shapes and dtypes of a nested structure", "get_shape gather_tensor_shape" },
  { false, "every collective compares shapes, dtypes and order on all ranks; a difference is an error that names the ranks",
    "TORCH_DISTRIBUTED_OPERATION_TYPES verify_operation chained_operation" },
  { false, "accel.accelerator.convert_outputs_to_fp32(fn) does it", "ConvertOutputsToFp32" },
  -- DeepSpeed's functions and methods
  { false, "`accel-run merge-weights DIR OUT` or accel.load(folder) gives whole weights of a checkpoint",
    "get_fp32_state_dict_from_zero_checkpoint load_state_dict_from_zero_checkpoint convert_zero_checkpoint_to_fp32_state_dict zero_to_fp32" },
  { false, "accelerator:save_state(folder) writes the checkpoint of all ranks", "Module#save_checkpoint" },
  { false, "accelerator:load_state(folder) reads the checkpoint of all ranks", "Module#load_checkpoint" },
  -- options of functions: "function#option"
  { false, "the state dict is of the unwrapped model, whose names never change", "get_state_dict#unwrap" },
  { false, "load_state is strict; map_location is its only option", "load_state#strict load_state#load_kwargs" },
  { false, "values go to the device at once, and memory is freed as soon as it is unreachable",
    "set_module_tensor_to_device#clear_cache set_module_tensor_to_device#non_blocking" },
  { false, "quantised values carry their statistics: give the value as it was saved", "set_module_tensor_to_device#fp16_statistics" },
  { false, "tied tensors stay tied by accel.accelerator.retie_parameters(model, tied)", "set_module_tensor_to_device#tied_params_map" },
  { false, "opt_level is a field of MSAMPRecipeKwargs: accel.FP8RecipeKwargs { backend = \"MSAMP\", opt_level = \"O2\" }",
    "TERecipeKwargs#opt_level TERecipeKwargs#optimization_level MSAMPRecipeKwargs#optimization_level" },
  { false, "give positions: slice_tensors(data, first, last), counted from 1, both included",
    "slice_tensors#tensor_slice slice_tensors#process_index slice_tensors#num_processes" },
  { false, "there is no TPU: mixed_precision = \"bf16\" computes in bf16", "Accelerator#downcast_bf16" },
  -- flags of commands, with underscores
  { false, "oneDNN's kernels are used wherever they are installed; there is no IPEX", "--ipex" },
  { false, "there are CPUs and CUDA GPUs, no XPU", "--use_xpu" },
  -- members of enumerations and sections of configurations that newer versions of Accelerate renamed or dropped
  { false, "the member is DistributedType.XLA; there are CPUs and CUDA GPUs, no TPU", "DistributedType#TPU" },
  { false, "leave it out: oneDNN's kernels are used wherever they are installed", "ipex_config" },
  -- members of plugins and classes: the constructor does what these methods do in Accelerate
  { false, "give the options to the constructor, accel.FullyShardedDataParallelPlugin { auto_wrap_policy = ..., cpu_offload = ... }",
    [[FullyShardedDataParallelPlugin#set_auto_wrap_policy FullyShardedDataParallelPlugin#set_cpu_offload
      FullyShardedDataParallelPlugin#validate_cpu_offload FullyShardedDataParallelPlugin#validate_mixed_precision_policy]] },
  { false,
    "accel.Accelerator { deepspeed_plugin = { a = plugin, b = plugin } } takes several, accelerator.state:select_deepspeed_plugin(name) picks one",
    "DeepSpeedPlugin#select DeepSpeedPlugin#set_deepspeed_weakref" },
  { false, "name the classes in the constructor: accel.DeepSpeedPlugin { transformer_moe_cls_names = ... }", "DeepSpeedPlugin#set_moe_leaf_modules" },
  { false, "give the values to the constructor, accel.MegatronLMPlugin { ... }; prepare reads the model, the optimizer and the schedule",
    [[MegatronLMPlugin#set_mixed_precision MegatronLMPlugin#set_network_size_args MegatronLMPlugin#set_optimizer_type
      MegatronLMPlugin#set_scheduler_args MegatronLMPlugin#set_tensorboard_logging_options MegatronLMPlugin#set_training_args]] },
  { false, "override get_batch(batch), which gets each batch of the prepared loader",
    [[AbstractTrainStep#get_batch_func BertTrainStep#get_batch_func GPTTrainStep#get_batch_func T5TrainStep#get_batch_func
      AbstractTrainStep#get_forward_step_func BertTrainStep#get_forward_step_func GPTTrainStep#get_forward_step_func
      T5TrainStep#get_forward_step_func]] },
  { false, "the model makes its masks from attention_mask and decoder_attention_mask",
    "T5TrainStep#attn_mask_postprocess T5TrainStep#get_decoder_mask T5TrainStep#get_enc_dec_mask" },
  { false, "accelerator:prepare reads its data sets, which the constructor takes",
    [[MegatronLMDummyDataLoader#build_train_valid_test_data_iterators MegatronLMDummyDataLoader#get_train_valid_test_datasets_provider
      MegatronLMDummyDataLoader#set_megatron_data_args]] },
  { false, "accelerator:prepare makes the mesh; accel.parallel.init_device_mesh makes one by hand",
    "ParallelismConfig#build_device_mesh ParallelismConfig#get_device_mesh" },
}
