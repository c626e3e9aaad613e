-- Rows of launch.json: flags and a file to launcher, environment, command and the torch launcher's arguments; required by configs.lua.
local accel = require "accel"

local function machine_of(T, row)
  local m = T.machine
  return { gpus = row.gpus, fp8 = row.fp8_available, cores = m.physical_cores, free_port = function() return m.free_port end,
    mpi = m.mpirun, cwd = m.cwd, interpreter = "python" }
end

--- argv without a script's name gets the one that the maker added.
local function arguments_of(config, row)
  local argv, program = {}, "train.py"
  for i, word in ipairs(row.argv) do
    argv[i] = word
    if word == "--no_python" then program = "./tool" end
  end
  for _, word in ipairs { program, "--lr", "0.1" } do argv[#argv + 1] = word end
  return config.arguments.read(argv)
end

--- Reasons why a variable, or a word of the launcher, differs.
local faults = {
  { "the NVMe paths of a DeepSpeed configuration are not exported", function(key)
    return key:find "^env%.ACCELERATE_DEEPSPEED_OFFLOAD_.*NVME_PATH$"
  end },
  { "fp8 keys as the questions write them become variables that nothing reads", function(key, _, file)
    local names = file and table.concat(file.order.fp8_config or {}, " ") or ""
    return key:find "^env%.ACCELERATE_FP8_[AO]" and (names:find "amax_history_length" or names:find "amax_compute_algorithm"
      or names:find "optimization_level")
  end },
  { "fsdp_backward_prefetch_policy, the name of versions up to 0.20, is read and lost", function(key, _, file)
    return key == "env.FSDP_BACKWARD_PREFETCH" and file and table.concat(file.order.fsdp_config or {}, " "):find "prefetch_policy"
  end },
  { "same_network, rdzv_backend and enable_cpu_affinity of a file are never applied", function(key, _, file)
    local v = file and file.values or {}
    return key == "env.ACCELERATE_CPU_AFFINITY" and v.enable_cpu_affinity
      or key == "torchrun.rdzv_backend" and v.rdzv_backend and v.rdzv_backend ~= "static"
      or (key == "torchrun.rdzv_endpoint" or key:find "^torchrun%.master_") and v.same_network
  end },
}

local function excuse(key, row, file)
  for _, fault in ipairs(faults) do
    if fault[2](key, row, file) then return fault[1] end
  end
end

--- Differences of two tables of plain values, as a list { key, text }.
local function differences(T, into, prefix, want, got)
  local keys = {}
  for k in next, want do keys[k] = true end
  for k in next, got do keys[k] = true end
  for k in accel.pairs(keys) do
    local d = T.difference(want[k], got[k], prefix .. k)
    if d then into[#into + 1] = { prefix .. k, d } end
  end
end

local COMPARED <const> = { "nnodes", "nproc_per_node", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_conf", "max_restarts",
  "monitor_interval", "role", "log_dir", "tee", "master_addr", "master_port" }

local function compare(T, row, plan, file)
  local found = {}
  if plan.launcher ~= row.launcher then found[1] = { "launcher", ("launcher: want %s, got %s"):format(row.launcher, plan.launcher) } end
  differences(T, found, "env.", row.env, plan.env)
  if row.cmd then
    local d = T.difference(row.cmd, plan.cmd or {}, "cmd")
    if d then found[#found + 1] = { "cmd", d } end
  end
  if row.torchrun and plan.world then
    local want, got = {}, plan.world
    for _, key in ipairs(COMPARED) do want[key] = row.torchrun[key] end
    differences(T, found, "torchrun.", want, got)
  end
  for _, d in ipairs(found) do
    local reason = excuse(d[1], row, file)
    if not reason then return "fail", d[2] end
    found.reason = reason
  end
  return found.reason and "list" or "pass", found.reason
end

local TWICE <const> = "a key that is there twice is an error; the reference takes the last one silently"
local SAGEMAKER <const> = "no SageMaker file reaches its launcher: the loader fails, or parallelism_config is missing"

local function error_row(T, name, row, plan, message)
  if plan then
    if T.CRASH[row.error] then return T.pass() end
    return T.fail(name, "no error; the reference: %s", row.message)
  end
  if T.CRASH[row.error] or row.error == "ParserError" or T.names_fault(row.message, message) then return T.pass() end
  if message:find("duplicate key", 1, true) then return T.list(name, TWICE) end
  if message:find("AMAZON_SAGEMAKER", 1, true) then return T.list(name, SAGEMAKER) end
  T.fail(name, "'%s' names not what '%s' names", message, row.message)
end

local function launch_row(T, config, row, index)
  local name = ("launch %d %s %s"):format(index, row.file ~= accel.json.null and row.file or "-", table.concat(row.argv, " "))
  local arguments, message = arguments_of(config, row)
  local file, plan
  if arguments and row.file and row.file ~= accel.json.null then
    file, message = config.read.file(T.dir .. "/yaml/" .. row.file)
    if not file then return T.fail(name, "%s", message) end
    file.path = row.file
  end
  if arguments then
    local ok, made = pcall(config.plan.make, arguments, file, machine_of(T, row))
    if ok then plan = made
    elseif type(made) == "table" and made.message then message = made.message
    else return T.fail(name, "%s", made) end
  end
  if row.error then return error_row(T, name, row, plan, message) end
  if not plan then
    if message:find("duplicate key", 1, true) then return T.list(name, TWICE) end
    return T.fail(name, "%s", message)
  end
  local how, what = compare(T, row, plan, file)
  if how == "fail" then return T.fail(name, "%s", what) end
  if how == "list" then return T.list(name, what) end
  T.pass()
end

return function(T, config)
  local all = T.read "launch.json"
  T.machine, T.launch_rows = all.machine, all.rows
  for i, row in ipairs(all.rows) do launch_row(T, config, row, i) end
end
