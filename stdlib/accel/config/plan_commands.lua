--- A plan in the terms of other launchers: the command lines of mpirun and of DeepSpeed's launcher, and torchrun's rendezvous. Called by
--- accel.config.plan when they are asked for.
local M = {}

local function fail(...) error({ message = (...):format(select(2, ...)) }, 0) end

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

--- The ranks' rendezvous, in torchrun's terms. nil if a command starts them.
---@param plan accel.config.Plan
---@return table<string, any>?
function M.world(plan)
  if plan.launcher == "simple" or plan.cmd then return nil end
  local v = plan.values
  local at = port(v, plan.machine, plan.notes)
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

local function append(list, ...)
  for _, word in ipairs { ... } do list[#list + 1] = tostring(word) end
end

local function script_command(cmd, plan)
  local v = plan.values
  if not v.no_python then append(cmd, plan.machine.interpreter) end
  if v.module then append(cmd, "-m") end
  append(cmd, plan.script)
  append(cmd, table.unpack(plan.args))
  return cmd
end

local MPI_FLAGS <const> = {
  ["Open MPI"] = { "--hostfile", "--npernode", "-n", "--bind-to" },
  Intel = { "-f", "-ppn", "-n" }, MVAPICH = { "-f", "-ppn", "-n" }, MPICH = { "-f", "-ppn", "-n" },
}

--- mpirun of several CPU processes over the machines of a hostfile.
local function mpirun(v, machine)
  local flags = MPI_FLAGS[machine.mpi]
  if not flags then fail "mpirun_hostfile: mpirun is not installed (Debian: openmpi-bin)" end
  local cmd = { "mpirun", flags[1], v.mpirun_hostfile, flags[2], tostring(v.num_processes // v.num_machines), flags[3],
    tostring(v.num_processes) }
  if flags[4] then append(cmd, flags[4], "socket") end
  return cmd
end

--- DeepSpeed's own launcher, which starts processes on the machines of its hostfile. nil if accel starts the ranks.
local function deepspeed(plan)
  local v = plan.values
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
  append(cmd, plan.script)
  append(cmd, table.unpack(plan.args))
  return cmd
end

--- The reference's command in such a launch. nil if ranks are started one by one.
---@param plan accel.config.Plan
---@return string[]?
function M.cmd(plan)
  if plan.launcher == "simple" then
    return script_command(plan.values.mpirun_hostfile and mpirun(plan.values, plan.machine) or {}, plan)
  end
  return plan.launcher == "deepspeed" and deepspeed(plan) or nil
end

return M
