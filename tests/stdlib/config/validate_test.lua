-- What is said of wrong configurations: every message whole, with its file, line, key and the nearest one. Several are joined by |.
--   accel-run tests/stdlib/config/validate_test.lua
local accel = require "accel"
local read = require "accel.config.read"
local validate = require "accel.config.validate"

if not accel.yaml.available() then
  print "skipped: no libyaml here"
  os.exit(77)
end

local NO <const> = "distributed_type: 'NO'\n"
local FSDP <const> = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  "
local MESH <const> = "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n  "
local DEEPSPEED <const> = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  "
local MEGATRON <const> = "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config:\n  "

local wrong <const> = {
  { "", "x: the file is empty" },
  { "- 1\n", "x:1: a configuration is a table of keys and values, not a list" },
  { "just words\n", "x:1: a configuration is a table of keys and values, not 'just words'" },
  { "a: [1\n", "x:2: did not find expected ',' or ']', while parsing a flow sequence" },
  { "a: b: c\n", "x:1: mapping values are not allowed in this context" },
  { "\ta: 1\n", "x:1: found character that cannot start any token, while scanning for the next token" },
  { "a: 'x\n", "x:2: found unexpected end of stream, while scanning a quoted scalar" },
  { NO .. "a: *b\n", "x:2: the alias *b names no anchor before it" },
  { NO .. "a: !!python/none x\n", "x:2: the tag tag:yaml.org,2002:python/none is not one of YAML's own" },
  { NO .. "? [a]\n: 1\n", "x:2: a key must be a word, not a list, a mapping or an alias" },
  { NO .. "---\na: 1\n", "x:2: a second document; a configuration has one" },
  { "num_processes: 2\n", "x: distributed_type is missing; add it" },
  { NO .. "distributed_type: 'NO'\n", "x:2: duplicate key 'distributed_type'" },
  { NO .. "num_processes: 1\nnum_processes: 2\n", "x:3: duplicate key 'num_processes'" },
  { NO .. "x: &a [*a]\n", "x:2: the alias *a is inside the node that it names" },
  { NO .. "x: @y\n", "x:2: found character that cannot start any token, while scanning for the next token" },
  { NO .. "%\n", "x:2: could not find expected directive name, while scanning a directive" },
  { "distributed_type: MULTI_FOO\n",
    "x:1: distributed_type must be one of NO, MULTI_CPU, MULTI_GPU, MULTI_NPU, MULTI_MLU, MULTI_SDAA, "
      .. "MULTI_MUSA, MULTI_XPU, MULTI_HPU, MULTI_NEURON, DEEPSPEED, FSDP, TP, XLA, MEGATRON_LM, got 'MULTI_FOO'" },
  { "distributed_type: [NO]\n", "x:1: distributed_type must be one value, got a list" },
  { "distributed_type: ~\n", "x: distributed_type is missing; add it" },
  { "Distributed_type: 'NO'\n",
    "x: distributed_type is missing; add it|x:1: unknown key 'Distributed_type'; did you "
      .. "mean 'distributed_type'?" },
  { NO .. "num_proceses: 1\n", "x:2: unknown key 'num_proceses'; did you mean 'num_processes'?" },
  { NO .. "num-processes: 1\n", "x:2: unknown key 'num-processes'; did you mean 'num_processes'?" },
  { NO .. "processes: 1\n", "x:2: unknown key 'processes'; did you mean 'num_processes'?" },
  { NO .. "zzzzzzzz: 1\n", "x:2: unknown key 'zzzzzzzz'" },
  { NO .. "fsdp: {}\n", "x:2: unknown key 'fsdp'" },
  { NO .. "fsdp_confg: {}\n", "x:2: unknown key 'fsdp_confg'; did you mean 'fsdp_config'?" },
  { NO .. "fsdp_version: 2\n", "x:2: unknown key 'fsdp_version'; move it into fsdp_config" },
  { NO .. "zero_stage: 2\n", "x:2: unknown key 'zero_stage'; move it into deepspeed_config" },
  { NO .. "backend: AO\n", "x:2: unknown key 'backend'" },
  { NO .. "num_processes: two\n", "x:2: num_processes must be a whole number, got 'two'" },
  { NO .. "num_processes: 1.5\n", "x:2: num_processes must be a whole number, got '1.5'" },
  { NO .. "num_processes: -2\n", "x:2: num_processes must be a number from -1 on, got '-2'" },
  { NO .. "num_processes: []\n", "x:2: num_processes must be one value, got a list" },
  { NO .. "num_processes: {a: 1}\n", "x:2: num_processes must be one value, got a table" },
  { NO .. "num_processes: 99999999999999999999\n",
    "x:2: num_processes must be a whole number, got '99999999999999999999'" },
  { NO .. "use_cpu: maybe\n", "x:2: use_cpu must be true or false, got 'maybe'" },
  { NO .. "use_cpu: 2\n", "x:2: use_cpu must be true or false, got '2'" },
  { NO .. "debug: [yes]\n", "x:2: debug must be one value, got a list" },
  { NO .. "mixed_precision: fp12\n", "x:2: mixed_precision must be one of no, fp16, bf16, fp8, got 'fp12'" },
  { NO .. "mixed_precision: BF16\n", "x:2: mixed_precision must be one of no, fp16, bf16, fp8, got 'BF16'" },
  { NO .. "mixed_precision: 16\n", "x:2: mixed_precision must be one of no, fp16, bf16, fp8, got '16'" },
  { NO .. "machine_rank: -1\n", "x:2: machine_rank must be a number from 0 on, got '-1'" },
  { NO .. "num_machines: 0\n", "x:2: num_machines must be a number from 1 on, got '0'" },
  { NO .. "main_process_port: 70000\n", "x:2: main_process_port must be a number in 0 .. 65535, got '70000'" },
  { NO .. "main_process_port: http\n", "x:2: main_process_port must be a whole number, got 'http'" },
  { NO .. "commands: {a: 1}\n", "x:2: commands must be a list, got a table" },
  { NO .. "compute_environment: MARS\n",
    "x:2: compute_environment must be one of LOCAL_MACHINE, AMAZON_SAGEMAKER, got 'MARS'" },
  { FSDP .. "fsdp_version: 3\n", "x:4: fsdp_version must be one of 1, 2, got '3'" },
  { FSDP .. "fsdp_sharding_strategy: HALF\n",
    "x:4: fsdp_sharding_strategy must be one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
      .. "HYBRID_SHARD_ZERO2, 1, 2, 3, 4, 5, got 'HALF'" },
  { FSDP .. "fsdp_sharding_strategy: 9\n",
    "x:4: fsdp_sharding_strategy must be one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
      .. "HYBRID_SHARD_ZERO2, 1, 2, 3, 4, 5, got '9'" },
  { FSDP .. "fsdp_auto_wrap_policy: SOME\n",
    "x:4: fsdp_auto_wrap_policy must be one of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP, got 'SOME'" },
  { FSDP .. "fsdp_min_num_params: 1e8\n", "x:4: fsdp_min_num_params must be a whole number, got '1e8'" },
  { FSDP .. "fsdp_ofload_params: true\n",
    "x:4: unknown key 'fsdp_ofload_params' in fsdp_config; did you mean 'fsdp_offload_params'?" },
  { FSDP .. "fsdp_backward_prefetch: NEVER\n",
    "x:4: fsdp_backward_prefetch must be one of BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH, got 'NEVER'" },
  { FSDP .. "fsdp_version: 1\n  fsdp_version: 2\n", "x:5: duplicate key 'fsdp_version'" },
  { FSDP .. "num_processes: 2\n",
    "x:4: unknown key 'num_processes' in fsdp_config; move it to the top of the file" },
  { DEEPSPEED .. "zero_stage: 4\n", "x:4: zero_stage must be one of 0, 1, 2, 3, got '4'" },
  { DEEPSPEED .. "offload_param_device: gpu\n",
    "x:4: offload_param_device must be one of none, cpu, nvme, got 'gpu'" },
  { DEEPSPEED .. "gradient_clipping: high\n", "x:4: gradient_clipping must be a number or auto, got 'high'" },
  { DEEPSPEED .. "gradient_accumulation_steps: 1.5\n",
    "x:4: gradient_accumulation_steps must be a whole number or auto, got '1.5'" },
  { DEEPSPEED .. "zero_stge: 2\n", "x:4: unknown key 'zero_stge' in deepspeed_config; did you mean 'zero_stage'?" },
  { DEEPSPEED .. "deepspeed_multinode_launcher: rsh\n",
    "x:4: deepspeed_multinode_launcher must be one of pdsh, standard, openmpi, mvapich, mpich, nossh, slurm, "
      .. "got 'rsh'" },
  { MEGATRON .. "megatron_lm_tp_degree: 0\n", "x:4: megatron_lm_tp_degree must be a number from 1 on, got '0'" },
  { MEGATRON .. "tp_degre: 2\n",
    "x:4: unknown key 'tp_degre' in megatron_lm_config; did you mean 'megatron_lm_tp_degree'?" },
  { MEGATRON .. "megatron_lm_sequence_parallelism: sometimes\n",
    "x:4: megatron_lm_sequence_parallelism must be true or false, got 'sometimes'" },
  { MESH .. "parallelism_config_tp_size: 0\n",
    "x:6: parallelism_config_tp_size must be a number from 1 on, got '0'" },
  { MESH .. "parallelism_config_tp: 2\n",
    "x:6: unknown key 'parallelism_config_tp' in parallelism_config; did you mean 'parallelism_config_tp_size'?" },
  { MESH .. "parallelism_config_cp_comm_strategy: ring\n",
    "x:6: parallelism_config_cp_comm_strategy must be one of allgather, alltoall, got 'ring'" },
  { NO .. "dynamo_config:\n  dynamo_backend: WARP\n",
    "x:3: dynamo_backend must be one of NO, EAGER, AOT_EAGER, INDUCTOR, AOT_TS_NVFUSER, NVPRIMS_NVFUSER, "
      .. "CUDAGRAPHS, OFI, FX2TRT, ONNXRT, TENSORRT, AOT_TORCHXLA_TRACE_ONCE, TORCHXLA_TRACE_ONCE, TVM, "
      .. "HPU_BACKEND, NEURON, got 'WARP'" },
  { NO .. "dynamo_config: fast\n", "x:2: dynamo_config must be a table, got 'fast'" },
  { NO .. "mixed_precision: fp8\nfp8_config:\n  backend: TX\n",
    "x:4: backend must be one of AO, TE, MSAMP, got 'TX'" },
  { NO .. "mixed_precision: fp8\nfp8_config:\n  override_linear_precision: [1, x, 0]\n",
    "x:4: override_linear_precision must be a list of true and false, got a list" },
  { NO .. "fsdp_config:\n  fsdp_offload_params: true\n",
    "x:3: fsdp_offload_params has no effect here: it is for FSDP" },
  { NO .. "deepspeed_config:\n  zero_stage: 3\n",
    "x:3: zero_stage has no effect here: it is for DeepSpeed without a deepspeed_config_file" },
  { FSDP .. "fsdp_version: 2\n  fsdp_use_orig_params: false\n",
    "x:5: fsdp_use_orig_params has no effect here: it is for fsdp_version 1" },
  { FSDP .. "fsdp_min_num_params: 5\n",
    "x:4: fsdp_min_num_params has no effect here: it is for fsdp_auto_wrap_policy SIZE_BASED_WRAP" },
  { NO .. "same_network: true\n", "x:2: same_network has no effect here: it is for num_machines above 1" },
  { NO .. "fp8_config:\n  backend: TE\n", "x:3: fp8_backend has no effect here: it is for mixed_precision fp8" },
  { DEEPSPEED .. "deepspeed_config_file: a.json\n  zero_stage: 3\n",
    "x:5: zero_stage has no effect here: it is for DeepSpeed without a deepspeed_config_file" },
  { NO .. "tpu_use_sudo: true\n", "x:2: tpu_use_sudo has no effect here: it is for TPUs" },
  { NO .. "dynamo_config:\n  dynamo_mode: max-autotune\n",
    "x:3: dynamo_mode has no effect here: it is for a dynamo_backend" },
}
for i, case in ipairs(wrong) do
  local said = table.concat(validate.lines(read.yaml(case[1], "x")), "|")
  assert(said == case[2], ("%d\nwant %s\ngot  %s"):format(i, case[2], said))
end
assert(#wrong >= 60)

-- What is right says nothing, whatever its values are where they have an effect.
for _, text in ipairs { NO, FSDP .. "fsdp_version: 2\n", MESH .. "parallelism_config_tp_size: 2\n", DEEPSPEED .. "zero_stage: 3\n",
  MEGATRON .. "tp_degree: 2\n", NO .. "same_network: false\nuse_cpu: on\n" } do
  assert(#validate.lines(read.yaml(text, "x")) == 0, text .. table.concat(validate.lines(read.yaml(text, "x")), "|"))
end
print(#wrong, "ok")

-- megatron_lm_config: what a launch passes on by flag and by file is what MegatronLMPlugin reads, every key of it, and nothing is left out
do
  local topic, plugin = require "accel.config.keys.megatron", require "accel.accelerator.plugins.megatron".MegatronLMPlugin
  local values <const> = { int = "2", bool = "true", float = "0.5", text = "full" }
  local known = {}
  for _, key in ipairs(topic.keys) do
    local name, variable = key[1], key.env -- whole, since the schema was read
    local field = name:sub(#topic.prefix + 1)
    known[field] = true
    assert(plugin.env[field] and plugin.env[field][1] == variable, name .. ": a key that the plugin does not read")
    local value = key.allowed and key.allowed[1] or values[key[2]]
    local flagged, why = require "accel.config".plan { "--use_megatron_lm", "--num_processes", "2", "--" .. name, value, "s.lua" }
    assert(flagged and (flagged.env[variable] or ""):lower() == value, ("--%s %s: %s"):format(name, value, why or flagged.env[variable]))
    local path = os.tmpname()
    assert(accel.write_file(path, MEGATRON .. name .. ": " .. value .. "\n"))
    local filed, wrong_file = require "accel.config".plan { "--config_file", path, "s.lua" }
    os.remove(path)
    assert(filed and (filed.env[variable] or ""):lower() == value, ("%s: %s in a file: %s"):format(name, value, wrong_file or filed.env[variable]))
  end
  for field, from in accel.pairs(plugin.env) do assert(known[field], from[1] .. ": no key of megatron_lm_config") end
  assert(known.num_layers_per_virtual_pipeline_stage, "what pipeline_schedule interleaved needs")
end
