--- accel-run --dry-run SCRIPT: what a step of the script takes as any rank of any world, told without running it: memory by category, bytes of
--- every collective, flops, time, and what to try where it does not fit. Each rank that is looked at is a process of its own
--- (accel.profiler.dry_run).
local accel = require "accel"
local command = require "accel.cli.command"
local report = require "accel.cli.dry_run_report"

local NAME <const> = "accel-run --dry-run"

local DECLARED <const> = {
  name = NAME, usage = "[options] SCRIPT [ARGS...]",
  summary = "Memory per rank, bytes of collectives, flops and time of a step, told without running it.\n"
    .. "The script runs on tensors without values; item() gives 0 there.",
  { "num_processes", "int", nil, "N", "ranks of the world [1, or as the configuration says]" },
  { "num_machines", "int", 1, "M", "machines, of equally many ranks" },
  { "rank", "string", nil, "R[,R...]", "which ranks to play [the first and the last]" },
  { "plan", "string", nil, "PLAN", "ddp, zero1, zero2, zero3, full_shard, shard_grad_op [as script and environment say]" },
  { "mixed_precision", "string", nil, "P", "no, bf16, fp16 [as script and environment say]" },
  { "config_file", "string", nil, "FILE", "a configuration of accelerate or accel-run" },
  { "device", "string", "cpu", "NAME", "cpu, or cuda: an accelerator with memory of its own" },
  { "memory_limit", "string", nil, "SIZE", "of a rank, 80G [cpu: 90% of this machine over its ranks; cuda: 80G]" },
  { "steps", "int", 4, "K", "steps to run; the last one is told of, the peak is that of all" },
  { "bandwidth", "float", 12.5, "GB/S", "between machines, of one rank" },
  { "rates", "string", nil, "FILE", "tell times by the rates in FILE, such as an earlier report in JSON" },
  { "json", "flag", false, nil, "print JSON" },
  { "verbose", "flag", false, nil, "show what the script prints" },
}

local PLANS <const> = {
  ddp = {},
  zero1 = { ACCELERATE_USE_DEEPSPEED = "true", ACCELERATE_DEEPSPEED_ZERO_STAGE = "1" },
  zero2 = { ACCELERATE_USE_DEEPSPEED = "true", ACCELERATE_DEEPSPEED_ZERO_STAGE = "2" },
  zero3 = { ACCELERATE_USE_DEEPSPEED = "true", ACCELERATE_DEEPSPEED_ZERO_STAGE = "3" },
  full_shard = { ACCELERATE_USE_FSDP = "true", FSDP_SHARDING_STRATEGY = "FULL_SHARD" },
  shard_grad_op = { ACCELERATE_USE_FSDP = "true", FSDP_SHARDING_STRATEGY = "SHARD_GRAD_OP" },
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
  for _, part in ipairs { job.env, PLANS[plan] or {} } do
    for name, value in next, part do env[name] = value end
  end
  if o.mixed_precision then env.ACCELERATE_MIXED_PRECISION = o.mixed_precision end
  for i, rank in ipairs(ranks) do
    local path = ("%s/%s.%d.json"):format(job.folder, plan or "script", rank)
    local given = { rank = rank, size = job.size, machines = o.num_machines, accelerator = o.device ~= "cpu", shares = o.device == "cpu",
      steps = o.steps, script = job.script, args = job.args, report = path }
    local code = "require('accel.profiler.dry_run').run(" .. literal(given) .. ")"
    waits[i] = start(code, env, { folder = job.folder, name = (plan or "script") .. rank, quiet = not o.verbose, verbose = o.verbose })
  end
  for i, rank in ipairs(ranks) do
    local _, errors = waits[i]()
    local r = read_json(("%s/%s.%d.json"):format(job.folder, plan or "script", rank))
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
  local plan, why = require "accel.config".plan { "--config_file", o.config_file, "script.lua" }
  if not plan then usage("%s", why) end
  local env = {}
  for name, value in next, plan.env do
    if name:find "^ACCELERATE_" or name:find "^FSDP_" then env[name] = value end
  end
  return o.num_processes or math.max(1, plan.values.num_processes), env
end

return function(...)
  local own, script, args = split(...)
  local o = command.parse(DECLARED, 0, 0, table.unpack(own))
  if not script then usage "no script given" end
  if not io.open(script) then usage("cannot read '%s'", script) end
  if o.plan and not PLANS[o.plan] then
    local near = require "accel.util.nearest"(o.plan, PLANS)
    usage("--plan: no plan '%s'%s", o.plan, near and ("; did you mean '%s'?"):format(near)
      or "; there are ddp, zero1, zero2, zero3, full_shard, shard_grad_op")
  end
  if o.device ~= "cpu" and not o.device:find "^cuda" then usage("--device: '%s' is neither cpu nor cuda", o.device) end
  local size, env = configured(o)
  if size < 1 or o.num_machines < 1 or size % o.num_machines ~= 0 then
    usage("%d ranks on %d machines: each has equally many", size, o.num_machines)
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
    told.time = require "accel.profiler.rates".estimate(reports[1], rates, { ranks = job.local_size, cores = cores, machines = o.num_machines,
      bandwidth = o.bandwidth * 1e9 })
  end
  report(told, o.json)
  return fits
end
