--- accel.launch(module, args, options): runs a function of a file on several ranks of this machine and returns the
--- results of all, from a script, the REPL or stock Lua. The ranks are new processes under accel-run's launcher. The
--- function is named by its module, or sent with the values that it uses (util/parcel.lua). accel.encode transfers arguments and results.
local accel = require "accel.core"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local open_read = require("accel.file.core").open_read

local process = accel.process

local WORKER = "accel.dist.worker" -- also marks a process as one of accel's ranks
local POLL, MOST_RANKS = 0.2, 256

-- Options passed to accel-run, with its names and types.
local PASSED = { timeout = "number", backend = "string", num_threads = "number", seed = "number",
  memory_limit = "string", cpu_affinity = "string", log_dir = "string", tee = "boolean", max_restarts = "number", resume = "string",
  monitor_interval = "number" }
local DECLARED = { num_processes = options.none, time_limit = options.none, env = {} }
for name in next, PASSED do DECLARED[name] = options.none end

--- The file to run and the module's name, nil for a file given by its path. For a function: its source, nil and its parcel.
local function find(module)
  if type(module) == "function" then
    local parcel, why = require "accel.util.parcel".pack(require "accel.util.checked".original(module))
    if not parcel then
      raise("launch: other processes cannot receive this function: %s, or put it into a file that returns it, and give the module's name "
        .. "(\"my.trainer\") or the file (\"trainer.lua\")", why)
    end
    return debug.getinfo(module, "S").short_src, nil, parcel
  end
  if type(module) ~= "string" then
    raise("launch: module must be a module's name, a file or a function, got %s", check.shown(module))
  end
  if module:find "%.lua$" or module:find("/", 1, true) then
    local file, why = open_read(module)
    if not file then raise("launch: cannot read %s", why) end
    file:close()
    return module, nil
  end
  local file = package.searchpath(module, package.path)
  if not file then
    raise("launch: module '%s' is not on package.path (%s); give a file by its path, with .lua", module,
      package.path)
  end
  return file, module
end

--- Rank and number of ranks of this process, which may not have joined the others yet.
local function own_rank()
  local dist = require "accel.dist.core"
  if dist.is_initialized() then return dist.get_rank(), dist.get_world_size() end
  return math.tointeger(os.getenv "RANK") or 0, math.tointeger(os.getenv "WORLD_SIZE") or 1
end

local function ranks_of(given)
  if given == nil or given == "auto" then return math.min(process.cores(), MOST_RANKS) end
  local n = check.positive("launch", "num_processes", given)
  if n > MOST_RANKS then raise("launch: num_processes must be at most %d, got %d", MOST_RANKS, n) end
  return n
end

local function environment(given)
  local env = {}
  for name, value in next, given do
    if value == true or (value and type(value) ~= "string" and type(value) ~= "number") then
      raise("launch: env.%s must be a string, a number, or false to take it out, got %s", tostring(name),
        check.shown(value))
    end
    env[name] = value and tostring(value)
  end
  env.ACCEL_WORLD = "none" -- the ranks always form a separate world
  return env
end

local function command(program, n, o, worker, job)
  local argv = { program, "--num_processes", tostring(n) }
  for name, kind in accel.pairs(PASSED) do
    local value = o[name]
    if value ~= nil then
      if type(value) ~= kind then raise("launch: %s must be a %s, got %s", name, kind, check.shown(value)) end
      if kind == "number" and math.tointeger(value) then value = math.tointeger(value) end
      if value ~= false then argv[#argv + 1] = "--" .. name end
      if kind ~= "boolean" then argv[#argv + 1] = tostring(value) end
    end
  end
  argv[#argv + 1], argv[#argv + 2] = worker, job
  return argv
end

--- Waits for the launcher. The first Ctrl-C is passed on to it. Returns how it ended.
local function wait(p, time_limit)
  local stopped, ends = false, accel.clock() + (time_limit or math.huge)
  while accel.clock() < ends do
    local how, number = p:wait(math.min(POLL, ends - accel.clock()))
    if how then return how, number end
    local signal = p:interrupted()
    if signal and not stopped then
      stopped = true
      p:signal(signal)
    end
  end
  p:close()
  process.raise("timeout", ("launch: not done after %g s (time_limit): the ranks were ended"):format(time_limit))
end

--- Raises the error of the rank that failed first by all we know: others that stopped because of it have code "peer".
local function raise_failure(reports, n, how, number)
  local missing, failed, follower
  for rank = n - 1, 0, -1 do
    local report = reports[rank + 1]
    if not report then missing = rank
    elseif not report.ok and report.code == "peer" then follower = rank
    elseif not report.ok then failed = rank end
  end
  local ended = how == "signal" and ("was ended by signal %d"):format(number) or ("ended with status %s"):format(number)
  if failed or (follower and not missing) then
    local rank = failed or follower
    local report = reports[rank + 1]
    process.raise(report.code or "callback", ("launch: rank %d: %s"):format(rank, report.message), rank)
  elseif follower then
    process.raise("peer", ("launch: rank %d returned no result; rank %d: %s"):format(missing, follower,
      reports[follower + 1].message), missing)
  elseif missing and next(reports) then
    process.raise("peer", ("launch: rank %d returned no result; accel-run %s"):format(missing, ended), missing)
  elseif missing then
    process.raise("peer", ("launch: no rank returned a result; accel-run %s (see its stderr above)"):format(ended))
  end
  process.raise("peer", ("launch: accel-run %s (see its stderr above)"):format(ended))
end

---@param module string|function
---@param args? any[]
---@param opts? table
---@return any[] results
local function launch(module, args, opts)
  local file, name, parcel = find(module)
  if args ~= nil and type(args) ~= "table" then raise("launch: args must be a list, got %s", check.shown(args)) end
  for key in next, args or {} do
    if math.type(key) ~= "integer" and key ~= "n" then
      raise("launch: args must be a list, found the key %s; pass options as the third argument", check.shown(key))
    end
  end
  local o = options("launch", opts, DECLARED)
  if o.time_limit ~= nil then check.number("launch", "time_limit", o.time_limit, 0) end
  local rank, size = own_rank()
  if package.loaded[WORKER] or size > 1 then
    raise("launch: this is already rank %d of %d: call the function itself", rank, size)
  end
  local n = ranks_of(o.num_processes)
  local program, where = process.program()
  if not program then raise("launch: accel-run, which starts the ranks, is not at %s", where) end
  local worker = package.searchpath(WORKER, package.path)
  if not worker then raise("launch: %s is not on package.path", WORKER) end

  local blobs = setmetatable({}, { __close = function(list)
    for _, blob in ipairs(list) do blob:close() end
  end })
  local _ <close> = blobs
  local paths = {}
  for rank = 0, n - 1 do
    blobs[rank + 1] = process.blob()
    paths[rank + 1] = blobs[rank + 1]:path()
  end
  local count = args and (math.tointeger(rawget(args, "n")) or #args) or 0
  local given = args and table.move(args, 1, count, 1, {}) or {}
  local ok, job = pcall(accel.encode, { file = file, module = name, path = package.path, cpath = package.cpath,
    results = paths, args = given, n = count,
    parcel = parcel }, { max_bytes = math.maxinteger })
  if not ok then
    raise("launch: %s", (tostring(job):gsub("^.-encode: ", ""):gsub(" at %.args", " at args")))
  end
  blobs[n + 1] = process.blob(job)

  io.stdout:flush()
  io.stderr:flush()
  local p <close> = process.spawn(program, command(program, n, o, worker, blobs[n + 1]:path()), environment(o.env))
  local how, number = wait(p, o.time_limit)
  local signal, served = p:interrupted()
  if signal and served then process.raise("interrupted", ("launch: interrupted by signal %d"):format(signal)) end

  local reports, results = {}, {}
  for rank = 0, n - 1 do
    local bytes = blobs[rank + 1]:read()
    if #bytes > 0 then
      local report, why, code = accel.decode(bytes, { max_bytes = math.maxinteger })
      reports[rank + 1] = not code and report or { message = why, code = code }
    end
  end
  for rank = 0, n - 1 do
    local report = reports[rank + 1]
    if how ~= "exit" or number ~= 0 or not report or not report.ok then raise_failure(reports, n, how, number) end
    if report.n == 1 then results[rank + 1] = report.values[1]
    else
      report.values.n = report.n
      results[rank + 1] = report.values
    end
  end
  results.n = n
  return results
end

return launch
