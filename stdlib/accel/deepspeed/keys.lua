--- Every key of a DeepSpeed configuration and its effect here: it is used; or it has no effect, with the reason, unless its
--- value matches accel's behaviour; or accel lacks it, which is an error. A key unknown to DeepSpeed is also an error, which
--- names the nearest key. Asked when an Accelerator takes a DeepSpeedPlugin.
local accel = require "accel"
local listed = require("accel.util.options").listed
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

--- A key whose value `plain` matches accel's behaviour. Other values have no effect, for the reason `why`.
local function idle(why, plain) return { why = why, plain = plain } end

--- A key that is an error unless it has the value `plain`, or a section that is not enabled.
local function refused(use, plain) return { use = use, plain = plain } end

--- A key that is used if `holds(config)`. Otherwise a value other than `plain`, DeepSpeed's default, has no effect. Without `holds`:
--- used everywhere.
local function used(needs, holds, plain) return { needs = needs, holds = holds, plain = plain } end

local function zero_of(config) return type(config.zero_optimization) == "table" and config.zero_optimization or {} end
local function at_stages(least, most, plain)
  local words = ("it is of stage%s %d%s"):format(least == most and "" or "s", least, least == most and "" or (" to %d"):format(most))
  return used(words, function(config)
    local stage = math.tointeger(zero_of(config).stage or 0) or 0
    return stage >= least and stage <= most
  end, plain)
end
local function in_fp16(plain)
  return used("fp16 is not enabled", function(config) return config.fp16.enabled == true or config.fp16.enabled == "auto" end, plain)
end
local function offloads(config)
  for _, block in ipairs { "offload_optimizer", "offload_param" } do
    local given = zero_of(config)[block]
    if type(given) == "table" and (given.device or "none") ~= "none" then return true end
  end
  return false
end

local USED <const> = {}
local LOGS <const> = idle "accel.Accelerator { log_with = ... } and its trackers write runs"
local MEMORY <const> = idle "the pools of accel decide"

local BUFFERS <const> = "buffers are chosen by sub_group_size, transfers go through one I/O thread"

local function offload(block)
  local path = used("device is not nvme", function(config)
    local given = zero_of(config)[block]
    return type(given) == "table" and given.device == "nvme"
  end, "none")
  return {
    device = USED, nvme_path = path, buffer_count = idle(BUFFERS), buffer_size = idle(BUFFERS), pin_memory = idle(BUFFERS, false),
    max_in_cpu = idle(BUFFERS), pipeline_read = idle(BUFFERS, false), pipeline_write = idle(BUFFERS, false), pipeline = idle(BUFFERS, false),
    fast_init = idle(BUFFERS, false), ratio = idle(BUFFERS, 1),
    super_offload = refused("device = \"cpu\"", false), cpuadam_cores_perc = idle "CPU threads are the rank's",
  }
end

local ZERO <const> = {
  stage = USED, reduce_bucket_size = USED, overlap_comm = USED, compute_grad_norm = USED, offload_param = offload "offload_param",
  offload_optimizer = offload "offload_optimizer", stage3_param_persistence_threshold = at_stages(3, 3, 100000),
  stage3_model_persistence_threshold = at_stages(3, 3, math.maxinteger), stage3_prefetch_bucket_size = at_stages(3, 3, 50000000),
  stage3_gather_16bit_weights_on_model_save = at_stages(3, 3, false),
  stage3_gather_fp16_weights_on_model_save = at_stages(3, 3, false),
  zero_hpz_partition_size = USED, zero_quantized_weights = USED,
  zero_quantized_gradients = USED, leaf_module = { classes = USED },
  ignore_unused_parameters = idle("parameters without a gradient are always left out of a step", true),
  zero_quantized_nontrainable_weights = idle("frozen parameters are gathered as they are", false),
  contiguous_gradients = idle("gradients of a unit are always contiguous", true),
  reduce_scatter = idle("gradients that are cut are always reduced by reduce-scatter", true),
  use_multi_rank_bucket_allreduce = idle("gradients that are cut are always reduced by reduce-scatter", true),
  allgather_partitions = idle("parameters are always gathered by all-gather", true),
  allgather_bucket_size = idle "parameters are gathered unit by unit; reduce_bucket_size bounds a unit",
  load_from_fp32_weights = idle("parameters are fp32 themselves", true),
  elastic_checkpoint = idle "every checkpoint can be loaded on any number of ranks",
  sub_group_size = used("nothing is offloaded", offloads, 1000000000),
  stage3_max_live_parameters = idle "a unit is given back as soon as it is through",
  stage3_max_reuse_distance = idle "a unit is given back as soon as it is through",
  stage3_module_granularity_threshold = idle("name classes in transformer_moe_cls_names", 0),
  stage3_use_all_reduce_for_fetch_params = idle("parameters are always gathered by all-gather", false),
  stage3_allgather_sequential = idle("units come one after the other", false),
  legacy_stage1 = idle("there is one stage 1", false), round_robin_gradients = idle("parts of ranks are equal already", false),
  parameter_alignment = idle("units are cut at multiples of 256 elements", false),
  memory_efficient_linear = idle("layers keep views of parameters, no copies", true), pipeline_loading_checkpoint = MEMORY,
  override_module_apply = idle("modules apply functions as they always do", true),
  log_trace_cache_warnings = idle("accel keeps no trace", false), enable_sanity_checks = idle "collectives are always checked",
  save_muon_momentum_buffer_in_memory = MEMORY,
  cpu_offload = refused('offload_optimizer = { device = "cpu" }', false),
  cpu_offload_param = refused('offload_param = { device = "cpu" }', false),
  cpu_offload_use_pin_memory = refused("offload_optimizer = { pin_memory = true }", false),
  zenflow = refused "offload_optimizer",
}

local ACTIVATIONS <const> = {
  cpu_checkpointing = USED, partition_activations = idle("each rank has its own activations", false),
  contiguous_memory_optimization = MEMORY, synchronize_checkpoint_boundary = idle("accel has no such stream", false),
  number_checkpoints = idle "as many as the model has layers", profile = idle("the profiler shows checkpoints", false),
}

local FP16 <const> = {
  enabled = USED, loss_scale = in_fp16(0), initial_scale_power = in_fp16(16), loss_scale_window = in_fp16(1000),
  hysteresis = in_fp16(2), consecutive_hysteresis = in_fp16(false), min_loss_scale = in_fp16(1),
  auto_cast = idle("ops that compute in fp16 cast their inputs", true), fp16_opt_level = idle "parameters stay fp32",
  fp16_master_weights_and_grads = refused("fp32 parameters, which are the default", false),
}

local BF16 <const> = {
  enabled = USED, immediate_grad_update = idle("gradients accumulate in the reduced buffers", false),
  check_grad_overflow = idle("steps in bf16 are not checked for overflow", false),
  bf16_master_weights_and_grads = refused("fp32 parameters, which are the default", false),
  bf16_optimizer_states = refused("fp32 states, which are the default", false),
}

local AIO <const> = {
  block_size = idle(BUFFERS, 1048576), queue_depth = idle(BUFFERS, 8), thread_count = idle(BUFFERS, 1),
  intra_op_parallelism = idle(BUFFERS, 1), single_submit = idle(BUFFERS, false), overlap_events = idle(BUFFERS, true),
  use_gds = refused("reads through the CPU", false),
}

local DATA_TYPES <const> = {
  grad_accum_dtype = idle("gradients are accumulated in fp32", "fp32"),
  param_dtype = idle "parameters have the dtype that the script gave them",
  buffer_dtype = idle "buffers have the dtype that the script gave them",
}

local REDUCED <const> = idle("gradients are reduced in their own dtype, fp32; zero_quantized_gradients sends fewer bytes", "fp32")
local TAKEN <const> = idle "accelerator:save_state writes whole checkpoints, in the background if it is to"
local AS_IS <const> = refused "the model as it is"

local PARAMS <const> = USED -- accel.deepspeed.optimizers checks the options of each type

local KEYS <const> = {
  optimizer = { type = USED, params = PARAMS, legacy_fusion = idle("accel has one implementation of each rule", false) },
  scheduler = { type = USED, params = PARAMS },
  train_batch_size = USED, train_micro_batch_size_per_gpu = USED, gradient_accumulation_steps = USED,
  gradient_clipping = USED, zero_optimization = ZERO, fp16 = FP16, bf16 = BF16, aio = AIO,
  data_types = DATA_TYPES, communication_data_type = REDUCED, seq_parallel_communication_data_type = REDUCED,
  steps_per_print = idle("print in the script", math.huge), wall_clock_breakdown = idle("accel.clock() measures", false),
  memory_breakdown = idle("accel.mem_stats() measures", false), timers = idle "accel.clock() measures",
  dump_state = idle("print(accelerator.config) shows it", false), log_level = idle "say it to accel.get_logger",
  zero_allow_untested_optimizer = idle("every optimizer of accel.optim can step on parts", true),
  zero_force_ds_cpu_optimizer = idle("the optimizer is the one that was given", false),
  prescale_gradients = idle("means are taken once, while reducing", false),
  gradient_predivide_factor = idle("means are taken once, while reducing", 1), sparse_gradients = idle("gradients are dense", false),
  gradient_allreduce_op = refused("the mean", "mean"), disable_allgather = refused("stages 0 to 3", false),
  dataloader_drop_last = idle "say drop_last to the DataLoader", disable_python_gc = idle "accel does not run Python",
  check_overflow = idle("fp16 always looks for overflow", true),
  managed_gradient_accumulation = idle("backward accumulates", true),
  activation_checkpointing = ACTIVATIONS, flops_profiler = idle "accel-run --dry-run counts flops",
  tensorboard = LOGS, wandb = LOGS, comet = LOGS, csv_monitor = LOGS, monitor_config = LOGS,
  comms_logger = idle "accel.dist.records() lists collectives", checkpoint = TAKEN, nebula = TAKEN, datastates_ckpt = TAKEN,
  use_node_local_storage = idle "save_on_each_node sets it", compile = idle "ops are native code already",
  autotuning = idle "accel-run --dry-run predicts memory and time", vocabulary_size = idle "the model knows its vocabulary",
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

local function walk(config, known, prefix, notes, whole)
  for key, value in accel.pairs(config) do
    local path, entry = prefix .. tostring(key), known[key]
    if entry == nil then
      local near = type(key) == "string" and nearest(key, known)
      raise("DeepSpeed's configuration: '%s' is not a key%s", path, near and ("; did you mean '%s%s'?"):format(prefix, near) or listed(known))
    elseif entry == USED then -- its users check the value
    elseif entry.use then
      if not off(value, entry.plain) then raise("DeepSpeed's configuration: accel does not support %s; use %s", path, entry.use) end
    elseif entry.why then
      if not off(value, entry.plain) then notes[#notes + 1] = ("%s (%s)"):format(path, entry.why) end
    elseif entry.needs then
      if not off(value, entry.plain) and not entry.holds(whole) then notes[#notes + 1] = ("%s (%s)"):format(path, entry.needs) end
    else
      if type(value) == "table" then walk(value, entry, path .. ".", notes, whole)
      elseif value ~= accel.json.null then raise("DeepSpeed's configuration: %s must be a table of keys, got %s", path, tostring(value)) end
    end
  end
end

--- Raises for keys that are unknown or not in accel. Returns those that have no effect, with the reason.
--- example: require "accel.deepspeed.keys".check { zero_optimization = { stage = 2, contiguous_gradients = true } } --> {}
---@param config table
---@param replaced? table<string, any> original values of top-level keys that the configuration has replaced
---@return string[] notes
function M.check(config, replaced)
  local notes = {}
  walk(config, KEYS, "", notes, config)
  walk(replaced or {}, KEYS, "", notes, config)
  return notes
end

--- All keys, for the sweep of options (tests/options/deepspeed_test.lua): key -> its effect, or the keys of a section.
M.known, M.used = KEYS, USED

return M
