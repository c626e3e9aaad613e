--- Launches whose ranks another program starts: mpirun, ssh and pdsh, a program of --no_python, or accel-run once more for a policy's
--- attempts. Called by accel.cli.launch.
local accel = require "accel"

local M = {}

local function refuse(fmt, ...)
  io.stderr:write("accel-run launch: ", fmt:format(...), "\n")
  os.exit(2, true)
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
---@param argv string[]
---@param env table<string, string>
---@return integer status
function M.run(argv, env)
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

--- mpirun starts the ranks; each finds its place in what mpirun says.
---@param p accel.config.Plan
---@param given accel.config.Arguments
---@param program string accel-run
---@param script string
---@return string[] argv
function M.mpirun_line(p, given, program, script)
  local argv = {}
  for i, word in ipairs(p.cmd) do
    if word == program or word == given.script then break end
    argv[i] = word
  end
  argv[#argv + 1] = program
  if p.values.cpu or p.values.use_cpu then argv[#argv + 1] = "--cpu" end
  argv[#argv + 1] = script
  table.move(given.args, 1, #given.args, #argv + 1, argv)
  return argv
end

--- The same command on each machine of a deepspeed_hostfile, with its number. remote: what starts programs there, where it is installed;
--- else ssh. line(number) gives the command. Returns the exit status and, where one failed, the machine that did first.
---@param p accel.config.Plan
---@param remote string
---@param line fun(number: integer): string[]
---@return integer status
---@return string? machine
function M.over_hosts(p, remote, line)
  local hosts_of, v = require "accel.cli.launch_hosts", p.values
  if not v.deepspeed_hostfile then refuse "several machines: say deepspeed_hostfile, or start accel-run on each with --machine_rank" end
  local hosts, why = hosts_of.read(v.deepspeed_hostfile, v.deepspeed_inclusion_filter, v.deepspeed_exclusion_filter)
  if not hosts then refuse("%s", why) end
  v.num_processes = v.num_processes // v.num_machines * #hosts
  v.num_machines, v.main_process_ip = #hosts, v.main_process_ip or hosts[1]
  v.main_process_port = v.main_process_port or 29500
  return hosts_of.run(on_path(remote, true) or on_path "ssh", hosts, function(number)
    return hosts_of.shell(line(number), p.env, os.getenv "PWD" or ".")
  end)
end

return M
