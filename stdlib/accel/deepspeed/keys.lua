--- Every key of a DeepSpeed configuration and what it does here: used; of no effect, and why, where its value differs from the
--- one that means the same as what accel does; or not in accel, which is an error. What DeepSpeed does not know either is an
--- error that names the nearest key. Asked when an Accelerator takes a DeepSpeedPlugin.
local accel = require "accel"
local listed = require("accel.util.options").listed
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

--- A key whose value `plain` says what is done here anyhow; others have no effect, for the reason `why`.
local function idle(why, plain) return { why = why, plain = plain } end

--- A key that is an error unless it has the value `plain`, or a section that is not enabled.
local function refused(use, plain) return { use = use, plain = plain } end

local USED <const> = {}
local LOGS <const> = idle "accel.Accelerator { log_with = ... } and its trackers write runs"
local MEMORY <const> = idle "the pools of accel decide"

local OFFLOAD <const> = {
  device = USED, nvme_path = USED, buffer_count = USED, buffer_size = USED, pin_memory = USED, max_in_cpu = USED,
  pipeline_read = USED, pipeline_write = USED, pipeline = USED, fast_init = USED, ratio = USED,
  super_offload = refused("device = \"cpu\"", false), cpuadam_cores_perc = idle "threads are those of the rank",
}

local ZERO <const> = {
  stage = USED, reduce_bucket_size = USED, overlap_comm = USED, compute_grad_norm = USED, offload_param = OFFLOAD,
  offload_optimizer = OFFLOAD, stage3_param_persistence_threshold = USED, stage3_model_persistence_threshold = USED,
  stage3_prefetch_bucket_size = USED, stage3_gather_16bit_weights_on_model_save = USED,
  stage3_gather_fp16_weights_on_model_save = USED, zero_hpz_partition_size = USED, zero_quantized_weights = USED,
  zero_quantized_gradients = USED, leaf_module = USED, ignore_unused_parameters = USED,
  zero_quantized_nontrainable_weights = idle("frozen parameters are gathered as they are", false),
  contiguous_gradients = idle("gradients of a unit always lie one behind the other", true),
  reduce_scatter = idle("gradients that are cut are always reduced by reduce-scatter", true),
  use_multi_rank_bucket_allreduce = idle("gradients that are cut are always reduced by reduce-scatter", true),
  allgather_partitions = idle("parameters are always gathered by all-gather", true),
  allgather_bucket_size = idle "parameters are gathered unit by unit; reduce_bucket_size bounds a unit",
  load_from_fp32_weights = idle("parameters are fp32 themselves", true),
  elastic_checkpoint = idle "every checkpoint can be loaded on any number of ranks",
  sub_group_size = USED,
  stage3_max_live_parameters = idle "a unit is given back as soon as it is through",
  stage3_max_reuse_distance = idle "a unit is given back as soon as it is through",
  stage3_module_granularity_threshold = idle("name classes in transformer_moe_cls_names", 0),
  stage3_use_all_reduce_for_fetch_params = idle("parameters are always gathered by all-gather", false),
  stage3_allgather_sequential = idle("units come one after the other", false),
  legacy_stage1 = idle("there is one stage 1", false), round_robin_gradients = idle("parts of ranks are equal already", false),
  parameter_alignment = idle("units are cut at multiples of 256 elements", false),
  memory_efficient_linear = idle("layers keep views of parameters, no copies", true), pipeline_loading_checkpoint = MEMORY,
  override_module_apply = idle("modules apply functions as they always do", true),
  log_trace_cache_warnings = idle("there is no trace", false), enable_sanity_checks = idle "collectives are always checked",
  save_muon_momentum_buffer_in_memory = MEMORY,
  cpu_offload = refused('offload_optimizer = { device = "cpu" }', false),
  cpu_offload_param = refused('offload_param = { device = "cpu" }', false),
  cpu_offload_use_pin_memory = refused("offload_optimizer = { pin_memory = true }", false),
  zenflow = refused "offload_optimizer",
}

local ACTIVATIONS <const> = {
  cpu_checkpointing = USED, partition_activations = idle("each rank has its own activations", false),
  contiguous_memory_optimization = MEMORY, synchronize_checkpoint_boundary = idle("there is no stream to wait for", false),
  number_checkpoints = idle "as many as the model has layers", profile = idle("the profiler shows checkpoints", false),
}

local FP16 <const> = {
  enabled = USED, loss_scale = USED, initial_scale_power = USED, loss_scale_window = USED, hysteresis = USED,
  consecutive_hysteresis = USED, min_loss_scale = USED,
  auto_cast = idle("ops that compute in fp16 cast their inputs", true), fp16_opt_level = idle "parameters stay fp32",
  fp16_master_weights_and_grads = refused("fp32 parameters, which are the default", false),
}

local BF16 <const> = {
  enabled = USED, immediate_grad_update = idle("gradients are accumulated where they are reduced from", false),
  check_grad_overflow = idle("steps in bf16 are not checked for overflow", false),
  bf16_master_weights_and_grads = refused("fp32 parameters, which are the default", false),
  bf16_optimizer_states = refused("fp32 states, which are the default", false),
}

local AIO <const> = {
  block_size = USED, queue_depth = USED, thread_count = USED, intra_op_parallelism = USED, single_submit = USED,
  overlap_events = USED, use_gds = refused("reads through the CPU", false),
}

local DATA_TYPES <const> = {
  grad_accum_dtype = idle("gradients are accumulated in fp32", "fp32"),
  param_dtype = idle "parameters have the dtype that the script gave them",
  buffer_dtype = idle "buffers have the dtype that the script gave them",
}

local REDUCED <const> = idle("gradients are reduced in their own dtype, fp32; zero_quantized_gradients lessens what is sent", "fp32")
local TAKEN <const> = idle "accelerator:save_state writes whole checkpoints, in the background if it is to"
local AS_IS <const> = refused "the model as it is"

local KEYS <const> = {
  train_batch_size = USED, train_micro_batch_size_per_gpu = USED, gradient_accumulation_steps = USED,
  gradient_clipping = USED, zero_optimization = ZERO, optimizer = USED, scheduler = USED, fp16 = FP16, bf16 = BF16, aio = AIO,
  data_types = DATA_TYPES, communication_data_type = REDUCED, seq_parallel_communication_data_type = REDUCED,
  steps_per_print = idle("print in the script", math.huge), wall_clock_breakdown = idle("accel.clock() measures", false),
  memory_breakdown = idle("accel.mem_stats() measures", false), timers = idle "accel.clock() measures",
  dump_state = idle("print(accelerator.config) shows it", false), log_level = idle "say it to accel.get_logger",
  zero_allow_untested_optimizer = idle("every optimizer of accel.optim can step on parts", true),
  zero_force_ds_cpu_optimizer = idle("the optimizer is the one that was given", false),
  prescale_gradients = idle("means are taken once, while reducing", false),
  gradient_predivide_factor = idle("means are taken once, while reducing", 1), sparse_gradients = idle("gradients are dense", false),
  gradient_allreduce_op = refused("the mean", "mean"), disable_allgather = refused("stages 0 to 3", false),
  dataloader_drop_last = idle "say drop_last to the DataLoader", disable_python_gc = idle "there is no Python",
  check_overflow = idle("fp16 always looks for overflow", true),
  managed_gradient_accumulation = idle("backward accumulates", true),
  activation_checkpointing = ACTIVATIONS, flops_profiler = idle "accel-run --dry-run counts flops",
  tensorboard = LOGS, wandb = LOGS, comet = LOGS, csv_monitor = LOGS, monitor_config = LOGS,
  comms_logger = idle "accel.dist.records() lists collectives", checkpoint = TAKEN, nebula = TAKEN, datastates_ckpt = TAKEN,
  use_node_local_storage = idle "save_on_each_node says so", compile = idle "ops are native code already",
  autotuning = idle "accel-run --dry-run tells memory and time ahead", vocabulary_size = idle "the model knows its vocabulary",
  elasticity = refused "accel-run --max-restarts", torch_autocast = refused "bf16 = { enabled = true }",
  amp = refused "fp16 = { enabled = true }", tensor_parallel = refused("data parallelism", { autotp_size = 0 }),
  pipeline = refused "blocks in one process", zenflow = refused "offload_optimizer", hybrid_engine = refused "model:generate",
  compression_training = AS_IS, progressive_layer_drop = AS_IS, eigenvalue = AS_IS, quantize_training = AS_IS,
  weight_quantization = AS_IS, sparse_attention = refused "flash attention", data_efficiency = refused "accel.data",
  curriculum_learning = refused "accel.data", use_data_before_expert_parallelism = refused("data parallelism", false),
  msamp = refused "enable_msamp and msamp_opt_level of DeepSpeedPlugin", mics_shard_size = refused("zero_hpz_partition_size", -1),
}

--- Whether a value asks for nothing.
local function off(value, plain)
  if value == nil or value == accel.json.null or value == "auto" or value == plain then return true end
  return type(value) == "table" and (value.enabled == false or next(value) == nil
    or type(plain) == "table" and value.autotp_size == plain.autotp_size)
end

local function walk(config, known, prefix, notes)
  for key, value in accel.pairs(config) do
    local path, entry = prefix .. tostring(key), known[key]
    if entry == nil then
      local near = type(key) == "string" and nearest(key, known)
      raise("DeepSpeed's configuration: '%s' is no key%s", path, near and ("; did you mean '%s%s'?"):format(prefix, near) or listed(known))
    elseif entry.use then
      if not off(value, entry.plain) then raise("DeepSpeed's configuration: %s is not in accel; use %s", path, entry.use) end
    elseif entry.why then
      if not off(value, entry.plain) then notes[#notes + 1] = ("%s (%s)"):format(path, entry.why) end
    elseif entry ~= USED then
      if type(value) == "table" then walk(value, entry, path .. ".", notes)
      elseif value ~= accel.json.null then raise("DeepSpeed's configuration: %s must be a table of keys, got %s", path, tostring(value)) end
    end
  end
end

--- Raises for keys that are unknown or not in accel. Returns those that have no effect, with the reason.
--- example: require "accel.deepspeed.keys".check { zero_optimization = { stage = 2, contiguous_gradients = true } } --> {}
---@param config table
---@return string[] notes
function M.check(config)
  local notes = {}
  walk(config, KEYS, "", notes)
  return notes
end

return M
