--- Tests on several machines, which are as many launchers on this one: their ranks share no memory and reach each other over tcp. A
--- script that is its own rank program says
---   local machines = dofile((arg[0]:match "^.*/" or "") .. "../../support/machines.lua")
---   if machines.start({ 2, 1 }, { 2, 2 }) then return end
--- and what follows runs on every rank: first of 2 machines of 1 rank each, then of 2 of 2.
local accel = require "accel"

local M = {}

local port = 20000 + accel.util.Random((assert(io.open "/proc/self/stat"):read "n")):below(9000)

local function read(path)
  local f <close> = io.open(path, "rb")
  return f and f:read "a" or ""
end

--- Runs this script on n machines of `per` ranks each. Raises, with what they wrote, unless all end well.
---@param n integer
---@param per integer
---@param args? string the script's own arguments, as in a shell
---@param options? string of accel-run
---@param env? string settings of its environment, as in a shell
---@return string[] what each machine wrote
function M.run(n, per, args, options, env)
  port = port + 1
  local jobs, base, out = {}, os.tmpname(), {}
  for machine = 0, n - 1 do
    jobs[machine] = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec env %s '%s' --num_threads 1 --num_processes %d --num_machines %d "
      .. "--machine_rank %d --main_process_ip 127.0.0.1 --main_process_port %d %s '%s' %s >'%s.%d' 2>&1 </dev/null"):format(
      env or "", accel.process.program(), n * per, n, machine, port, options or "", arg[0], args or "machines", base, machine) }, {})
  end
  local failed
  for machine = 0, n - 1 do
    local how, code = jobs[machine]:wait(300)
    failed = failed or how ~= "exit" or code ~= 0
    jobs[machine]:close()
    local path = ("%s.%d"):format(base, machine)
    out[machine + 1] = read(path)
    os.remove(path)
  end
  os.remove(base)
  if failed then error(("%d machines of %d ranks:\n%s"):format(n, per, table.concat(out)), 0) end
  return out
end

--- Starts this script on machines, one pair { machines, ranks of each } after the other; false on a rank, where the test goes on.
---@param ... integer[]
function M.start(...)
  if accel.dist.is_initialized() then return false end
  for _, pair in ipairs { ... } do io.write(table.concat(M.run(pair[1], pair[2]))) end
  return true
end

return M
