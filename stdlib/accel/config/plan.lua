--- Converts flags, a configuration file and the machine to a launch: its kind, the environment of the ranks, their number and their
--- rendezvous. Pure: nothing is read, started or printed here.
local environment = require "accel.config.environment"
local schema = require "accel.config.schema"

local M = {}

---@class accel.config.Machine
---@field gpus integer that can be used
---@field cores integer physical ones
---@field fp8 boolean whether mixed_precision = "fp8" can be had
---@field free_port fun(): integer
---@field port_in_use? fun(port: integer): boolean
---@field mpi? string "Open MPI", "Intel", "MPICH", "MVAPICH". nil: there is no mpirun
---@field cwd string
---@field interpreter string the program that runs scripts

---@class accel.config.Plan
---@field launcher string "simple", "multi_gpu", "deepspeed", "tpu", "tpu_pod"
---@field env table<string, string> the ranks' variables besides accel's own
---@field cmd string[]? the command, if accel does not start the ranks one by one
---@field values table<string, any> every value, by key
---@field origins table<string, string> "flag", "file", "machine" or "default"
---@field world table? the ranks' rendezvous, in torchrun's terms
---@field notes string[] decisions for missing settings

local function fail(...) error({ message = (...):format(select(2, ...)) }, 0) end

local PARADIGMS <const> = { "cpu", "multi_gpu", "tpu", "use_deepspeed", "use_fsdp" }

local function check_flags(v)
  local n = 0
  for _, key in ipairs(PARADIGMS) do n = n + (v[key] and 1 or 0) end
  if n > 1 then fail "only one of --cpu, --multi_gpu, --tpu, --use_deepspeed and --use_fsdp can be asked for at a time" end
  if v.multi_gpu and v.num_processes and v.num_processes < 2 then
    fail("--multi_gpu needs at least 2 processes, num_processes is %d", v.num_processes)
  end
  if v.use_parallelism_config and not (v.use_fsdp and v.fsdp_version == 2) then
    fail "--use_parallelism_config needs --use_fsdp and --fsdp_version=2"
  end
end

local MULTI <const> = { MULTI_GPU = true, MULTI_NPU = true, MULTI_MLU = true, MULTI_SDAA = true, MULTI_MUSA = true,
  MULTI_XPU = true, MULTI_HPU = true, MULTI_NEURON = true }
local ASKED <const> = { "multi_gpu", "tpu", "tpu_use_cluster", "use_deepspeed", "use_fsdp", "use_megatron_lm" }

--- The file's distributed_type, unless a flag overrides it.
local function paradigm_of_file(v, file)
  for _, key in ipairs(ASKED) do
    if v[key] then return end
  end
  local kind = file.values.distributed_type
  v.use_deepspeed, v.use_fsdp, v.use_megatron_lm = kind == "DEEPSPEED", kind == "FSDP", kind == "MEGATRON_LM"
  v.multi_gpu, v.tpu = MULTI[kind] or false, kind == "XLA"
  v.tpu_use_cluster = v.tpu and (file.values.tpu_use_cluster or false)
  v.use_parallelism_config = v.use_parallelism_config or #(file.order.parallelism_config or {}) > 0
end

--- Problems of the file that prevent any launch. The others are for accel.config.validate.
local FATAL <const> = { syntax = true, missing = true, double = true, type = true }

local function check_file(file, explain)
  local unknown, lines = {}, nil
  for _, p in ipairs(file.problems) do
    if p.kind == "unknown" and p.top then
      unknown[#unknown + 1] = explain(file, p)
    elseif FATAL[p.kind] or p.key == "distributed_type" or p.key == "compute_environment" then
      lines = lines or {}
      lines[#lines + 1] = explain(file, p)
    end
  end
  if #unknown > 0 then fail("%s", table.concat(unknown, "\n")) end
  if lines then fail("%s", lines[1]) end
end

--- The file's values below the flags'.
local function merge_file(v, origins, given, file)
  if v.gpu_ids == nil then v.gpu_ids = file.values.gpu_ids or "all" end
  local machines = v.num_machines or file.values.num_machines or 1
  if v.multi_gpu and v.gpu_ids ~= "all" and not v.gpu_ids:find(",", 1, true) and machines <= 1 then
    fail("gpu_ids names less than two GPUs (%s) for several processes; name at least two, or set all", v.gpu_ids)
  end
  for _, row in ipairs(schema.list) do
    local key, topic = row.key, row.topic
    if file.given[key] and not given[key] and file.values[key] ~= nil and not (topic.section and topic.environment) then
      v[key], origins[key] = file.values[key], "file"
    elseif v[key] == nil and row.file ~= nil and not topic.environment then
      v[key], origins[key] = row.file, "default"
    end
  end
  if file.values.num_processes == nil and not given.num_processes then
    v.num_processes = file.values.distributed_type == "NO" and 1 or -1
  end
  v.mixed_precision = v.mixed_precision or "no"
  if v.num_processes == -1 then
    fail("%s: num_processes is not set (-1): pass --num_processes", file.path)
  end
end

--- The machine's defaults without a file.
local function merge_machine(v, origins, machine, notes)
  if v.num_processes == nil then
    v.num_processes, origins.num_processes = machine.gpus, "machine"
    notes[#notes + 1] = ("num_processes = %d"):format(math.max(1, machine.gpus))
  end
  if not v.multi_gpu and machine.gpus > 1 and not v.cpu then v.multi_gpu = true end
  v.num_machines = v.num_machines or 1
  v.mixed_precision = v.mixed_precision or "no"
  v.use_cpu = v.cpu or false
end

--- Threads of a rank: the cores of a machine divided by its ranks, on CPUs. One per GPU.
local function threads(v, machine)
  if v.num_cpu_threads_per_process then return v.num_cpu_threads_per_process end
  if not v.use_cpu or v.num_processes < 1 then return 1 end
  local ranks = math.max(v.num_processes // v.num_machines, 1)
  return math.max(machine.cores // ranks, 1)
end

local function choose(v)
  if v.use_deepspeed and not v.cpu then return "deepspeed" end
  if (v.use_fsdp or v.use_megatron_lm or v.multi_gpu) and not v.cpu then return "multi_gpu" end
  if v.tpu and not v.cpu then return v.tpu_use_cluster and "tpu_pod" or "tpu" end
  return "simple"
end

local function defaults(v, origins)
  for _, row in ipairs(schema.list) do
    if v[row.key] == nil and row.default ~= nil then v[row.key], origins[row.key] = row.default, "default" end
  end
end

--- Values of a file that are passed in the ranks' environment and are not allowed.
local function check_values(plan, file)
  for _, p in ipairs(file and file.problems or {}) do
    local used = p.key == "mixed_precision" or (p.key == "dynamo_backend" and plan.launcher ~= "deepspeed")
    if used and plan.origins[p.key] == "file" then fail("%s", require("accel.config.read").explain(file, p)) end
  end
end

local function check_together(plan, v, machine)
  if v.module and v.no_python then fail "--module and --no_python cannot be used together" end
  if v.mixed_precision == "fp8" and not machine.fp8 then
    fail "mixed_precision = fp8: FP8 is not available on this machine; set bf16"
  end
  if plan.launcher == "multi_gpu" and v.use_fsdp and v.fsdp_cpu_ram_efficient_loading and not v.fsdp_sync_module_states then
    fail "--fsdp_cpu_ram_efficient_loading needs --fsdp_sync_module_states to be true"
  end
end

--- Rarely needed modules, loaded on request: commands of other launchers, and torchrun's rendezvous.
local function later(plan, key)
  if (key ~= "cmd" and key ~= "world") or not plan.env or plan.launcher:find "^tpu" then return nil end
  local value = require("accel.config.plan_commands")[key](plan)
  rawset(plan, key, value)
  return value
end

--- The plan of a launch. Raises { message = } if the flags or the file do not make a plan.
---@param arguments accel.config.Arguments
---@param file accel.config.File? the content of --config_file or of the default configuration
---@param machine accel.config.Machine
---@return accel.config.Plan
function M.make(arguments, file, machine)
  local v, origins, notes = {}, {}, {}
  for key, value in next, arguments.values do v[key], origins[key] = value, "flag" end
  check_flags(v)
  if file then
    check_file(file, require("accel.config.read").explain)
    if file.environment == "AMAZON_SAGEMAKER" then
      fail("%s: compute_environment AMAZON_SAGEMAKER: accel starts no jobs on SageMaker; run accel-run in the job's container", file.path)
    end
    paradigm_of_file(v, file)
    merge_file(v, origins, arguments.given, file)
  else
    merge_machine(v, origins, machine, notes)
  end
  defaults(v, origins)
  v.num_cpu_threads_per_process = threads(v, machine)
  local plan = setmetatable({ launcher = choose(v), values = v, origins = origins, notes = notes, script = arguments.script,
    args = arguments.args, machine = machine }, { __index = later })
  if plan.launcher == "tpu" or plan.launcher == "tpu_pod" then
    plan.env = {}
    return plan
  end
  check_values(plan, file)
  check_together(plan, v, machine)
  plan.env = environment.of[plan.launcher](v, origins, file, machine)
  if plan.launcher == "simple" and v.mpirun_hostfile then plan.cmd = require("accel.config.plan_commands").cmd(plan) end
  return plan
end

return M
