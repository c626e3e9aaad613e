--- accel-run launch [flags] script.lua ...: a launch in Accelerate's syntax, also used by accel-run --config_file FILE script.lua.
--- Flags, environment and files become a plan (accel.config.plan), with which accel-run starts again. mpirun starts the ranks if a
--- hostfile requires it. Everything loaded here adds to the time of each start with a configuration. It is little and short-lived, so
--- nothing is collected meanwhile.
collectgarbage "stop"
local accel = require "accel.core"
local arguments = require "accel.config.arguments"
local conditions = require "accel.config.conditions"
local layers = require "accel.config.layers"
local machine = require "accel.config.machine"
local plan = require "accel.config.plan"
local schema = require "accel.config.schema"
local terminal = require "accel.util.terminal"

local NAME <const> = "accel-run launch"

local function usage(fmt, ...)
  io.stderr:write(NAME, ": ", terminal.format(fmt, ...), "\nTry '", NAME, " --help'.\n")
  os.exit(2, true)
end

local function refuse(fmt, ...)
  io.stderr:write(NAME, ": ", terminal.message(fmt:format(...)), "\n")
  os.exit(2, true)
end

-- ---- unsupported settings ----

local INSTEAD <const> = {
  tpu = "accel has no TPU backend; leave --tpu out", tpu_pod = "accel does not start TPU pods; run accel-run on each machine",
}

--- The programs that start processes on the machines of a deepspeed_hostfile.
local REMOTE <const> = { pdsh = "pdsh" }
local NO_REMOTE <const> = { slurm = "srun accel-run script.lua starts the ranks",
  openmpi = "say mpirun_hostfile, or mpirun accel-run script.lua" }

--- The value of --rdzv_conf: how long ranks of several machines wait for each other.
local function rendezvous(p)
  local conf, why = require("accel.config.rendezvous").read(p.values.rdzv_conf)
  if not conf then refuse("%s", why) end
  if (p.values.num_machines or 1) < 2 then return { "rdzv_conf (of several machines)" } end
  if conf.join_timeout then p.env.ACCEL_JOIN_TIMEOUT = tostring(conf.join_timeout) end
  return #conf.ignored > 0 and { "rdzv_conf " .. table.concat(conf.ignored, ", ") } or {}
end

--- Whether mpirun starts the ranks: of a launch on CPUs, with a hostfile.
local function by_mpirun(p) return p.values.mpirun_hostfile ~= nil and p.launcher == "simple" end

local function plain(row, value)
  local default = row.default
  if default == nil then default = schema.file_default(row) end
  if value == default or value == row.plain then return true end
  return type(value) == "table" and #value == 0
end

--- Strategies, and the variable by which ranks know that they are to follow one.
local STRATEGIES <const> = { use_deepspeed = "ACCELERATE_USE_DEEPSPEED", use_fsdp = "ACCELERATE_USE_FSDP",
  use_megatron_lm = "ACCELERATE_USE_MEGATRON_LM" }

--- Keys that a flag or a file gave and whose condition does not hold. Plugins report those that ranks get in a variable.
local function idle(p, words)
  local v = p.values
  for key, variable in next, STRATEGIES do
    if v[key] and not p.env[variable] then
      words[#words + 1] = ("%s (%s)"):format(key, v.cpu and "of launches without --cpu" or "DeepSpeed is asked for")
    end
  end
  for _, row in ipairs(schema.list) do
    local value, why, origin = v[row.key], nil, p.origins[row.key]
    if value ~= nil and (origin == "flag" or origin == "file") and not plain(row, value) then
      local variable = type(row.env) == "table" and row.env[1] or row.env
      local when = row.launched and not conditions.holds[row.launched](v) and row.launched
        or row.when and not conditions.holds[row.when](v) and row.when
      if when and not (variable and p.env[variable]) and not (row.key == "mpirun_hostfile" and by_mpirun(p)) then
        why = "of " .. conditions.words[when]
      end
    end
    if why then words[#words + 1] = ("%s (%s)"):format(row.key, why) end
  end
end

--- Options that are accepted without effect, in one line.
local function warn(p)
  local words = p.values.rdzv_conf ~= "" and rendezvous(p) or {}
  idle(p, words)
  table.sort(words)
  if #words > 0 then io.stderr:write(NAME, ": warning: without effect here: ", table.concat(words, ", "), "\n") end
  if #p.notes > 0 and not p.values.quiet then io.stderr:write(NAME, ": ", table.concat(p.notes, ", "), "\n") end
end

local function script_of(v, given)
  if not v.module then return given.script end
  local path = package.searchpath(given.script, package.path)
  if not path then refuse("module '%s' is not on package.path (LUA_PATH)", given.script) end
  return path
end

local function push(list, ...)
  for _, word in ipairs { ... } do list[#list + 1] = tostring(word) end
end

--- accel-run's own words for the plan. own: options of accel-run that came before.
local function command_line(p, given, program, own)
  local v, argv = p.values, { program }
  table.move(own, 1, #own, #argv + 1, argv)
  local machines = v.num_machines or 1
  if v.num_processes > 1 or machines > 1 or v.log_dir or (v.max_restarts or 0) > 0 then
    push(argv, "--num-processes", math.max(1, v.num_processes))
    if machines > 1 then
      push(argv, "--num-machines", machines, "--machine-rank", v.machine_rank or 0)
      if v.main_process_ip then push(argv, "--main-process-ip", v.main_process_ip) end
      if v.main_process_port then push(argv, "--main-process-port", v.main_process_port) end
    end
    if (v.max_restarts or 0) > 0 then push(argv, "--max-restarts", v.max_restarts, "--monitor-interval", v.monitor_interval) end
    if v.log_dir then push(argv, "--log-dir", v.log_dir) end
    if v.log_dir and (v.tee ~= "0" or v.policy) then push(argv, "--tee") end
    if v.enable_cpu_affinity then push(argv, "--cpu-affinity", "auto") end
  end
  if v.cpu or v.use_cpu then push(argv, "--cpu") end
  if p.origins.num_cpu_threads_per_process then push(argv, "--num-threads", v.num_cpu_threads_per_process) end
  push(argv, script_of(v, given))
  table.move(given.args, 1, #given.args, #argv + 1, argv)
  return argv
end

--- Options of accel-run itself that may appear among the flags. values: whether they take one. Their table is host/app's.
local OWN <const> = { device = true, num_threads = true, memory_limit = true, seed = true, no_strict = false, backend = true,
  timeout = true, cpu_affinity = true, resume = true, run_id = true, job_secret_file = true, insecure = false }

local function split(words)
  local own, flags, i = {}, {}, 1
  while words[i] and words[i]:find "^%-." and words[i] ~= "--" do
    local name, inline = words[i]:match "^%-%-([^=]+)(=?)"
    local takes = name and OWN[(name:gsub("-", "_"))]
    local row = name and schema.by_flag[(name:gsub("-", "_"))]
    local list = takes ~= nil and own or flags
    list[#list + 1] = words[i]
    if inline ~= "=" and (takes or (takes == nil and row and row.type ~= "switch")) and words[i + 1] then
      i = i + 1
      list[#list + 1] = words[i]
    end
    i = i + 1
  end
  table.move(words, i, #words, #flags + 1, flags)
  return own, flags
end

--- Converts flags, environment and files to a plan for this machine. planned: a policy's settings, with its path.
local function decide(flags, here, path, planned)
  local given, why = arguments.read(flags)
  if not given then usage("%s", why) end
  if not given.script then usage "no script given" end
  if planned then require("accel.cli.launch_policy").take(given, path, planned) end
  local resolved, file = layers.resolve(given)
  if not resolved then refuse("%s", file) end
  local ok, p = pcall(plan.make, given, file, here)
  if not ok then
    if type(p) == "table" and p.message then refuse("%s", p.message) end
    error(p, 0)
  end
  for _, each in ipairs(file and file.problems or {}) do refuse("%s", require("accel.config.read").explain(file, each)) end
  if p.values.tpu then refuse("%s", INSTEAD[p.launcher] or INSTEAD.tpu) end
  if p.launcher == "deepspeed" and p.cmd and not REMOTE[p.values.deepspeed_multinode_launcher] then
    refuse("deepspeed_multinode_launcher %s: %s", p.values.deepspeed_multinode_launcher, NO_REMOTE[p.values.deepspeed_multinode_launcher]
      or "start accel-run on each machine with --machine_rank, or say standard")
  end
  if p.values.no_python and p.values.num_processes > 1 then refuse "--no_python starts one process; accel's ranks are Lua scripts" end
  local env = p.env
  env.PYTHONPATH, env.KMP_AFFINITY, env.KMP_BLOCKTIME = nil, nil, nil
  if p.values.role ~= "default" then env.ROLE_NAME = p.values.role end
  if p.values.num_processes > 1 and not by_mpirun(p) then env.MASTER_ADDR, env.MASTER_PORT = nil, nil end
  for name, value in next, planned and type(planned.env) == "table" and planned.env or {} do env[name] = tostring(value) end
  return p, given
end

--- Other programs that start ranks, loaded only if needed.
local function spawn()
  collectgarbage "restart"
  return require "accel.cli.launch_spawn"
end

--- The program that starts the ranks of a plan.
local function words_of(p, given, program, own)
  if p.values.no_python then return { given.script, table.unpack(given.args) } end
  if by_mpirun(p) then return spawn().mpirun_line(p, given, program, script_of(p.values, given)) end
  return command_line(p, given, program, own)
end

--- The command line becomes accel-run's own (host/app/relaunch.c). false if another program is started, or if a driver that is
--- already loaded would not see the visible devices.
local function begin_anew(p, argv, here)
  local program = rawget(_G, "accel_run")
  if not program or p.values.no_python or by_mpirun(p) then return false end
  if p.env.CUDA_VISIBLE_DEVICES and rawget(here, "gpus") ~= nil then return false end
  for _, word in ipairs(argv) do program.again("word", word) end
  for name, value in accel.pairs(p.env) do program.again("variable", name .. "=" .. value) end
  return true
end

--- The same command on each machine of a hostfile, with its number.
local function over_hosts(p, given, program, own)
  local v = p.values
  return spawn().over_hosts(p, REMOTE[v.deepspeed_multinode_launcher], function(number)
    v.machine_rank = number
    return command_line(p, given, program, own)
  end, own)
end

return function(...)
  local words = { ... }
  for _, word in ipairs(words) do
    if word:sub(1, 1) ~= "-" then break end
    if word == "-h" or word:find "^%-%-help" then
      return require "accel.cli.launch_help"(NAME, word:match "=(.*)$")
    end
  end
  local own, flags = split(words)
  local given, why = arguments.read(flags)
  if not given then usage("%s", why) end
  local here = machine.complete()
  local program, path = here.interpreter, given.values.policy
  if path then
    collectgarbage "restart"
    return require("accel.cli.launch_policy").run(path, here, function(planned, dir)
      local p, arguments_of = decide(flags, here, path, planned)
      warn(p)
      if p.launcher == "deepspeed" and p.cmd then return function() return over_hosts(p, arguments_of, program, own) end end
      if not p.values.no_python and not by_mpirun(p) then p.values.log_dir = p.values.log_dir or dir end
      return function() return spawn().run(words_of(p, arguments_of, program, own), p.env) end
    end)
  end
  local p
  p, given = decide(flags, here)
  warn(p)
  if p.launcher == "deepspeed" and p.cmd then os.exit(over_hosts(p, given, program, own), true) end
  local argv = words_of(p, given, program, own)
  if begin_anew(p, argv, here) then return true end
  os.exit(spawn().run(argv, p.env), true)
end
