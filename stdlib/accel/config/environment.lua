--- Values of a launch as variables of the ranks, which plugins and handlers of accel.accelerator read, as the reference's do.
local conditions = require "accel.config.conditions"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"

local M = {}

local topics = {}
for _, topic in ipairs(schema.topics) do topics[topic.title] = topic end

local function text_of(row, value, origin)
  if type(value) == "boolean" then
    if row.env_as == "lower" then return tostring(value) end
    if row.env_as == "number" and origin ~= "file" then return value and "1" or "0" end
  elseif row.env_as == "upper" then
    return tostring(value):upper()
  end
  return scalar.python_text(value)
end

local function put(env, row, v, origins)
  local value = v[row.key]
  if value == nil or not row.env then return end
  if type(row.env) == "table" then
    for i, name in ipairs(row.env) do env[name] = scalar.python_text(value[i] or false) end
  else
    env[row.env] = text_of(row, value, origins[row.key])
  end
end

local function put_topic(env, title, v, origins, holds)
  for _, row in ipairs(topics[title].keys) do
    if not holds or holds(row) then put(env, row, v, origins) end
  end
end

local function put_precision(env, v, origins)
  env.ACCELERATE_MIXED_PRECISION = v.mixed_precision
  if v.mixed_precision == "fp8" then put_topic(env, "fp8", v, origins) end
end

--- Set by every launch except TPUs'.
local function common(v, origins)
  local env = {}
  put_precision(env, v, origins)
  put_topic(env, "dynamo", v, origins)
  env.OMP_NUM_THREADS = tostring(v.num_cpu_threads_per_process)
  if v.debug then env.ACCELERATE_DEBUG_MODE = "true" end
  if v.gpu_ids and v.gpu_ids ~= "all" then env.CUDA_VISIBLE_DEVICES = v.gpu_ids end
  if v.enable_cpu_affinity then env.ACCELERATE_CPU_AFFINITY = "1" end
  return env
end

--- Sizes are always set. The method of sequence sharding is set only if sequences are sharded.
local function put_parallelism(env, v, origins)
  env.ACCELERATE_USE_PARALLELISM_CONFIG = "true"
  put_topic(env, "parallelism", v, origins, function(row)
    return row.when == "parallelism" or conditions.holds[row.when](v)
  end)
end

---@type table<string, fun(v: table, origins: table, file: table?, machine: table): table<string, string>>
M.of = {}

--- One process, or those that mpirun starts.
function M.of.simple(v, origins)
  local env = common(v, origins)
  local cpu = v.cpu or v.use_cpu or false
  env.ACCELERATE_USE_CPU = scalar.python_text(cpu)
  if v.num_processes > 1 or v.num_machines > 1 then
    env.MASTER_ADDR, env.MASTER_PORT = v.main_process_ip or "127.0.0.1", tostring(v.main_process_port or 29500)
  end
  if cpu then env.KMP_AFFINITY, env.KMP_BLOCKTIME = "granularity=fine,compact,1,0", "1" end
  return env
end

--- Several processes, one per GPU, sharded or not.
function M.of.multi_gpu(v, origins)
  local env = common(v, origins)
  if v.use_fsdp then
    env.ACCELERATE_USE_FSDP = "true"
    put_topic(env, "fsdp", v, origins)
  end
  if v.use_megatron_lm then
    env.ACCELERATE_USE_MEGATRON_LM = "true"
    put_topic(env, "megatron-lm", v, origins)
  end
  if v.use_parallelism_config then put_parallelism(env, v, origins) end
  return env
end

--- Several processes with DeepSpeed's settings. ACCELERATE_CONFIG_DS_FIELDS names those that a file set, so that they are not
--- reported a second time together with a deepspeed_config_file.
function M.of.deepspeed(v, origins, file, machine)
  local env, fields = {}, {}
  put_precision(env, v, origins)
  put_topic(env, "deepspeed", v, origins)
  env.ACCELERATE_USE_DEEPSPEED, env.PYTHONPATH = "true", machine.cwd
  if v.debug then env.ACCELERATE_DEBUG_MODE = "true" end
  if v.gpu_ids and v.gpu_ids ~= "all" then env.CUDA_VISIBLE_DEVICES = v.gpu_ids end
  if v.enable_cpu_affinity then env.ACCELERATE_CPU_AFFINITY = "1" end
  for _, name in ipairs(file and file.order.deepspeed_config or {}) do fields[#fields + 1] = name end
  if origins.mixed_precision == "file" then fields[#fields + 1] = "mixed_precision" end
  env.ACCELERATE_CONFIG_DS_FIELDS = table.concat(fields, ",")
  return env
end

return M
