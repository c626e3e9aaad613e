--- When a key has an effect: functions of the values of a configuration, named by the column `when` of the schema, and the words for
--- messages and help.
local M = {}

---@type table<string, fun(v: table<string, any>): boolean>
M.holds = {}

--- The text of each condition.
---@type table<string, string>
M.words = {}

local function condition(name, words, holds) M.words[name], M.holds[name] = words, holds end

local function kind(v, ...)
  for _, word in ipairs { ... } do
    if v.distributed_type == word then return true end
  end
  return false
end

condition("several_machines", "num_machines above 1", function(v) return (v.num_machines or 1) > 1 end)
condition("dynamo", "a dynamo_backend", function(v) return v.dynamo_backend ~= nil and v.dynamo_backend:upper() ~= "NO" end)
condition("fsdp", "FSDP", function(v) return v.use_fsdp or kind(v, "FSDP") end)
condition("fsdp1", "fsdp_version 1", function(v) return M.holds.fsdp(v) and v.fsdp_version ~= 2 end)
condition("fsdp2", "fsdp_version 2", function(v) return M.holds.fsdp(v) and v.fsdp_version == 2 end)
condition("fsdp_by_class", "fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP", function(v)
  return M.holds.fsdp(v) and v.fsdp_auto_wrap_policy == "TRANSFORMER_BASED_WRAP"
end)
condition("fsdp_by_size", "fsdp_auto_wrap_policy SIZE_BASED_WRAP", function(v)
  return M.holds.fsdp(v) and v.fsdp_auto_wrap_policy == "SIZE_BASED_WRAP"
end)
condition("deepspeed", "DeepSpeed", function(v) return v.use_deepspeed or kind(v, "DEEPSPEED") end)
condition("no_deepspeed_file", "DeepSpeed without a deepspeed_config_file", function(v)
  return M.holds.deepspeed(v) and v.deepspeed_config_file == nil
end)
condition("megatron_lm", "Megatron-LM", function(v) return v.use_megatron_lm or kind(v, "MEGATRON_LM") end)
condition("fp8", "mixed_precision fp8", function(v) return v.mixed_precision == "fp8" end)
condition("fp8_te", "fp8_backend TE", function(v) return M.holds.fp8(v) and v.fp8_backend == "TE" end)
condition("fp8_ao", "fp8_backend AO", function(v) return M.holds.fp8(v) and v.fp8_backend == "AO" end)
condition("fp8_msamp", "fp8_backend MSAMP", function(v) return M.holds.fp8(v) and v.fp8_backend == "MSAMP" end)
condition("parallelism", "FSDP of version 2", function(v) return M.holds.fsdp(v) and v.fsdp_version == 2 end)
condition("context_parallel", "parallelism_config_cp_size above 1", function(v)
  return (v.parallelism_config_cp_size or 1) > 1
end)
condition("sequence_parallel", "parallelism_config_sp_size above 1", function(v)
  return (v.parallelism_config_sp_size or 1) > 1
end)
condition("expert_parallel", "parallelism_config_ep_size above 1", function(v)
  return (v.parallelism_config_ep_size or 1) > 1
end)
condition("mpirun", "several processes on CPUs", function(v) return v.use_cpu or v.cpu or kind(v, "MULTI_CPU") end)
condition("log_dir", "--log_dir", function(v) return v.log_dir ~= nil or v.policy ~= nil end)
condition("restarts", "--max_restarts above 0", function(v) return (v.max_restarts or 0) > 0 end)
condition("hostfile", "DeepSpeed with num_machines above 1", function(v) return M.holds.deepspeed(v) and M.holds.several_machines(v) end)
condition("own_machines", "num_machines above 1, each started by itself", function(v)
  return M.holds.several_machines(v) and not (M.holds.hostfile(v) and v.deepspeed_multinode_launcher ~= "standard")
end)
condition("mesh", "--use_parallelism_config, with FSDP of version 2", function(v)
  return v.use_parallelism_config and M.holds.parallelism(v) or false
end)
condition("oneccl", "oneCCL, which accel-run does not use", function() return false end)
condition("no_deepspeed", "launches without DeepSpeed", function(v) return not M.holds.deepspeed(v) end)
condition("other_rendezvous", "launchers with several kinds of rendezvous; accel-run has one", function() return false end)
condition("sagemaker", "SageMaker, on which accel-run starts nothing", function() return false end)
condition("tpu", "TPUs", function(v) return v.tpu or kind(v, "XLA") end)

return M
