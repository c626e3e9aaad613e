-- What accelerate.utils and accelerate.data_loader offer without an Accelerator: loaders, waiting, unwrapping, saving;
-- enumerations, names of files, and questions about the installation. On 1, 2 and 4 ranks.
--   accel-run tests/stdlib/accelerator/standalone_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data, dist = accel.accelerator, accel.data, accel.dist

if ranks.start { 1, 2, 4 } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

local function loader_of(n, size) return data.DataLoader(data.TensorDataset(accel.arange(n)), { batch_size = size }) end

local function read(loader)
  local batches, ends = {}, {}
  for batch in loader() do
    batches[#batches + 1] = batch[1]:tolist()
    ends[#ends + 1] = loader.end_of_dataloader
  end
  for k, last in ipairs(ends) do assert(last == (k == #ends)) end
  assert(#loader == #batches)
  return batches
end

-- ---- loaders ----

do -- for any number of processes: the tables of the reference's own tests
  local function shard(n, size, num, index, opts)
    opts = opts or {}
    opts.num_processes, opts.process_index = num, index
    return read(A.prepare_data_loader(loader_of(n, size), opts))
  end
  same(shard(22, 3, 2, 1)[4], { 21, 0, 1 }, "the tail is looped back")
  same(shard(20, 3, 2, 0)[4], { 18, 19, 0 }, "rank 0")
  same(shard(20, 3, 2, 1)[4], { 1, 2, 3 }, "rank 1")
  same(shard(20, 3, 2, 0, { even_batches = false })[4], { 18, 19 }, "uneven")
  assert(#shard(20, 3, 2, 1, { even_batches = false }) == 3)
  same(shard(2, 3, 2, 1), { { 1, 0, 1 } }, "fewer samples than a batch")
  same(shard(21, 4, 2, 0, { split_batches = true })[6], { 20, 0 }, "split")
  same(shard(7, 2, 4, 3), { { 6, 0 } }, "four processes")
  says("split_batches", shard, 12, 3, 2, 0, { split_batches = true })
  says("process_index is 2, there are 2 processes", shard, 12, 3, 2, 2)
  says("did you mean 'even_batches'", shard, 12, 3, 2, 1, { even_batchs = false })
end

do -- for those of this run, also read by rank 0
  for _, dispatch in ipairs { false, true } do
    local opts = { dispatch_batches = dispatch, put_on_device = true }
    local loader = A.prepare_data_loader(loader_of(8 * P, 2), "cpu", opts)
    local own = read(loader)
    assert(#own == 4 and loader.total_batch_size == 2 * P)
    local all = dist.all_gather_object(own)
    local seen = {}
    for k = 1, 4 do
      for r = 1, P do table.move(all[r][k], 1, 2, #seen + 1, seen) end
    end
    for i, v in ipairs(seen) do assert(v == i - 1) end
  end
  says("dispatch_batches sends batches to the " .. P .. " processes", A.prepare_data_loader, loader_of(8, 2),
    { num_processes = P + 1, process_index = 0, dispatch_batches = true })
end

-- ---- waiting, unwrapping, saving ----

do
  local file = dist.all_gather_object(os.tmpname())
  for turn = 1, 3 do
    if R == P - 1 then
      local f <close> = assert(io.open(file[P], "a"))
      f:write(turn)
    end
    A.wait_for_everyone()
    local f <close> = assert(io.open(file[P]))
    assert(#f:read "a" == turn)
    A.wait_for_everyone()
  end
  A.save({ x = accel.full({ 2 }, R) }, file[1] .. ".safetensors")
  A.wait_for_everyone()
  same(assert(A.load(file[1] .. ".safetensors")).x, { 0, 0 }, "the main process writes")
  A.save({ x = accel.full({ 2 }, R) }, file[R + 1] .. ".own", { save_on_each_node = true })
  assert((io.open(file[R + 1] .. ".own") ~= nil) == (dist.get_local_rank() == 0))
  if R == 0 then says("No such file or directory", A.save, { x = accel.ones(1) }, "/nowhere/x.safetensors") end
  A.wait_for_everyone()
  for _, ending in ipairs { "", ".safetensors", ".own" } do os.remove(file[R + 1] .. ending) end
end

do
  local a = accel.Accelerator { mixed_precision = "bf16" }
  local net = accel.nn.Sequential(accel.nn.Linear(2, 2))
  local model = a:prepare(net)
  local function dtypes()
    local inside
    local hook = net[1]:register_forward_hook(function(_, _, out) inside = out.dtype end)
    net(accel.ones(1, 2))
    hook:remove()
    return inside
  end
  assert(A.extract_model_from_parallel(model) == net and (model ~= net) == (P > 1) and dtypes() == "bf16")
  assert(A.extract_model_from_parallel(net) == net, "without a wrapper")
  assert(A.extract_model_from_parallel(model, { keep_fp32_wrapper = false }) == net and dtypes() == "f32")
  local DDP = accel.nn.parallel.DistributedDataParallel
  local outer = accel.nn.Sequential(DDP(accel.nn.Linear(2, 2)))
  assert(A.extract_model_from_parallel(outer) == outer and rawget(outer[1], "reducer"))
  assert(A.extract_model_from_parallel(outer, { recursive = true }) == outer and not rawget(outer[1], "reducer"))
  says("extract_model_from_parallel", A.extract_model_from_parallel, 3)
  A.AcceleratorState._reset_state(true)
end

-- ---- words ----

do
  assert(A.MODEL_NAME == "pytorch_model" and A.SAFE_MODEL_NAME == "model" and A.OPTIMIZER_NAME == "optimizer")
  assert(A.SCHEDULER_NAME == "scheduler" and A.SAMPLER_NAME == "sampler" and A.SCALER_NAME == "scaler.pt")
  assert(A.RNG_STATE_NAME == "random_states" and A.PROFILE_PATTERN_NAME == "profile_{suffix}.json")
  assert(A.WEIGHTS_NAME == "pytorch_model.bin" and A.WEIGHTS_INDEX_NAME == "pytorch_model.bin.index.json")
  assert(A.SAFE_WEIGHTS_NAME == "model.safetensors" and A.SAFE_WEIGHTS_INDEX_NAME == "model.safetensors.index.json")
  assert(A.WEIGHTS_PATTERN_NAME == "pytorch_model{suffix}.bin")
  assert(A.SAFE_WEIGHTS_PATTERN_NAME == "model{suffix}.safetensors")
end

do
  for name, members in accel.pairs {
    LoggerType = { ALL = "all", TENSORBOARD = "tensorboard", WANDB = "wandb", COMETML = "comet_ml" },
    PrecisionType = { NO = "no", FP8 = "fp8", FP16 = "fp16", BF16 = "bf16" },
    ComputeEnvironment = { LOCAL_MACHINE = "LOCAL_MACHINE", AMAZON_SAGEMAKER = "AMAZON_SAGEMAKER" },
    RNGType = { TORCH = "torch", CUDA = "cuda", XLA = "xla", GENERATOR = "generator" },
    DistributedType = { NO = "NO", MULTI_CPU = "MULTI_CPU", MULTI_GPU = "MULTI_GPU", FSDP = "FSDP", XLA = "XLA" },
    DynamoBackend = { NO = "NO", INDUCTOR = "INDUCTOR" }, SageMakerDistributedType = { DATA_PARALLEL = "DATA_PARALLEL" },
    DDPCommunicationHookType = { POWER_SGD = "power_sgd" }, CustomDtype = { INT4 = "int4" },
  } do
    local enum = A[name]
    assert(enum == accel[name], name)
    for key, value in accel.pairs(members) do assert(enum[key] == value, name .. "." .. key) end
    says(name .. " has no 'NO_SUCH_MEMBER'", function() return enum.NO_SUCH_MEMBER end)
  end
  local a = accel.Accelerator { mixed_precision = accel.PrecisionType.BF16, dynamo_backend = accel.DynamoBackend.NO }
  assert(a.mixed_precision == accel.PrecisionType.BF16)
  assert(a.distributed_type ~= accel.DistributedType.FSDP)
  A.AcceleratorState._reset_state(true)
end

do
  for _, name in ipairs { "bf16", "fp16", "fp8", "tqdm", "schedulefree", "tensorboard" } do
    assert(A[("is_%s_available"):format(name)]() == true, name)
  end
  for _, name in ipairs { "deepspeed", "mps", "npu", "xpu", "torch_xla", "ipex", "wandb", "rich",
    "transformers", "4bit_bnb", "megatron_lm", "msamp", "torchao" } do
    assert(A[("is_%s_available"):format(name)]() == false, name)
  end
  assert(A.is_bf16_available(true) and A.is_cuda_available() == (accel.features().devices.cuda.count > 0))
  assert(A.is_no_such_thing_available == nil)
end

do -- every name that accelerate and accelerate.utils export is here, or says what to use
  local absent = require "accel.util.absent"
  for name in ([[Accelerator PartialState AutocastKwargs DataLoaderConfiguration DDPCommunicationHookType DeepSpeedPlugin
    DistributedDataParallelKwargs DistributedType FullyShardedDataParallelPlugin GradScalerKwargs InitProcessGroupKwargs
    ProfileKwargs ParallelismConfig cpu_offload cpu_offload_with_hook disk_offload dispatch_model init_empty_weights
    init_on_device load_checkpoint_and_dispatch skip_first_batches attach_layerwise_casting_hooks prepare_pippy
    debug_launcher notebook_launcher find_executable_batch_size infer_auto_device_map is_rich_available
    load_checkpoint_in_model synchronize_rng_states MODEL_NAME OPTIMIZER_NAME PROFILE_PATTERN_NAME RNG_STATE_NAME
    SAFE_MODEL_NAME SAFE_WEIGHTS_INDEX_NAME SAFE_WEIGHTS_NAME SAFE_WEIGHTS_PATTERN_NAME SAMPLER_NAME SCALER_NAME
    SCHEDULER_NAME WEIGHTS_INDEX_NAME WEIGHTS_NAME WEIGHTS_PATTERN_NAME BnbQuantizationConfig ComputeEnvironment
    CustomDtype DynamoBackend FP8RecipeKwargs GradientAccumulationPlugin KwargsHandler LoggerType MegatronLMPlugin
    PrecisionType ProjectConfiguration RNGType SageMakerDistributedType TensorInformation TorchDynamoPlugin
    TorchTensorParallelPlugin add_model_config_to_megatron_parser are_libraries_initialized check_cuda_p2p_ib_support
    check_fp8_capability clear_environment convert_dict_to_env_variables get_cpu_distributed_information get_gpu_info
    get_int_from_env parse_choice_from_env parse_flag_from_env patch_environment purge_accelerate_environment
    set_numa_affinity str_to_bool deepspeed_required get_ccl_version align_module_device calculate_maximum_sizes
    check_device_map check_tied_parameters_in_config check_tied_parameters_on_same_device compute_module_sizes
    convert_file_size_to_int dtype_byte_size find_tied_parameters get_balanced_memory get_grad_scaler get_max_layer_size
    get_max_memory get_mixed_precision_context_manager has_offloaded_params id_tensor_storage is_peft_model
    load_offloaded_weights load_state_dict named_module_tensors retie_parameters set_module_tensor_to_device
    OffloadedWeightsLoader PrefixedDataset extract_submodules_state_dict load_offloaded_weight offload_state_dict
    offload_weight save_offload_index CannotPadNestedTensorWarning GatheredParameters broadcast broadcast_object_list
    concatenate convert_outputs_to_fp32 convert_to_fp32 copy_tensor_to_devices find_batch_size find_device gather
    gather_object get_data_structure honor_type ignorant_find_batch_size initialize_tensors is_namedtuple
    is_tensor_information is_torch_tensor listify pad_across_processes pad_input_tensors recursively_apply reduce
    send_to_device slice_tensors compare_versions is_torch_version DeepSpeedEngineWrapper DeepSpeedOptimizerWrapper
    DeepSpeedSchedulerWrapper DummyOptim DummyScheduler HfDeepSpeedConfig get_active_deepspeed_plugin
    map_pytorch_optim_to_deepspeed has_4bit_bnb_layers load_and_quantize_model disable_fsdp_ram_efficient_loading
    enable_fsdp_ram_efficient_loading ensure_weights_retied load_fsdp_model load_fsdp_optimizer merge_fsdp_weights
    save_fsdp_model save_fsdp_optimizer PrepareForLaunch AbstractTrainStep BertTrainStep GPTTrainStep
    MegatronLMDummyDataLoader MegatronLMDummyScheduler T5TrainStep avg_losses_across_data_parallel_group release_memory
    check_os_kernel clean_state_dict_for_safetensors convert_bytes extract_model_from_parallel get_pretty_name
    is_port_in_use load merge_dicts recursive_getattr save wait_for_everyone write_basic_config set_seed
    synchronize_rng_state install_xla tqdm apply_fp8_autowrap contextual_fp8_autocast convert_model
    has_transformer_engine_layers GeneralTracker TensorBoardTracker WandBTracker CometMLTracker AimTracker MLflowTracker
    ClearMLTracker DVCLiveTracker get_logger LocalSGD prepare_data_loader AcceleratorState GradientState
    AcceleratedOptimizer AcceleratedScheduler]]):gmatch "%S+" do
    local ok, value = pcall(function() return A[name] end)
    if ok then assert(value ~= nil, name) else assert(absent.explain(name), name) end
  end
end

do -- attributes of Accelerator
  local a = accel.Accelerator()
  for _, name in ipairs { "deepspeed_plugin", "parallelism_config", "torch_device_mesh", "fp8_backend" } do
    assert(a[name] == nil, name)
  end
  assert(a.is_fsdp2 == false and a.is_composable_parallelism_enabled == false)
  assert(a.should_save_model == (dist.get_local_rank() == 0))
  assert(a.tensor_parallel_rank == 0) -- of a mesh of one
  says("Accelerator:lomo_backward is not in accel yet", function() return a.lomo_backward end)
  says("get_deepspeed_plugin: there is no DeepSpeedPlugin", a.state.get_deepspeed_plugin, a.state, "one")
  local said, n = {}, 0
  function a:_warn(text) said[#said + 1] = text end -- luacheck: ignore
  assert(a:maybe_context_parallel({ buffers = { accel.ones(1) } }, function() return 7 end) == 7 and #said == 1)
  do
    local _ <close> = a:maybe_context_parallel()
    n = n + 1
  end
  says("did you mean 'buffers'", a.maybe_context_parallel, a, { bufers = {} })
end

do -- sizes, as the reference's tests have them
  for size, bytes in accel.pairs { ["0MB"] = 0, ["100MB"] = 100000000, ["2GiB"] = 2147483648, ["512KiB"] = 524288,
    ["1.5GB"] = 1500000000, ["100KB"] = 100000, ["8Kb"] = 1000 } do
    assert(A.convert_file_size_to_int(size) == bytes, size)
  end
  assert(A.convert_file_size_to_int(500) == 500)
  for _, size in ipairs { "5MBB", "5k0MB", "-1GB", "GB", "" } do says("invalid size '", A.convert_file_size_to_int, size) end
  assert(A.dtype_byte_size "f32" == 4 and A.dtype_byte_size "bf16" == 2 and A.dtype_byte_size "bool" == 1 / 8)
end

do
  assert(A.is_torch_tensor(accel.ones(1)) and not A.is_torch_tensor { 1 })
  local net = accel.nn.Sequential(accel.nn.Linear(2, 3))
  assert(A.recursive_getattr({ model = { net = net } }, "model.net") == net)
  local list = accel.nn.ModuleList { accel.nn.Linear(1, 2), accel.nn.Linear(2, 3) } -- keys of a state dict count from 0
  assert(A.recursive_getattr({ h = list }, "h.1.weight") == list:get_parameter "1.weight")
  assert(A.recursive_getattr(list, "0.weight") == list:get_parameter "0.weight" and A.recursive_getattr({ 5, 6 }, "2") == 6)
  A.patch_environment({ ACCELERATE_CHOICE = "yes" }, function()
    assert(A.parse_choice_from_env "ACCELERATE_CHOICE" == "yes")
  end)
  assert(A.parse_choice_from_env "ACCELERATE_CHOICE" == "no" and A.parse_choice_from_env("NOT_SET", "bf16") == "bf16")
end
