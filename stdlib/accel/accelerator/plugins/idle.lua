--- Fields of plugins that are taken without effect, and why. An Accelerator reports them once if a script, or the environment, asked for
--- something other than the built-in behaviour. Defaults are not reported.
local accel = require "accel"
local class = require "accel.util.class"
local environment = require "accel.accelerator.environment"
local short = require "accel.accelerator.plugins.base".short

local M = {}

--- A field without effect, unless its value is `plain`, or `used(plugin)` holds. variable: its environment variable.
local function idle(why, plain, used, variable) return { why = why, plain = plain, used = used, variable = variable } end

local function version_1(p) return p.fsdp_version == 1 end
local function stage_3(p) return p.zero_stage == 3 end
--- Names of other_megatron_args that accel reads, besides the plugin's own fields.
local READ <const> = { eod = true, eos_token_id = true, reset_position_ids = true, bert_binary_head = true }

local function full(p) return p.recompute_granularity == "full" end

--- A field that only counts if another one has a value.
local function only(field, value, why)
  return idle(why or ("%s is not '%s'"):format(field, value), nil, function(p) return p[field] == value end)
end

--- A field that only counts if a size is above 1.
local function above_1(field, plain)
  return idle(field .. " is 1", plain, function(p) return p[field] > 1 end)
end

--- A field of Megatron-LM's data sets, whose loaders prepare makes if the plugin sets megatron_dataset_flag.
local function of_data_sets(why, plain)
  return idle(why .. ", unless megatron_dataset_flag is set", plain, function(p) return p.megatron_dataset_flag end)
end

local HOST <const> = idle("FullyShardedDataParallelPlugin { cpu_offload = true } steps in host memory", false)
local LENGTH <const> = idle "sequences have the length of their batch"
local LOGS <const> = idle("accel.Accelerator { log_with = \"tensorboard\" } writes runs", false)
local LOOP <const> = of_data_sets "the script's own loop evaluates"
local MODEL <const> = idle "prepare takes a model that is there"
local WORKED_OUT <const> = idle "it is worked out of the other fields"
local OF_VERSION_1 <const> = idle("it is of fsdp_version 1", nil, version_1)

local FIELDS <const> = {
  MegatronLMPlugin = {
    optimizer_cpu_offload = HOST, overlap_cpu_optimizer_d2h_h2d = HOST,
    use_precision_aware_optimizer = idle("the script's optimizer sets the format of its states", false),
    attention_backend = idle("attention chooses its kernel by itself", true),
    attention_softmax_in_fp32 = idle("attention computes its softmax in fp32", true),
    use_rotary_position_embeddings = idle "the model sets its position embedding",
    expert_tensor_parallel_size = idle("experts are cut over tp_degree ranks, as all layers are", nil,
      function(p) return p.expert_tensor_parallel_size == p.tp_degree end),
    pipeline_model_parallel_split_rank = idle "blocks are dealt out over the stages in the order of forward",
    decoder_last_pipeline_num_layers = above_1 "pp_degree", pipeline_schedule = above_1("pp_degree", "1f1b"),
    num_layers_per_virtual_pipeline_stage = above_1 "pp_degree", sequence_parallelism = above_1("tp_degree", false),
    recompute_method = only("recompute_granularity", "full", "attention is computed again in every layer"),
    recompute_num_layers = idle("every layer is computed again by itself", 1,
      function(p) return full(p) and p.recompute_method == "block" end),
    is_train_batch_min = idle "every loader keeps its batch size",
    consumed_samples = of_data_sets("load_state restores the position of loaders", 0),
    lr_mult = idle("it is for the parameters of scale_lr_cond", 1.0, function(p) return p.scale_lr_cond ~= nil end),
    custom_megatron_datasets_provider_function = of_data_sets "prepare takes loaders that are there",
    seq_length = of_data_sets(LENGTH.why), encoder_seq_length = of_data_sets(LENGTH.why),
    decoder_seq_length = of_data_sets(LENGTH.why), tensorboard_dir = LOGS,
    set_all_logging_options = LOGS, eval_iters = LOOP, eval_interval = LOOP,
    custom_train_step_kwargs = idle("they are for a custom_train_step_class", nil, function(p) return p.custom_train_step_class ~= nil end),
    custom_model_provider_function = MODEL, custom_prepare_model_function = MODEL,
    DDP_impl = WORKED_OUT, megatron_lm_default_args = WORKED_OUT, global_batch_size = WORKED_OUT, micro_batch_size = WORKED_OUT,
    data_parallel_size = WORKED_OUT,
  },
  TorchDynamoPlugin = { fullgraph = idle("nothing is traced, and every function is compiled whole", false) },
  ParallelismConfig = { total_size = WORKED_OUT, non_dp_size = WORKED_OUT, data_parallel_size = WORKED_OUT,
    tp_handler = above_1 "tp_size", cp_handler = above_1 "cp_size", sp_handler = above_1 "sp_size",
    pp_handler = above_1 "pp_size" },
  DeepSpeedSequenceParallelConfig = { sp_seq_length = LENGTH, sp_seq_length_is_variable = idle(LENGTH.why, true),
    sp_attn_implementation = idle("attention chooses its kernel by itself, with the same results", "sdpa") },
  FullyShardedDataParallelPlugin = {
    sharding_strategy = idle("in fsdp_version 2 it is reshard_after_forward", nil, version_1),
    backward_prefetch = idle(OF_VERSION_1.why, "NO_PREFETCH", version_1), param_init_fn = OF_VERSION_1,
    use_orig_params = idle("parameters keep their names, shapes and identity", true, nil, "FSDP_USE_ORIG_PARAMS"),
    sync_module_states = idle("parameters and buffers always become rank 0's", true, nil, "FSDP_SYNC_MODULE_STATES"),
    state_dict_config = idle "state_dict_type sets the format, and rank 0 writes whole tensors",
    optim_state_dict_config = idle "state_dict_type sets the format, and rank 0 writes whole tensors",
    transformer_cls_names_to_wrap = only("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    min_num_params = only("auto_wrap_policy", "SIZE_BASED_WRAP"),
    limit_all_gathers = idle("one unit at most is gathered ahead of the one that computes", true),
  },
  DistributedDataParallelKwargs = { dim = idle("batches are divided by rows", 1),
    check_reduction = idle("ranks compare every collective in any case", false) },
  AutocastKwargs = { cache_enabled = idle "converted weights are kept by version" },
  DeepSpeedPlugin = {
    zero3_init_flag = idle("it is of stage 3", false, stage_3), zero3_save_16bit_model = idle("it is of stage 3", false, stage_3),
    msamp_opt_level = idle("it is for enable_msamp = true", "O1", function(p) return p.enable_msamp end),
    offload_optimizer_nvme_path = idle("offload_optimizer_device is not 'nvme'", "none",
      function(p) return p.offload_optimizer_device == "nvme" end),
    offload_param_nvme_path = idle("offload_param_device is not 'nvme'", "none",
      function(p) return p.offload_param_device == "nvme" end),
    deepspeed_config = idle "it is worked out of hf_ds_config",
  },
}

local HANDLERS <const> = { "sp_handler" }

--- Of other_megatron_args those that nothing here reads.
local function unread(plugin, list)
  local names, told = {}, plugin:told()
  for key in accel.pairs(plugin.other_megatron_args or {}) do
    if not (READ[key] or told[key]) then names[#names + 1] = tostring(key) end
  end
  if #names == 0 or plugin.custom_train_step_class then return end -- which may read them
  list[#list + 1] = ("other_megatron_args %s (kept in megatron_lm_default_args, but the model uses its own)"):format(table.concat(names, ", "))
end

--- The settings of a plugin, or a kwargs handler, that have no effect: "field (why)", sorted by name.
--- example: require "accel.accelerator.plugins.idle".notes(accel.MegatronLMPlugin { eval_iters = 5 })
---   --> { "eval_iters (the script's own loop evaluates)" }
---@param plugin accel.accelerator.Plugin|accel.accelerator.KwargsHandler
---@return string[]
function M.notes(plugin)
  local list, asked = {}, rawget(plugin, "_asked") or plugin:to_kwargs()
  for field, entry in next, FIELDS[short(class.of(plugin))] or {} do
    local value = asked[field]
    if value == nil and entry.variable then value = environment.parse_flag_from_env(entry.variable, entry.plain) end
    if value ~= nil and value ~= entry.plain and not (entry.used and entry.used(plugin)) then
      list[#list + 1] = ("%s (%s)"):format(field, entry.why)
    end
  end
  if rawget(plugin, "_asked") and plugin.told then unread(plugin, list) end
  table.sort(list)
  return list
end

--- A line for every plugin with such fields, and for the plugins inside it.
---@param plugins accel.accelerator.Plugin[]
---@return string[]
function M.lines(plugins)
  local lines = {}
  local function add(plugin)
    local notes = M.notes(plugin)
    if #notes > 0 then
      lines[#lines + 1] = ("%s: fields that have no effect here: %s"):format(short(class.of(plugin)), table.concat(notes, "; "))
    end
    for _, field in ipairs(HANDLERS) do
      local asked = rawget(plugin, "_asked")
      if asked and asked[field] and plugin[field] then add(plugin[field]) end
    end
  end
  for _, plugin in ipairs(plugins) do add(plugin) end
  return lines
end

return M
