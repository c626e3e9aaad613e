--- accel-run --dry-run SCRIPT: what a step of the script takes as any rank of any world, told without running it: memory by category, bytes of
--- every collective, flops, time, and what to try where it does not fit. Each rank that is looked at is a process of its own
--- (accel.profiler.dry_run).
local accel = require "accel"
local command = require "accel.cli.command"
local plans = require "accel.cli.plan_config"
local report = require "accel.cli.dry_run_report"

local NAME <const> = "accel-run --dry-run"

local DECLARED <const> = {
  name = NAME, usage = "[options] SCRIPT [ARGS...]",
  summary = "Memory per rank, bytes of collectives, flops and time of a step, told without running it.\n"
    .. "The script runs on tensors without values; item() gives 0 there.",
  { "num_processes", "int", nil, "N", "ranks of the world [1, or as the configuration says]" },
  { "num_machines", "int", 1, "M", "machines, of equally many ranks" },
  { "rank", "string", nil, "R[,R...]", "which ranks to play [the first and the last]" },
  { "plan", "string", nil, "PLAN", "ddp, zero1, zero2, zero3, full_shard, shard_grad_op, or tp=2,pp=2,zero=1,micro_batches=8 "
    .. "[as script and environment say]" },
  { "mixed_precision", "string", nil, "P", "no, bf16, fp16 [as script and environment say]" },
  { "config_file", "string", nil, "FILE", "a configuration of accelerate or accel-run" },
  { "device", "string", "cpu", "NAME", "cpu, or cuda: an accelerator with memory of its own" },
  { "memory_limit", "string", nil, "SIZE", "of a rank, 80G [cpu: 90% of this machine over its ranks; cuda: 80G]" },
  { "steps", "int", 8, "K", "steps to run; the last one is told of, the peak is that of all" },
  { "bandwidth", "float", 12.5, "GB/S", "between machines, of one rank" },
  { "rates", "string", nil, "FILE", "tell times by the rates in FILE, such as an earlier report in JSON" },
  { "json", "flag", false, nil, "print JSON" },
  { "verbose", "flag", false, nil, "show what the script prints" },
}

local function usage(fmt, ...)
  io.stderr:write(NAME, ": ", fmt:format(...), "\nTry '", NAME, " --help'.\n")
  os.exit(2, true)
end

--- Our options stand before the script; what follows it is its own.
local function split(...)
  local own, all, i = {}, { ... }, 1
  local takes = {}
  for _, row in ipairs(DECLARED) do takes[row[1]] = row[2] ~= "flag" end
  while i <= #all and all[i]:sub(1, 1) == "-" and all[i] ~= "-" do
    local name = all[i]:match "^%-%-([^=]*)" or ""
    name = name:gsub("-", "_")
    if name ~= "dry_run" then
      own[#own + 1] = all[i]
      if takes[name] and not all[i]:find("=", 1, true) and i < #all then
        i = i + 1
        own[#own + 1] = all[i]
      end
    end
    i = i + 1
  end
  return own, all[i], table.move(all, i + 1, #all, 1, {})
end

local function size_of(text)
  local number, unit = text:match "^(%d+%.?%d*)%s*([KMGT]?)i?B?$"
  if not number then usage("--memory-limit: '%s' is no size such as 512M or 80G", text) end
  return math.floor(tonumber(number) * 1024 ^ (("KMGT"):find(unit, 1, true) and unit ~= "" and ("KMGT"):find(unit, 1, true) or 0))
end

local function quoted(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- Variables of a job that would make the child one of its ranks.
local CLEARED <const> = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT ACCEL_WORLD ACCEL_BACKEND ACCEL_DEVICE ACCEL_RESUME"

--- Starts a child with this Lua code, runs it beside others, and gives a function that waits for it.
local function start(code, env, options)
  local words = { "env" }
  for name in CLEARED:gmatch "%S+" do words[#words + 1] = "-u " .. name end
  for name, value in accel.pairs(env) do words[#words + 1] = name .. "=" .. quoted(value) end
  words[#words + 1] = quoted(accel.process.program())
  words[#words + 1] = options.flags or ""
  words[#words + 1] = "-e " .. quoted(code)
  words[#words + 1] = options.quiet and ">/dev/null" or ">&2"
  local errors = options.folder .. "/" .. options.name .. ".err"
  words[#words + 1] = (options.verbose and "" or "2>" .. quoted(errors)) .. " </dev/null"
  local pipe = assert(io.popen(table.concat(words, " ")))
  return function()
    local ok = pipe:close()
    local f = not options.verbose and io.open(errors)
    local text = f and f:read "a" or ""
    if f then f:close() end
    return ok, text
  end
end

local function read_json(path)
  local f = io.open(path, "rb")
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

--- Reports of the ranks under a plan; nil and why.
local function play(job, o, ranks, plan)
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
    local code = "require('accel.profiler.dry_run').run(" .. literal(given) .. ")"
    waits[i] = start(code, env, { folder = job.folder, name = name, quiet = not o.verbose, verbose = o.verbose })
  end
  for i, rank in ipairs(ranks) do
    local _, errors = waits[i]()
    local r = read_json(("%s/%s.%d.json"):format(job.folder, (plan or "script"):gsub("%W", "_"), rank))
    if not r then return nil, errors ~= "" and errors or "the script ended its process" end
    if not r.ok then return nil, r.why end
    r.warnings = errors
    out[i] = r
  end
  return out
end

--- The rates of this machine with so many ranks beside one another, measured once and kept for a day.
local function rates_of(job, o, cores)
  if o.rates then
    local r = read_json(o.rates)
    if not r then usage("--rates: %s cannot be read", o.rates) end
    return r.rates or r -- a report, or what accel.profiler.rates wrote
  end
  if o.device ~= "cpu" then return nil end
  local ranks = math.max(1, math.min(job.local_size, cores))
  local threads = math.max(1, cores // ranks)
  local path = job.folder .. "/rates.json"
  local flags = ("--num_threads %d"):format(threads) .. (ranks > 1 and (" --num_processes %d"):format(ranks) or "")
  local wait = start(("require('accel.profiler.rates').measure(%q)"):format(path), {},
    { folder = job.folder, name = "rates", quiet = true, flags = flags })
  local _, errors = wait()
  local r = read_json(path)
  if not r then io.stderr:write(NAME, ": rates could not be measured: ", errors, "\n") end
  return r
end

local function ranks_of(o, size)
  if not o.rank then return size > 1 and { 0, size - 1 } or { 0 } end
  local out = {}
  for word in o.rank:gmatch "[^,]+" do
    local r = math.tointeger(tonumber(word))
    if not r or r < 0 or r >= size then usage("--rank: '%s' is no rank of %d", word, size) end
    out[#out + 1] = r
  end
  return out
end

local function limit_of(job, o)
  if o.memory_limit then return size_of(o.memory_limit), "given" end
  if o.device ~= "cpu" then return 80 << 30, "of an accelerator, unless --memory-limit tells another" end
  return accel.mem_stats("cpu").limit_bytes // job.local_size, ("of this machine over %d ranks"):format(job.local_size)
end

local function peak(reports)
  local most = 0
  for _, r in ipairs(reports) do most = math.max(most, r.peak.total) end
  return most
end

--- What would fit instead: other plans on as many ranks, each tried; lower precision.
local function suggest(job, o, reports, limit)
  local out = {}
  local function try(label, plan, changed)
    local options = setmetatable(changed or {}, { __index = o })
    local r = play(job, options, { 0 }, plan)
    if r then out[#out + 1] = { label = label, peak = peak(r), fits = peak(r) <= limit } end
  end
  if reports[1].wrapped and job.size > 1 then
    for _, plan in ipairs { "zero1", "zero2", "zero3" } do
      if plan ~= o.plan then try("--plan " .. plan, plan) end
    end
  end
  if reports[1].wrapped and (o.mixed_precision or os.getenv "ACCELERATE_MIXED_PRECISION" or "no") == "no" then
    try("--mixed-precision bf16" .. (job.size > 1 and " --plan zero3" or ""), job.size > 1 and "zero3" or o.plan, { mixed_precision = "bf16" })
  end
  table.sort(out, function(a, b) return a.peak < b.peak end)
  return out
end

local function configured(o)
  if not o.config_file then return o.num_processes or 1, {} end
  local env, launch = plans.of_file(o.config_file)
  if not env then usage("%s", launch) end
  return o.num_processes or math.max(1, launch.values.num_processes), env
end

return function(...)
  local own, script, args = split(...)
  local o = command.parse(DECLARED, 0, 0, table.unpack(own))
  if not script then usage "no script given" end
  if not io.open(script) then usage("cannot read '%s'", script) end
  local plan, wrong = nil, nil
  if o.plan then
    plan, wrong = plans.parse(o.plan)
    if wrong then usage("--plan: %s", wrong) end
  end
  if o.device ~= "cpu" and not o.device:find "^cuda" then usage("--device: '%s' is neither cpu nor cuda", o.device) end
  local size, env = configured(o)
  if size < 1 or o.num_machines < 1 or size % o.num_machines ~= 0 then
    usage("%d ranks on %d machines: each has equally many", size, o.num_machines)
  end
  if plan and size % plans.ranks(plan) ~= 0 then
    usage("--plan: %s are %d ranks, which do not divide the %d of --num-processes", o.plan, plans.ranks(plan), size)
  end
  local folder = assert(accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-dry-run."))
  local _ <close> = accel.util.guard(function() os.execute("rm -rf " .. quoted(folder)) end)
  local job = { script = script, args = args, size = size, local_size = size // o.num_machines, env = env, folder = folder }
  local ranks = ranks_of(o, size)
  local reports, why = play(job, o, ranks, o.plan)
  if not reports then return command.refuse(NAME, "%s", why) end
  local cores = accel.process.cores()
  local rates = rates_of(job, o, cores)
  local limit, whose = limit_of(job, o)
  local fits = peak(reports) <= limit
  local told = { script = script, size = size, machines = o.num_machines, device = o.device, plan = o.plan, ranks = reports, limit = limit,
    whose = whose, fits = fits, suggestions = not fits and suggest(job, o, reports, limit) or {}, rates = rates }
  if rates then
    for _, r in ipairs(reports) do
      r.time = require "accel.profiler.rates".estimate(r, rates, { ranks = job.local_size, cores = cores, machines = o.num_machines,
        bandwidth = o.bandwidth * 1e9 })
      if not told.time or r.time.total > told.time.total then told.time, told.slowest = r.time, r.rank end
    end
  end
  report(told, o.json)
  return fits
end
