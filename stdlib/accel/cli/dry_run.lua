--- accel-run --dry-run SCRIPT: the cost of a script's step as any rank of any world, computed without running it: memory by category, bytes
--- of every collective, flops, time, and suggestions if it does not fit. Each simulated rank is a separate process
--- (accel.cli.dry_run_rank).
local accel = require "accel"
local command = require "accel.cli.command"
local folders = require "accel.util.folders"
local plans = require "accel.cli.plan_config"
local ranks_of_run = require "accel.cli.dry_run_ranks"
local report = require "accel.cli.dry_run_report"
local sizes = require "accel.util.sizes"

local NAME <const> = "accel-run --dry-run"

local DECLARED <const> = {
  name = NAME, usage = "[options] SCRIPT [ARGS...]",
  summary = "Predicts memory per rank, bytes of collectives, flops and time of a step without running it.\n"
    .. "The script runs on tensors without values; item() returns 0.",
  { "num_processes", "int", nil, "N", "ranks of the world [1, or the configuration's]" },
  { "num_machines", "int", 1, "M", "machines, of equally many ranks" },
  { "rank", "string", nil, "R[,R...]", "which ranks to play [the first and the last]" },
  { "plan", "string", nil, "PLAN", "ddp, zero1, zero2, zero3, full_shard, shard_grad_op, or tp=2,pp=2,zero=1,micro_batches=8 "
    .. "[as script and environment say]" },
  { "mixed_precision", "string", nil, "P", "no, bf16, fp16 [as script and environment say]" },
  { "config_file", "string", nil, "FILE", "a configuration of accelerate or accel-run" },
  { "device", "string", "cpu", "NAME", "cpu, or cuda: an accelerator with its own memory" },
  { "memory_limit", "string", nil, "SIZE", "of a rank, 80G [cpu: 90% of this machine divided by its ranks; cuda: 80G]" },
  { "steps", "int", 8, "K", "steps to run; the report covers the last one, and the peak of all", least = 1 },
  { "bandwidth", "number", 12.5, "GB/S", "between machines, of one rank" },
  { "rates", "string", nil, "FILE", "tell times by the rates in FILE, such as an earlier report in JSON" },
  { "json", "flag", false, nil, "print JSON" },
  { "verbose", "flag", false, nil, "show the script's output" },
}

local play, read_json, start = ranks_of_run.play, ranks_of_run.read_json, ranks_of_run.start

local function usage(fmt, ...)
  io.stderr:write(NAME, ": ", fmt:format(...), "\nTry '", NAME, " --help'.\n")
  os.exit(2, true)
end

--- Our options come before the script. The words after it are the script's.
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
  local bytes = sizes.parse(text)
  if not bytes then usage("--memory-limit: '%s' is not a size such as 512M or 80G", text) end
  return bytes
end

--- The rates of this machine with this number of concurrent ranks, measured once and kept for a day.
local function rates_of(job, o, cores)
  if o.rates then
    local r = read_json(o.rates)
    if not r then usage("--rates: %s cannot be read", o.rates) end
    r = r.rates or r -- a report, or the output of accel.profiler.rates
    local problem = require "accel.profiler.rates".problem(r)
    if problem then usage("--rates: %s: %s; leave it out to measure them", o.rates, problem) end
    return r
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
    if not r or r < 0 or r >= size then usage("--rank: '%s' is not a rank of %d", word, size) end
    out[#out + 1] = r
  end
  return out
end

local function limit_of(job, o)
  if o.memory_limit then return size_of(o.memory_limit), "given" end
  if o.device ~= "cpu" then return 80 << 30, "of an accelerator, unless --memory-limit sets another" end
  return accel.mem_stats("cpu").limit_bytes // job.local_size, ("of this machine over %d ranks"):format(job.local_size)
end

local function peak(reports)
  local most = 0
  for _, r in ipairs(reports) do most = math.max(most, r.peak.total) end
  return most
end

--- Alternatives that would fit: other plans on the same number of ranks, each tried, and lower precision.
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
  local o, _, given = command.parse(DECLARED, 0, 0, table.unpack(own))
  if not script then usage "no script given" end
  if not require("lfs").attributes(script, "mode") then usage("cannot read '%s'", script) end
  local plan, wrong = nil, nil
  if o.plan then
    plan, wrong = plans.parse(o.plan)
    if wrong then usage("--plan: %s", wrong) end
  end
  if o.device ~= "cpu" and not o.device:find "^cuda" then usage("--device: '%s' is neither cpu nor cuda", o.device) end
  if not (o.bandwidth > 0 and o.bandwidth < math.huge) then usage("--bandwidth: expected a number above 0, got %s", tostring(o.bandwidth)) end
  local size, env = configured(o)
  local refused = ranks_of_run.refuse(size, o.num_machines)
  if refused then usage("%s", refused) end
  if given.bandwidth and o.num_machines == 1 then command.no_effect(NAME, "--bandwidth", "on one machine; add --num-machines") end
  if plan and size % plans.ranks(plan) ~= 0 then
    usage("--plan: %s are %d ranks, which do not divide the %d of --num-processes", o.plan, plans.ranks(plan), size)
  end
  local folder = assert(accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-dry-run."))
  local _ <close> = accel.util.guard(function() folders.remove(folder) end)
  local job = { script = script, args = args, size = size, local_size = size // o.num_machines, env = env, folder = folder }
  local ranks = ranks_of(o, size)
  local reports, why = play(job, o, ranks, o.plan)
  if not reports then return command.refuse(NAME, "%s", why) end
  for _, key in ipairs { "plan", "mixed_precision" } do
    if given[key] and not reports[1].wrapped then
      command.no_effect(NAME, "--" .. key:gsub("_", "-"), "on %s, which makes no accel.Accelerator", script)
    end
  end
  local cores = accel.process.cores()
  local rates = rates_of(job, o, cores)
  local limit, whose = limit_of(job, o)
  local fits = peak(reports) <= limit
  local told = { script = script, size = size, machines = o.num_machines, device = o.device, plan = o.plan, ranks = reports, limit = limit,
    whose = whose, fits = fits, suggestions = not fits and suggest(job, o, reports, limit) or {}, rates = rates,
    rates_file = o.rates }
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
