-- Plugins and recipes: what is given comes before the environment, that before defaults; rules between fields. Against the reference's
-- own plugins: reference/configs.
local accel = require "accel"
local A = accel.accelerator

local function under(env, fn, ...)
  local _ <close> = A.clear_environment()
  return A.patch_environment(env, fn, ...)
end

local function fails(part, fn, ...)
  local ok, why = pcall(fn, ...)
  assert(not ok and tostring(why):find(part, 1, true), tostring(why))
end

under({ FSDP_VERSION = "2", FSDP_RESHARD_AFTER_FORWARD = "no" }, function()
  local p = accel.FullyShardedDataParallelPlugin()
  assert(p.fsdp_version == 2 and p.reshard_after_forward == false and p.use_orig_params == nil)
  assert(accel.FullyShardedDataParallelPlugin { reshard_after_forward = true }.reshard_after_forward == true)
  assert(accel.FullyShardedDataParallelPlugin { fsdp_version = 1 }.sharding_strategy == "FULL_SHARD")
end)
under({}, function()
  local F = accel.FullyShardedDataParallelPlugin
  assert(F { sharding_strategy = 2 }.sharding_strategy == "SHARD_GRAD_OP" and F { sharding_strategy = "no_shard" }.sharding_strategy == "NO_SHARD")
  fails("must be a boolean in version 2", F, { fsdp_version = 2, reshard_after_forward = "FULL_SHARD" })
  fails("only in version 2", F, { reshard_after_forward = true })
  fails("LOCAL_STATE_DICT needs version 1", F, { fsdp_version = 2, state_dict_type = "LOCAL_STATE_DICT" })
  fails("did you mean 'sharding_strategy'", F, { sharding_stratgy = 1 })
  fails("fsdp_version must be 1 or 2", F, { fsdp_version = 3 })
  local p = F { mixed_precision_policy = "fp16" }
  assert(p.mixed_precision_policy.buffer_dtype == "f16")
  fails("lacks reduce_dtype", F, { mixed_precision_policy = { param_dtype = "f16" } })
  assert(F { auto_wrap_policy = "transformer_based_wrap", transformer_cls_names_to_wrap = "A,B" }.transformer_cls_names_to_wrap[2] == "B")

  local D = accel.DeepSpeedPlugin
  local json = '{"zero_optimization": {"stage": 3}, "train_batch_size": "auto", "a": {"b": "auto"}}'
  local d = D { hf_ds_config = json }
  assert(d.zero_stage == 3 and d.zero3_init_flag and d.hf_ds_config:is_zero3() and d.gradient_accumulation_steps == 1)
  fails("`a.b`", d.deepspeed_config_process, d, { train_batch_size = 8 })
  d:deepspeed_config_process { train_batch_size = 8, ["a.b"] = 1 }
  assert(d:get_value "train_batch_size" == 8 and d:get_value "a.b" == 1 and d:get_value("a.c", 5) == 5)
  fails("ds train_batch_size=8 vs arg train_batch_size=9", d.deepspeed_config_process, d, { train_batch_size = 9 })
  d:deepspeed_config_process({ train_batch_size = 9 }, { must_match = false })
  -- base64 of {"zero_optimization": {"stage": 1}}
  assert(D { hf_ds_config = "eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAxfX0=" }.zero_stage == 1)
  fails("no ZeRO optimization config", D, { hf_ds_config = {} })
  fails("file nowhere.json does not exist (deepspeed_config_file;", D, { hf_ds_config = "nowhere.json" })
  fails("nothing-here.json", D, { hf_ds_config = "nothing-here.json" })
  local given = { zero_optimization = { stage = "auto" } }
  assert(D({ hf_ds_config = given, zero_stage = 3 }).deepspeed_config.zero_optimization.stage == 3)
  assert(given.zero_optimization.stage == "auto", "the script's table stays as it is")

  local P = accel.ParallelismConfig
  assert(P { dp_shard_size = 2, cp_size = 4 }.cp_handler.cp_comm_strategy == "allgather" and P({}).total_size == 1)
  fails("tp_size must be a positive integer", P, { tp_size = 0 })
  fails("split in only one way", P, { cp_size = 2, sp_size = 2 })
  fails("needs dp_shard_size above 1", P, { tp_size = 2, dp_replicate_size = 2 })
  fails("need sp_seq_length", A.DeepSpeedSequenceParallelConfig, { sp_seq_length_is_variable = false })
  fails("got 'eager'", A.DeepSpeedSequenceParallelConfig, { sp_attn_implementation = "eager" })

  fails("backend must be one of", accel.TorchDynamoPlugin, { backend = "warp" })
  assert(A.FP8RecipeKwargs { backend = "AO" }.pad_inner_dim == true and #A.TERecipeKwargs({}).override_linear_precision == 3)
  fails("three booleans", A.TERecipeKwargs, { override_linear_precision = { true } })
  assert(accel.MegatronLMPlugin { other_megatron_args = { seed = 3 } }.megatron_lm_default_args.seed == 3)
end)
under({ ACCELERATE_FP8_OVERRIDE_DGRAD = "1", ACCELERATE_FP8_BACKEND = "MSAMP" }, function()
  assert(A.TERecipeKwargs({}).override_linear_precision[2] == true and A.FP8RecipeKwargs().opt_level == "O2")
end)

-- What of them is not here: the Accelerator says so. (What is: tests/stdlib/shard/accelerator_test.lua.)
fails("offload_optimizer_device is 'tape'; expected 'none', 'cpu' or 'nvme'", accel.Accelerator,
  { deepspeed_plugin = accel.DeepSpeedPlugin { offload_optimizer_device = "tape" } })
fails("needs a folder for its files: give offload_optimizer_nvme_path", accel.Accelerator,
  { deepspeed_plugin = accel.DeepSpeedPlugin { offload_optimizer_device = "nvme" } })
fails("offload_param_device = 'cpu' needs zero_stage = 3", accel.Accelerator,
  { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2, offload_param_device = "cpu" } })
fails("must be a DeepSpeedPlugin", accel.Accelerator, { deepspeed_plugin = accel.FullyShardedDataParallelPlugin {} })
fails("give one", accel.Accelerator, { deepspeed_plugin = accel.DeepSpeedPlugin {}, fsdp_plugin =
  accel.FullyShardedDataParallelPlugin {} })
fails("gradient_accumulation_steps = 4, the constructor 2", accel.Accelerator, { gradient_accumulation_steps = 2,
  deepspeed_plugin = accel.DeepSpeedPlugin { gradient_accumulation_steps = 4 } })
fails("", accel.Accelerator, { kwargs_handlers = { A.TERecipeKwargs {} } })
print "ok"

do -- fields without effect are named, those of handlers of kwargs as well
  local notes = require "accel.accelerator.plugins.idle".notes
  local F, K = accel.FullyShardedDataParallelPlugin, accel.DistributedDataParallelKwargs
  assert(notes(K { dim = 2, check_reduction = true })[1]:find "^check_reduction" and #notes(K { dim = 2 }) == 1 and #notes(K { dim = 1 }) == 0)
  assert(notes(accel.AutocastKwargs { cache_enabled = true })[1]:find "^cache_enabled")
  for version = 1, 2 do assert(notes(F { fsdp_version = version, limit_all_gathers = false })[1]:find "^limit_all_gathers") end
end
