--- Launches whose ranks another program starts: mpirun, ssh and pdsh, a program of --no_python, or accel-run once more for a policy's
--- attempts. Called by accel.cli.launch.
local accel = require "accel"
local open_read = require("accel.file.core").open_read
local terminal = require "accel.util.terminal"

local M = {}

local function refuse(fmt, ...)
  io.stderr:write("accel-run launch: ", terminal.message(fmt:format(...)), "\n")
  os.exit(2, true)
end

local POLL <const> = 0.2

local function on_path(name, optional)
  if name:find("/", 1, true) then return name end
  for folder in (os.getenv "PATH" or ""):gmatch "[^:]+" do
    local file = open_read(folder .. "/" .. name)
    if file then
      file:close()
      return folder .. "/" .. name
    end
  end
  if not optional then refuse("there is no %s on PATH", name) end
end

--- Runs it until it ends. The first signal is passed on. Returns its exit status.
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

--- mpirun starts the ranks. Each finds its position in mpirun's variables.
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

--- The same command on each machine of a deepspeed_hostfile, with its number. remote: the program that starts others there, if
--- installed, otherwise ssh. line(number) returns the command. Returns the exit status and, on failure, the first machine that failed.
---@param p accel.config.Plan
---@param remote string
---@param line fun(number: integer): string[]
---@param own string[] options of accel-run, which line puts after the program's name
---@return integer status
---@return string? machine
function M.over_hosts(p, remote, line, own)
  local hosts_of, v = require "accel.cli.launch_hosts", p.values
  if not v.deepspeed_hostfile then refuse "several machines: say deepspeed_hostfile, or start accel-run on each with --machine_rank" end
  local hosts, why = hosts_of.read(v.deepspeed_hostfile, v.deepspeed_inclusion_filter, v.deepspeed_exclusion_filter)
  if not hosts then refuse("%s", why) end
  v.num_processes = v.num_processes // v.num_machines * #hosts
  v.num_machines, v.main_process_ip = #hosts, v.main_process_ip or hosts[1]
  v.main_process_port = v.main_process_port or 29500
  local starter = (remote and on_path(remote, true)) or on_path "ssh"
  local by_input, secret = not starter:find "pdsh$", nil
  if by_input then
    secret, why = hosts_of.secret(own)
    if why then refuse("--job-secret-file: %s", why) end
    if secret then table.move({ "--job-secret-file", "-" }, 1, 2, #own + 1, own) end
  end
  return hosts_of.run(starter, hosts, function(number)
    return hosts_of.shell(line(number), p.env, os.getenv "PWD" or ".")
  end, secret and secret .. "\n")
end

return M
