-- Variables of the environment: every one that Accelerate 1.15 reads is read here, or warned of with the reason; one that nothing reads
-- is warned of with the nearest name; those that a launch sets are all read.
local accel = require "accel"
local variables = require "accel.accelerator.variables"
local A = accel.accelerator

-- of accelerate/**/*.py, without prefixes and what it alone uses inside a process
local REFERENCE <const> = [[ACCELERATE_ALLOW_CP_STANDALONE ACCELERATE_BYPASS_DEVICE_MAP ACCELERATE_CONFIG_DS_FIELDS ACCELERATE_CPU_AFFINITY
  ACCELERATE_DEBUG_MODE ACCELERATE_DEBUG_RDV_FILE ACCELERATE_DEEPSPEED_CONFIG_FILE ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES
  ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE
  ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH ACCELERATE_DEEPSPEED_ZERO3_INIT ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL
  ACCELERATE_DEEPSPEED_ZERO_STAGE ACCELERATE_DOWNCAST_BF16 ACCELERATE_DYNAMO_BACKEND ACCELERATE_DYNAMO_MODE ACCELERATE_DYNAMO_USE_DYNAMIC
  ACCELERATE_DYNAMO_USE_FULLGRAPH ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION ACCELERATE_ENABLE_RICH ACCELERATE_FP8_BACKEND
  ACCELERATE_FP8_OPT_LEVEL ACCELERATE_GRADIENT_ACCUMULATION_STEPS ACCELERATE_GRADIENT_CLIPPING ACCELERATE_INIT_INCLUDE_BUFFERS
  ACCELERATE_IN_TPU_POD ACCELERATE_LOG_LEVEL ACCELERATE_MIXED_PRECISION ACCELERATE_NUM_PROCESSES ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE
  ACCELERATE_TORCH_DEVICE ACCELERATE_USE_CPU ACCELERATE_USE_DEEPSPEED ACCELERATE_USE_FSDP ACCELERATE_USE_MEGATRON_LM
  ACCELERATE_USE_PARALLELISM_CONFIG FSDP_ACTIVATION_CHECKPOINTING FSDP_AUTO_WRAP_POLICY FSDP_BACKWARD_PREFETCH
  FSDP_CPU_RAM_EFFICIENT_LOADING FSDP_FORWARD_PREFETCH FSDP_IGNORED_MODULES FSDP_MIN_NUM_PARAMS FSDP_OFFLOAD_PARAMS
  FSDP_RESHARD_AFTER_FORWARD FSDP_SHARDING_STRATEGY FSDP_STATE_DICT_TYPE FSDP_SYNC_MODULE_STATES FSDP_TRANSFORMER_CLS_TO_WRAP
  FSDP_USE_ORIG_PARAMS FSDP_VERSION]]

local known, n = variables._known(), 0
for name in REFERENCE:gmatch "%S+" do
  n = n + 1
  assert(known[name] or variables._idle[name], name .. " is neither read nor warned of")
  assert(not (known[name] and variables._idle[name]), name .. " is in both tables")
end
assert(n == 53, n)

local function lines(set) return A.patch_environment(set, variables.lines) end
for name, why in pairs(variables._idle) do
  local said = lines { [name] = "1" }
  assert(#said == 1 and said[1] == name .. " has no effect: " .. why .. "; unset it", name)
end
assert(lines({ ACCELERATE_MIXED_PRECISON = "bf16" })[1]:find "never read; did you mean ACCELERATE_MIXED_PRECISION%?$")
assert(lines({ FSDP_OFLOAD_PARAMS = "1" })[1]:find "did you mean FSDP_OFFLOAD_PARAMS%?$")
assert(lines({ MEGATRON_LM_ZZZ = "1" })[1]:find "^MEGATRON_LM_ZZZ is set in the environment but never read; ")
assert(#lines { ACCELERATE_MIXED_PRECISION = "no", MEGATRON_LM_TP_DEGREE = "2", PARALLELISM_CONFIG_TP_SIZE = "1" } == 0)

-- what launches set
local kinds = { {}, { "--use_fsdp", "--fsdp_version=2" }, { "--use_deepspeed", "--zero_stage=2" }, { "--use_megatron_lm" },
  { "--mixed_precision=fp8", "--fp8_backend=TE" }, { "--dynamo_backend=inductor", "--dynamo_mode=default" },
  { "--use_fsdp", "--fsdp_version=2", "--use_parallelism_config", "--parallelism_config_tp_size=1" } }
for _, flags in ipairs(kinds) do
  local given = { "--num_processes=2", table.unpack(flags) }
  given[#given + 1] = "train.lua"
  local env = assert(accel.config.environment(given, { gpus = 2 }))
  local said = lines(env)
  assert(#said == 0, table.concat(flags, " ") .. ": " .. table.concat(said, "; "))
end

-- the Accelerator says it
local out = assert(io.popen(("ACCELERATE_MIXED_PRECISON=bf16 '%s' -e 'require \"accel\".Accelerator()' 2>&1"):format(accel.process.program())))
local text = out:read "a"
assert(out:close() and text:find "^accel: ACCELERATE_MIXED_PRECISON is set", text)
