--- accel-run launch [flags] script.lua ...: a launch as Accelerate spells it, and what accel-run --config_file FILE script.lua does.
--- Flags, environment and files become a plan (accel.config.plan); the ranks are started by accel-run itself, by mpirun where a
--- hostfile asks for it.
local accel = require "accel"
local arguments = require "accel.config.arguments"
local cli = require "accel.util.cli"
local conditions = require "accel.config.conditions"
local layers = require "accel.config.layers"
local machine = require "accel.config.machine"
local nearest = require "accel.util.nearest"
local plan = require "accel.config.plan"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"

local NAME <const> = "accel-run launch"

local function usage(fmt, ...)
  io.stderr:write(NAME, ": ", fmt:format(...), "\nTry '", NAME, " --help'.\n")
  os.exit(2, true)
end

local function refuse(fmt, ...)
  io.stderr:write(NAME, ": ", fmt:format(...), "\n")
  os.exit(2, true)
end

-- ---- help ----

local function flag_line(row)
  local value = row.type == "switch" and "" or " " .. (row.allowed and "WORD" or row.type == "int" and "N" or "VALUE")
  local left = "  --" .. (row.flag_names and row.flag_names[1] or row.key):gsub("_", "-") .. value
  local help = row.help
  if row.allowed and #row.allowed <= 6 then
    local words = {}
    for i, word in ipairs(row.allowed) do words[i] = tostring(word) end
    help = ("%s: %s"):format(help, table.concat(words, ", "))
  end
  if row.default ~= nil and row.default ~= "" and type(row.default) ~= "table" and row.type ~= "switch" then
    help = ("%s [%s]"):format(help, tostring(row.default))
  end
  if #left > 28 then return left .. "\n" .. cli.filled("", help, 30) end
  return cli.filled(left, help, 30)
end

local function help(group)
  local lines = { "Usage: " .. NAME .. " [flags] script.lua [arguments of the script]", "" }
  local groups = {}
  for _, topic in ipairs(schema.topics) do
    groups[#groups + 1] = topic.title
    if topic.title == group or group == "all" or (not group and topic.title == "launch") then
      lines[#lines + 1] = topic.title .. ":"
      for _, list in ipairs { topic.flags or {}, topic.keys } do
        for _, row in ipairs(list) do
          if row.flag ~= false then lines[#lines + 1] = flag_line(row) end
        end
      end
      lines[#lines + 1] = ""
    end
  end
  lines[#lines + 1] = cli.filled("More flags:", "--help=" .. table.concat(groups, ", --help=") .. ", or all.", 12)
  io.stdout:write(table.concat(lines, "\n"), "\n")
  return true
end

-- ---- what cannot be ----

local INSTEAD <const> = {
  tpu = "there are no TPUs here; leave --tpu out", tpu_pod = "there are no TPU pods here; run accel-run on each machine",
}

--- What starts processes on the machines of a deepspeed_hostfile.
local REMOTE <const> = { pdsh = "pdsh" }
local NO_REMOTE <const> = { slurm = "srun accel-run script.lua starts the ranks",
  openmpi = "say mpirun_hostfile, or mpirun accel-run script.lua" }

--- What is accepted and changes nothing, in one line.
local function warn(p)
  local words = {}
  if conditions.holds.dynamo(p.values) then words[#words + 1] = "dynamo (ops are native code already)" end
  if p.values.downcast_bf16 and p.origins.downcast_bf16 ~= "default" then words[#words + 1] = "downcast_bf16 (of TPUs)" end
  if #words > 0 then io.stderr:write(NAME, ": warning: without effect here: ", table.concat(words, ", "), "\n") end
  if #p.notes > 0 and not p.values.quiet then io.stderr:write(NAME, ": ", table.concat(p.notes, ", "), "\n") end
end

local function script_of(v, given)
  if not v.module then return given.script end
  local path = package.searchpath(given.script, package.path)
  if not path then refuse("there is no module '%s' on package.path (LUA_PATH)", given.script) end
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
  if v.num_processes > 1 or machines > 1 or v.log_dir then
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

--- mpirun starts the ranks; each finds its place in what mpirun says.
local function mpirun_line(p, given, program)
  local argv = {}
  for i, word in ipairs(p.cmd) do
    if word == program or word == given.script then break end
    argv[i] = word
  end
  push(argv, program)
  if p.values.cpu or p.values.use_cpu then push(argv, "--cpu") end
  push(argv, script_of(p.values, given))
  table.move(given.args, 1, #given.args, #argv + 1, argv)
  return argv
end

local POLL <const> = 0.2

local function on_path(name, optional)
  if name:find("/", 1, true) then return name end
  for folder in (os.getenv "PATH" or ""):gmatch "[^:]+" do
    local file = io.open(folder .. "/" .. name, "rb")
    if file then
      file:close()
      return folder .. "/" .. name
    end
  end
  if not optional then refuse("there is no %s on PATH", name) end
end

--- Runs it to its end; the first signal is passed on. Returns its exit status.
local function run(argv, env)
  io.stdout:flush()
  local p <close> = accel.process.spawn(on_path(argv[1]), argv, env)
  local sent = false
  while true do
    local how, number = p:wait(POLL)
    if how then return how == "exit" and number or 128 + number end
    local signal = p:interrupted()
    if signal and not sent then
      sent = true
      p:signal(signal)
    end
  end
end

--- Options of accel-run itself, which may stand among the flags; values: whether they take one. Their table is host/app's.
local OWN <const> = { device = true, num_threads = true, memory_limit = true, seed = true, no_strict = false, backend = true,
  timeout = true, cpu_affinity = true, resume = true }

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

--- A flag's word, and where it may come from besides: what a policy plans, below the flags.
local function take_plan(given, path, planned)
  for key, value in accel.pairs(planned) do
    if key ~= "env" and key ~= "args" then
      local row = schema.by_key[key] or schema.by_flag[key]
      if not row then
        local near = nearest(key, schema.by_key)
        refuse("%s: a plan has no '%s'%s", path, tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
      end
      local typed, expected = scalar.typed(row, tostring(value))
      local allowed
      if typed ~= nil then typed, allowed = scalar.allowed(row, typed) end
      if typed == nil then refuse("%s: %s must be %s, got %s", path, key, expected or allowed, tostring(value)) end
      if given.values[row.key] == nil then given.values[row.key], given.given[row.key] = typed, true end
    end
  end
  if type(planned.args) == "table" then table.move(planned.args, 1, #planned.args, #given.args + 1, given.args) end
end

--- Flags, environment and files to a plan that can be carried out here. planned: what a policy says, with its path.
local function decide(flags, here, path, planned)
  local given, why = arguments.read(flags)
  if not given then usage("%s", why) end
  if not given.script then usage "no script given" end
  if planned then take_plan(given, path, planned) end
  local resolved, file = layers.resolve(given)
  if not resolved then refuse("%s", file) end
  local ok, p = pcall(plan.make, given, file, here)
  if not ok then
    if type(p) == "table" and p.message then refuse("%s", p.message) end
    error(p, 0)
  end
  for _, each in ipairs(file and file.problems or {}) do refuse("%s", require("accel.config.read").explain(file, each)) end
  if INSTEAD[p.launcher] then refuse("%s", INSTEAD[p.launcher]) end
  if p.launcher == "deepspeed" and p.cmd and not REMOTE[p.values.deepspeed_multinode_launcher] then
    refuse("deepspeed_multinode_launcher %s: %s", p.values.deepspeed_multinode_launcher, NO_REMOTE[p.values.deepspeed_multinode_launcher]
      or "start accel-run on each machine with --machine_rank, or say standard")
  end
  local env = p.env
  env.PYTHONPATH, env.KMP_AFFINITY, env.KMP_BLOCKTIME = nil, nil, nil
  if p.values.num_processes > 1 and not p.values.mpirun_hostfile then env.MASTER_ADDR, env.MASTER_PORT = nil, nil end
  for name, value in next, planned and type(planned.env) == "table" and planned.env or {} do env[name] = tostring(value) end
  return p, given
end

--- What starts the ranks of a plan.
local function words_of(p, given, program, own)
  if p.values.no_python then
    if p.values.num_processes > 1 then refuse "--no_python starts one process; ranks are Lua scripts" end
    return { given.script, table.unpack(given.args) }
  end
  if p.values.mpirun_hostfile then return mpirun_line(p, given, program) end
  return command_line(p, given, program, own)
end

--- The same command on each machine of a hostfile, with its number.
local function over_hosts(p, given, program, own)
  local hosts_of, v = require "accel.cli.launch_hosts", p.values
  if not v.deepspeed_hostfile then refuse "several machines: say deepspeed_hostfile, or start accel-run on each with --machine_rank" end
  local hosts, why = hosts_of.read(v.deepspeed_hostfile, v.deepspeed_inclusion_filter, v.deepspeed_exclusion_filter)
  if not hosts then refuse("%s", why) end
  v.num_processes = v.num_processes // v.num_machines * #hosts
  v.num_machines, v.main_process_ip = #hosts, v.main_process_ip or hosts[1]
  v.main_process_port = v.main_process_port or 29500
  local remote = on_path(REMOTE[v.deepspeed_multinode_launcher], true) or on_path "ssh"
  return hosts_of.run(remote, hosts, function(number)
    v.machine_rank = number
    return hosts_of.shell(command_line(p, given, program, own), p.env, os.getenv "PWD" or ".")
  end)
end

return function(...)
  local words = { ... }
  for _, word in ipairs(words) do
    if word:sub(1, 1) ~= "-" then break end
    if word == "-h" or word:find "^%-%-help" then return help(word:match "=(.*)$") end
  end
  local own, flags = split(words)
  local given, why = arguments.read(flags)
  if not given then usage("%s", why) end
  local here = machine.complete()
  local program, path = here.interpreter, given.values.policy
  if path then
    return require("accel.cli.launch_policy")(path, here, function(planned, dir)
      local p, arguments_of = decide(flags, here, path, planned)
      warn(p)
      if p.launcher == "deepspeed" and p.cmd then return function() return over_hosts(p, arguments_of, program, own) end end
      if not p.values.no_python and not p.values.mpirun_hostfile then p.values.log_dir = p.values.log_dir or dir end
      return function() return run(words_of(p, arguments_of, program, own), p.env) end
    end)
  end
  local p
  p, given = decide(flags, here)
  warn(p)
  if p.launcher == "deepspeed" and p.cmd then os.exit(over_hosts(p, given, program, own), true) end
  os.exit(run(words_of(p, given, program, own), p.env), true)
end
