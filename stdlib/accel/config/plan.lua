--- From flags, a configuration file and the machine to what a launch does: which kind of launch, the environment of the ranks, how many
--- there are and where they meet. Pure: nothing is read, started or printed here.
local environment = require "accel.config.environment"
local schema = require "accel.config.schema"

local M = {}

---@class accel.config.Machine
---@field gpus integer that can be used
---@field cores integer physical ones
---@field fp8 boolean whether mixed_precision = "fp8" can be had
---@field free_port fun(): integer
---@field port_in_use? fun(port: integer): boolean
---@field mpi? string "Open MPI", "Intel", "MPICH", "MVAPICH"; nil: there is no mpirun
---@field cwd string
---@field interpreter string what runs scripts

---@class accel.config.Plan
---@field launcher string "simple", "multi_gpu", "deepspeed", "tpu", "tpu_pod"
---@field env table<string, string> what ranks get besides ours
---@field cmd string[]? the command, where the ranks are not ours to start one by one
---@field world table? num_machines, per_machine, machine_rank, main_process_ip, main_process_port, endpoint, ...
---@field values table<string, any> every value, by key
---@field origins table<string, string> "flag", "file", "machine" or "default"
---@field notes string[] what was decided where nothing was said

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

--- What the file's distributed_type asks for, unless a flag asks for something.
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

--- Problems of the file that no launch can live with; the others are for accel.config.validate.
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
    fail("gpu_ids names less than two GPUs (%s) for several processes; name at least two, or say all", v.gpu_ids)
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

--- What the machine says where there is no file.
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

--- Threads of a rank: the cores of a machine by its ranks, on CPUs; one beside a GPU.
local function threads(v, machine)
  if v.num_cpu_threads_per_process then return v.num_cpu_threads_per_process end
  if not v.use_cpu or v.num_processes < 1 then return 1 end
  local ranks = math.max(v.num_processes // v.num_machines, 1)
  return math.max(machine.cores // ranks, 1)
end

local PORT <const> = 29500

local function port(v, machine, notes)
  local wanted = v.main_process_port
  if wanted == 0 then return machine.free_port() end
  if machine.port_in_use and machine.port_in_use(wanted or PORT) then
    if v.num_machines > 1 then fail("port %d of main_process_port is in use", wanted or PORT) end
    local free = machine.free_port()
    notes[#notes + 1] = ("port %d is in use, %d is taken"):format(wanted or PORT, free)
    return free
  end
  return wanted
end

--- Where ranks meet, in the words of torch's launcher.
local function world(v, machine, notes)
  local at = port(v, machine, notes)
  local w = { nnodes = "1:1", nproc_per_node = tostring(v.num_processes), node_rank = 0, rdzv_backend = v.rdzv_backend,
    rdzv_endpoint = "", rdzv_conf = v.rdzv_conf, max_restarts = v.max_restarts, monitor_interval = v.monitor_interval,
    role = v.role, tee = v.tee, log_dir = v.log_dir, master_addr = "127.0.0.1", master_port = tostring(at or PORT) }
  if v.num_machines > 1 then
    w.nnodes, w.nproc_per_node = tostring(v.num_machines), tostring(v.num_processes // v.num_machines)
    w.node_rank = v.machine_rank or 0
    if v.same_network or not v.main_process_ip then w.master_addr = v.main_process_ip end
    if v.same_network then w.master_port = at and tostring(at) else
      w.rdzv_endpoint, w.master_port = ("%s:%s"):format(v.main_process_ip, at), nil
    end
  end
  return w
end

local function choose(v)
  if v.use_deepspeed and not v.cpu then return "deepspeed" end
  if (v.use_fsdp or v.use_megatron_lm or v.multi_gpu) and not v.cpu then return "multi_gpu" end
  if v.tpu and not v.cpu then return v.tpu_use_cluster and "tpu_pod" or "tpu" end
  return "simple"
end

local function append(list, ...)
  for _, word in ipairs { ... } do list[#list + 1] = tostring(word) end
end

local function script_command(cmd, v, arguments, machine, module_flag)
  if not v.no_python then append(cmd, machine.interpreter) end
  if v.module then append(cmd, module_flag) end
  append(cmd, arguments.script)
  append(cmd, table.unpack(arguments.args))
  return cmd
end

local MPI_FLAGS <const> = {
  ["Open MPI"] = { "--hostfile", "--npernode", "-n", "--bind-to" },
  Intel = { "-f", "-ppn", "-n" }, MVAPICH = { "-f", "-ppn", "-n" }, MPICH = { "-f", "-ppn", "-n" },
}

--- mpirun of several CPU processes over the machines of a hostfile.
local function mpirun(v, machine)
  local flags = MPI_FLAGS[machine.mpi]
  if not flags then fail "mpirun_hostfile: there is no mpirun here (Debian: openmpi-bin)" end
  local cmd = { "mpirun", flags[1], v.mpirun_hostfile, flags[2], tostring(v.num_processes // v.num_machines), flags[3],
    tostring(v.num_processes) }
  if flags[4] then append(cmd, flags[4], "socket") end
  return cmd
end

--- DeepSpeed's own launcher, which starts processes on the machines of its hostfile; nil where ranks are ours to start.
local function deepspeed_command(v, arguments)
  if v.num_machines <= 1 or v.deepspeed_multinode_launcher == "standard" then return nil end
  local cmd = { "deepspeed", "--hostfile", tostring(v.deepspeed_hostfile) }
  if v.deepspeed_multinode_launcher == "nossh" then append(cmd, "--node_rank", v.machine_rank or 0, "--no_ssh")
  else append(cmd, "--no_local_rank", "--launcher", v.deepspeed_multinode_launcher) end
  if v.deepspeed_exclusion_filter then append(cmd, "--exclude", v.deepspeed_exclusion_filter)
  elseif v.deepspeed_inclusion_filter then append(cmd, "--include", v.deepspeed_inclusion_filter)
  else append(cmd, "--num_gpus", v.num_processes // v.num_machines) end
  if v.main_process_ip then append(cmd, "--master_addr", v.main_process_ip) end
  append(cmd, "--master_port", v.main_process_port or PORT)
  if v.module then append(cmd, "--module") elseif v.no_python then append(cmd, "--no_python") end
  append(cmd, arguments.script)
  append(cmd, table.unpack(arguments.args))
  return cmd
end

local function defaults(v, origins)
  for _, row in ipairs(schema.list) do
    if v[row.key] == nil and row.default ~= nil then v[row.key], origins[row.key] = row.default, "default" end
  end
end

--- Values of a file that stand in the ranks' environment and are none of those allowed.
local function check_values(plan, file)
  for _, p in ipairs(file and file.problems or {}) do
    local used = p.key == "mixed_precision" or (p.key == "dynamo_backend" and plan.launcher ~= "deepspeed")
    if used and plan.origins[p.key] == "file" then fail("%s", require("accel.config.read").explain(file, p)) end
  end
end

local function check_together(plan, v, machine)
  if v.module and v.no_python then fail "--module and --no_python cannot be used together" end
  if v.mixed_precision == "fp8" and not machine.fp8 then
    fail "mixed_precision = fp8: FP8 is not available on this machine; say bf16"
  end
  if plan.launcher == "multi_gpu" and v.use_fsdp and v.fsdp_cpu_ram_efficient_loading and not v.fsdp_sync_module_states then
    fail "--fsdp_cpu_ram_efficient_loading needs --fsdp_sync_module_states to be true"
  end
end

--- The plan of a launch. Raises { message = } where the flags or the file make none.
---@param arguments accel.config.Arguments
---@param file accel.config.File? what --config_file or a configuration in its place says
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
  local plan = { launcher = choose(v), values = v, origins = origins, notes = notes, script = arguments.script,
    args = arguments.args }
  if plan.launcher == "tpu" or plan.launcher == "tpu_pod" then
    plan.env = {}
    return plan
  end
  check_values(plan, file)
  check_together(plan, v, machine)
  plan.env = environment.of[plan.launcher](v, origins, file, machine)
  if plan.launcher == "simple" then
    plan.cmd = script_command(v.mpirun_hostfile and mpirun(v, machine) or {}, v, arguments, machine, "-m")
  else
    plan.cmd = plan.launcher == "deepspeed" and deepspeed_command(v, arguments) or nil
    if not plan.cmd then plan.world = world(v, machine, notes) end
  end
  return plan
end

return M
