--- accel-run launch --policy FILE: the attempts of a launch that a policy plans. The policy is Lua in a sandbox (accel.config.sandbox).
--- accel-run calls it before every attempt, with the machine and the failure of the last attempt. It ends the job by planning nothing.
local accel = require "accel"
local logs = require "accel.cli.launch_logs"
local nearest = require "accel.util.nearest"
local sandbox = require "accel.config.sandbox"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"
local open_read = require("accel.file.core").open_read
local terminal = require "accel.util.terminal"

local M = {}

local NAME <const> = "accel-run launch"
local MOST <const> = 100

local function refuse(fmt, ...)
  io.stderr:write(NAME, ": ", terminal.message(fmt:format(...)), "\n")
  os.exit(2, true)
end

local MANAGERS <const> = { { "slurm", "SLURM_JOB_ID" }, { "torchrun", "TORCHELASTIC_RUN_ID" }, { "mpi", "OMPI_COMM_WORLD_SIZE" },
  { "mpi", "PMI_SIZE" }, { "kubernetes", "KUBERNETES_SERVICE_HOST" } }

local function manager()
  for _, m in ipairs(MANAGERS) do
    if os.getenv(m[2]) then return m[1] end
  end
end

--- The machine as described to a policy.
local function facts(here)
  local features = accel.features()
  local devices = {}
  for kind, d in next, features.devices do devices[kind] = d.count end
  return { cores = here.cores, cpus = features.cpus, memory = features.memory, devices = devices, gpus = here.gpus,
    job_manager = manager() }
end

--- Ends of logs that say why a rank died.
local REASONS <const> = { { "out_of_memory", "out of memory" }, { "out_of_memory", "out_of_memory" }, { "timeout", "timeout" },
  { "not_finite", "not finite" } }
local TAIL <const> = 16384

local function reason(dir, status)
  for _, name in ipairs(accel.listdir(dir) or {}) do
    local file = open_read(dir .. "/" .. name)
    if file then
      local size = file:seek "end"
      file:seek("set", math.max(0, size - TAIL))
      local text = (file:read "a" or ""):lower()
      file:close()
      for _, r in ipairs(REASONS) do
        if text:find(r[2], 1, true) then return r[1] end
      end
    end
  end
  if status == 128 + 9 then return "killed" end
  return status > 128 and "signal" or "error"
end

local function ask(path, machine)
  local planned, why = sandbox.policy(path, machine)
  if why then
    io.stderr:write(NAME, ": ", terminal.message(why), "\n")
    os.exit(2, true)
  end
  return planned
end

--- Adds a policy's settings to the flags. The flags win.
---@param given accel.config.Arguments
---@param path string of the policy
---@param planned table
function M.take(given, path, planned)
  if planned.env ~= nil then
    if type(planned.env) ~= "table" then refuse("%s: env must be a table of variables, got %s", path, type(planned.env)) end
    require("accel.cli.launch_policy_env").check(path, planned.env, given.values.policy_env, refuse)
  end
  for key, value in accel.pairs(planned) do
    if key == "policy" or key == "policy_env" then refuse("%s: a plan has no '%s'", path, key) end
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

--- Runs the attempts. make(planned, dir) gives a function that carries an attempt out, with logs in dir, and returns its status and,
--- over several machines, the name of the one that failed first.
---@param path string
---@param here accel.config.Machine
---@param make fun(planned: table, dir: string): fun(): integer, string?
function M.run(path, here, make)
  local told = facts(here)
  local status = 0
  for attempt = 0, MOST do
    told.attempt = attempt
    local planned = ask(path, told)
    if not planned then
      if attempt == 0 then io.stderr:write(NAME, ": ", path, " plans nothing\n") end
      os.exit(attempt == 0 and 2 or status, true)
    end
    local dir, failed = logs.make(), false
    local _ <close> = setmetatable({}, { __close = function() logs.finish(dir, failed) end })
    local start, began, machine = make(planned, dir), accel.clock(), nil
    status, machine = start()
    told.last = { status = status, signal = status > 128 and status - 128 or nil, reason = status ~= 0 and reason(dir, status) or nil,
      seconds = accel.clock() - began, plan = planned, machine = machine }
    failed = status ~= 0
    if not failed then
      logs.finish(dir, false)
      os.exit(0, true)
    end
    io.stderr:write(("%s: attempt %d ended with status %d (%s); asking %s\n"):format(NAME, attempt + 1, status, told.last.reason,
      path))
  end
  os.exit(status, true)
end

return M
