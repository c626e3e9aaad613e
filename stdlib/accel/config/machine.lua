--- Questions of a launch about this machine: GPUs, cores, ports, an mpirun. The answers that a caller gives stand in
--- their place.
local accel = require "accel.core"
local options = require "accel.util.options"

local M = {}

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

--- Whether something listens on a TCP port here, by the kernel's own table. A launch only asks if it needs a free port: ranks of
--- one machine use no port, and machine 0 reports a port that is taken.
function M.port_in_use(port)
  local hex = (":%04X"):format(port)
  for _, path in ipairs { "/proc/net/tcp", "/proc/net/tcp6" } do
    for line in (read(path) or ""):gmatch "[^\n]+" do
      local at, state = line:match "^%s*%d+: %x+(:%x%x%x%x) %S+ (%x%x)"
      if at == hex and state == "0A" then return true end
    end
  end
  return false
end

--- A port that nothing listens on, above those that are handed out to connections.
local function free_port()
  for port = 61000, 65535 do
    if not M.port_in_use(port) then return port end
  end
  return 0
end

local MAKERS <const> = { { "Open MPI", "Open MPI" }, { "Intel", "Intel" }, { "mvapich", "MVAPICH" }, { "HYDRA", "MPICH" } }

--- The vendor of the mpirun on PATH. nil: there is none.
local function mpi()
  for folder in (os.getenv "PATH" or ""):gmatch "[^:]+" do
    local program = folder .. "/mpirun"
    local file = io.open(program, "rb")
    if file then
      file:close()
      local pipe = io.popen(("'%s' --version 2>&1"):format((program:gsub("'", "'\\''"))))
      local text = pipe and pipe:read "a" or ""
      if pipe then pipe:close() end
      for _, maker in ipairs(MAKERS) do
        if text:find(maker[1], 1, true) then return maker[2] end
      end
    end
  end
end

--- accel.features() would load every library. This only asks for devices.
local function gpus()
  local n = 0
  for _, name in ipairs(accel.devices()) do
    if name:find "^cuda" then n = n + 1 end
  end
  return n
end

local ASKED <const> = {
  gpus = gpus,
  fp8 = function() return true end, -- on every device: native on some chips, emulated on others
  cores = function() return (accel.process.cores()) end, -- threads of one core count once
  free_port = function() return free_port end,
  mpi = mpi,
  cwd = function() return os.getenv "PWD" or "." end,
  interpreter = function() return (accel.process.program()) or "accel-run" end,
}

local DECLARED <const> = { port_in_use = options.none }
for key in next, ASKED do DECLARED[key] = options.none end

--- A machine of which each answer is found when it is asked for first.
---@param given? table
---@return accel.config.Machine
function M.complete(given)
  local machine = options("machine", given, DECLARED)
  return setmetatable(machine, { __index = function(t, key)
    local ask = ASKED[key]
    if not ask then return nil end
    local value = ask()
    rawset(t, key, value)
    return value
  end })
end

return M
