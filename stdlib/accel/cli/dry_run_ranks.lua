--- Simulated ranks of a world, each a separate process (accel.cli.dry_run_rank), for accel-run --dry-run and accel-run plan.
local accel = require "accel"
local plans = require "accel.cli.plan_config"
local open_read = require("accel.file.core").open_read

local M = {}

--- Ranks that a world is played for at most: each process that plays one makes the groups of all.
local MOST <const> = 16384

--- The error in a number of ranks and of machines, or nil.
---@param ranks integer
---@param machines integer
---@return string?
function M.refuse(ranks, machines)
  if ranks < 1 or ranks > MOST then return ("--num-processes: expected 1 to %d ranks, got %d"):format(MOST, ranks) end
  if machines < 1 then return ("--num-machines: expected 1 or more, got %d"):format(machines) end
  if ranks % machines ~= 0 then
    return ("--num-machines: %d ranks do not divide over %d machines: each has equally many"):format(ranks, machines)
  end
end

--- A word of a shell.
---@param text string
---@return string
function M.quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Variables of a job that would make the child one of its ranks.
local CLEARED <const> = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT ACCEL_WORLD ACCEL_BACKEND ACCEL_DEVICE ACCEL_RESUME"

--- Starts a child with this Lua code, in parallel with others, and returns a function that waits for it.
---@param code string
---@param env table<string, string>
---@param options {folder: string, name: string, flags: string?, quiet: boolean?, verbose: boolean?}
---@return fun(): boolean, string whether it succeeded, and its stderr
function M.start(code, env, options)
  local words = { "env" }
  for name in CLEARED:gmatch "%S+" do words[#words + 1] = "-u " .. name end
  for name, value in accel.pairs(env) do words[#words + 1] = name .. "=" .. M.quoted(value) end
  words[#words + 1] = M.quoted(accel.process.program())
  words[#words + 1] = options.flags or ""
  words[#words + 1] = "-e " .. M.quoted(code)
  words[#words + 1] = options.quiet and ">/dev/null" or ">&2"
  local errors = options.folder .. "/" .. options.name .. ".err"
  words[#words + 1] = (options.verbose and "" or "2>" .. M.quoted(errors)) .. " </dev/null"
  local pipe = assert(io.popen(table.concat(words, " ")))
  return function()
    local ok = pipe:close()
    local f = not options.verbose and open_read(errors)
    local text = f and f:read "a" or ""
    if f then f:close() end
    return ok, text
  end
end

--- The content of a JSON file. nil without one.
---@param path string
function M.read_json(path)
  local f = open_read(path)
  if not f then return nil end
  local text = f:read "a"
  f:close()
  return accel.json.decode(text)
end

local function literal(value)
  if type(value) ~= "table" then return ("%q"):format(value) end
  local parts = {}
  for key, v in accel.pairs(value) do parts[#parts + 1] = ("[%q]=%s"):format(key, literal(v)) end
  return "{" .. table.concat(parts, ",") .. "}"
end

--- Reports of the ranks under a plan, or nil and the reason.
---@param job {env: table, folder: string, size: integer, script: string, args: string[]}
---@param o {num_machines: integer, device: string, steps: integer, mixed_precision: string?, verbose: boolean?}
---@param ranks integer[]
---@param plan string? as --plan takes it
---@return table[]? reports
---@return string? why
function M.play(job, o, ranks, plan)
  local env, waits, out = {}, {}, {}
  for name, value in next, job.env do env[name] = value end
  if plan then
    local own, why = plans.environment(assert(plans.parse(plan)), { num_processes = job.size, num_machines = o.num_machines,
      mixed_precision = o.mixed_precision, cpu = o.device == "cpu" }, job.folder)
    if not own then return nil, why end
    if not o.mixed_precision then own.ACCELERATE_MIXED_PRECISION = nil end
    for name, value in next, own do env[name] = value end
  end
  if o.mixed_precision then env.ACCELERATE_MIXED_PRECISION = o.mixed_precision end
  for i, rank in ipairs(ranks) do
    local name = ("%s.%d"):format((plan or "script"):gsub("%W", "_"), rank)
    local path = ("%s/%s.json"):format(job.folder, name)
    local given = { rank = rank, size = job.size, machines = o.num_machines, accelerator = o.device ~= "cpu", shares = o.device == "cpu",
      steps = o.steps, script = job.script, args = job.args, report = path }
    local code = "require('accel.cli.dry_run_rank').run(" .. literal(given) .. ")"
    waits[i] = M.start(code, env, { folder = job.folder, name = name, quiet = not o.verbose, verbose = o.verbose })
  end
  local errors_of = {}
  for i in ipairs(ranks) do -- all of them: they write into the folder, which the caller removes
    local _, errors = waits[i]()
    errors_of[i] = errors
  end
  for i, rank in ipairs(ranks) do
    local errors = errors_of[i]
    local r = M.read_json(("%s/%s.%d.json"):format(job.folder, (plan or "script"):gsub("%W", "_"), rank))
    if not r then return nil, errors ~= "" and errors or "the script ended its process" end
    if not r.ok then return nil, r.why end
    r.warnings = errors
    out[i] = r
  end
  return out
end

return M
