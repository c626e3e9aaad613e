--- accel-run plan DIR: proposes how to share a model out over so many ranks of so much memory. Formulas order the possible plans, and
--- dry runs measure the first of them. The fastest plan that fits is printed as a configuration file.
local accel = require "accel"
local cli = require "accel.util.cli"
local command = require "accel.cli.command"
local folders = require "accel.util.folders"
local configuration = require "accel.models.config"
local planner = require "accel.cli.planner"
local plans = require "accel.cli.plan_config"
local runs = require "accel.cli.dry_run_ranks"
local traffic = require "accel.parallel.traffic"
local sizes = require "accel.util.sizes"

local NAME <const> = "accel-run plan"

local DECLARED <const> = {
  name = NAME, usage = "DIR --num-processes N --memory SIZE",
  summary = "Finds the tensor, pipeline, context, expert and data parallelism, ZeRO stage, micro-batch and recomputation to train the model in\n"
    .. "DIR (its config.json alone, or tiny:FAMILY) on N ranks. Explains the choice and prints a configuration for the best one.",
  { "num_processes", "int", nil, "N", "ranks" },
  { "num_machines", "int", 1, "M", "machines, of equally many ranks" },
  { "memory", "string", "80G", "SIZE", "of a rank" },
  { "class", "string", nil, "NAME", "the class to train, in place of the one that config.json names" },
  { "device", "string", "cuda", "NAME", "cuda or cpu" },
  { "mixed_precision", "string", "bf16", "P", "no, bf16 or fp16" },
  { "global_batch_size", "int", nil, "ROWS", "rows of an update, of all ranks [4 N]" },
  { "seq_length", "int", nil, "TOKENS", "of a row [the model's number of positions, at most 2048]" },
  { "micro_batch_size", "int", nil, "ROWS", "rows of a forward [tried: 1, 2, 4, ...]" },
  { "tp", "int", nil, "N", "only plans with this tensor parallelism", least = 1 },
  { "pp", "int", nil, "N", "only plans with so many stages", least = 1 },
  { "cp", "int", nil, "N", "only plans with this context parallelism [tried for decoders if ranks hold 4096 tokens]",
    least = 1 },
  { "ep", "int", nil, "N", "only plans in which so many ranks divide the experts of a mixture", least = 1 },
  { "zero", "int", nil, "STAGE", "only plans with this ZeRO stage", least = 0, most = 3 },
  { "flops", "number", nil, "TFLOP/S", "that a rank reaches" },
  { "local_bandwidth", "number", nil, "GB/S", "of a rank inside its machine" },
  { "bandwidth", "number", 12.5, "GB/S", "of a rank between machines" },
  { "tries", "int", 5, "K", "number of plans to simulate, besides plain data parallelism and ZeRO" },
  { "output", "string", nil, "FILE", "write the configuration there" },
  { "json", "flag", false, nil, "print JSON" },
}

local function usage(fmt, ...)
  io.stderr:write(NAME, ": ", fmt:format(...), "\nTry '", NAME, " --help'.\n")
  os.exit(2, true)
end

local function gib(n)
  if n >= 1 << 30 then return ("%.1fG"):format(n / (1 << 30)) end
  if n >= 1 << 20 then return ("%.1fM"):format(n / (1 << 20)) end
  return ("%.0fK"):format(n / 1024)
end

local function seconds(s) return s < 1e-3 and ("%.0fus"):format(s * 1e6) or s < 1 and ("%.0fms"):format(s * 1e3) or ("%.1fs"):format(s) end

--- The config of a folder, or of one of models.tiny. nil and the reason if there is none.
local function config_of(word)
  local family = word:match "^tiny:(.+)$"
  if family then
    local tiny = accel.models.tiny[family]
    if not tiny then return nil, ("no family '%s' in accel.models.tiny"):format(family) end
    local config = { model_type = family }
    for key, value in next, tiny do config[key] = value end
    return config
  end
  return require "accel.models.pretrained".read_config(word)
end

--- A plan with the rows of a forward, for tables: "tp=2,zero=1, 4 rows x 8".
local function label(p)
  local text, named = plans.text(p), nil
  text = text:gsub("micro_batches=%d+,?", ""):gsub(",$", ""):gsub("recompute=full", "recompute"):gsub("sequence=1", "seq"):gsub("schedule=", "")
  named = text == "" and "ddp" or text
  return ("%s %dx%d"):format(named, p.rows, p.accumulate)
end

--- Columns of the output for people.
local COLUMNS <const> = 79

local CATEGORIES <const> = { "parameters", "gradients", "states", "activations" }

local function table_of(list, limit)
  local rows = { { "plan, rows x forwards", "peak", "weights", "grads", "states", "activ.", "other", "sent", "time", "" } }
  for _, p in ipairs(list) do
    local r = p.worst
    local row, rest = { label(p), gib(r.peak.total) }, r.peak.total
    for _, name in ipairs(CATEGORIES) do
      row[#row + 1] = gib(r.peak[name])
      rest = rest - r.peak[name]
    end
    for _, cell in ipairs { gib(rest), gib(p.time.sent), seconds(p.time.total), r.peak.total <= limit and "" or "no" } do row[#row + 1] = cell end
    rows[#rows + 1] = row
  end
  local widths, out = {}, {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  local left = COLUMNS - #"# " -- for the names of plans. A longer one gets its own line
  for i = 2, #widths do left = left - 1 - widths[i] end
  widths[1] = math.min(widths[1], math.max(left, 1))
  for _, row in ipairs(rows) do
    local cells = {}
    if #row[1] > widths[1] then out[#out + 1], row[1] = row[1], "" end
    for i, cell in ipairs(row) do cells[i] = (i == 1 and "%-" .. widths[i] .. "s" or "%" .. math.max(widths[i], 1) .. "s"):format(cell) end
    out[#out + 1] = (table.concat(cells, " "):gsub("%s+$", ""))
  end
  return table.concat(out, "\n")
end

local function options(...)
  local o, words, given = command.parse(DECLARED, 1, 1, ...)
  if not o.num_processes then usage "--num-processes N is missing; give the number of ranks to plan for" end
  local refused = runs.refuse(o.num_processes, o.num_machines)
  if refused then usage("%s", refused) end
  if given.bandwidth and o.num_machines == 1 then command.no_effect(NAME, "--bandwidth", "on one machine; add --num-machines") end
  if given.local_bandwidth and o.num_processes == o.num_machines then
    command.no_effect(NAME, "--local-bandwidth", "with one rank per machine; leave it out")
  end
  o.limit = sizes.parse(o.memory) or usage("--memory: '%s' is not a size such as 512M or 80G", o.memory)
  if not planner.hardware[o.device] then usage("--device: '%s' is neither cpu nor cuda", o.device) end
  for _, key in ipairs { "flops", "local_bandwidth", "bandwidth", "global_batch_size", "seq_length", "micro_batch_size", "tries" } do
    if o[key] and not (o[key] > 0 and o[key] < math.huge) then
      usage("--%s: expected a number above 0, got %s", key:gsub("_", "-"), tostring(o[key]))
    end
  end
  if o.mixed_precision ~= "no" and o.mixed_precision ~= "bf16" and o.mixed_precision ~= "fp16" then
    usage("--mixed-precision: '%s' is not one of no, bf16, fp16", o.mixed_precision)
  end
  if o.output then
    local writable, reason = require "accel.util.writable".file(o.output)
    if not writable then usage("--output: cannot write %s", reason) end
  end
  return o, words[1]
end

--- How many times the bytes of `seen` forwards an update sends, by the formulas.
local function growth(d, p, seen, tokens)
  local function bytes(m)
    local totals = traffic.of(d, { tp = p.tp, pp = p.pp, cp = p.cp, ep = p.ep, dp = p.dp, zero = p.zero, sequence = p.sequence == 1, rows = p.rows,
      tokens = tokens, micro_batches = m })
    local sum = 0
    for _, n in next, totals do sum = sum + n end
    return sum
  end
  local least = bytes(seen)
  return least > 0 and bytes(p.accumulate) / least or 1
end

--- Simulates a plan on its first rank, and for a pipeline also on its last. false and the reason on failure.
local function play(job, o, p, how)
  local seen = math.min(p.accumulate, p.pp and 2 * p.pp or p.micro_batches and 2 or 2)
  local shown = {}
  for key, value in next, p do shown[key] = value end
  if p.micro_batches then shown.micro_batches = seen end
  job.args = { accel.json.encode { config = how.config, tokens = how.tokens, accumulate = p.micro_batches and 1 or seen,
    rows = p.micro_batches and p.rows * seen or p.rows } }
  local ranks = p.pp and { 0, how.ranks - 1 } or { 0 }
  local reports, why = runs.play(job, { num_machines = o.num_machines, device = o.device, steps = 2, mixed_precision = o.mixed_precision }, ranks,
    plans.text(shown))
  if not reports then return false, why end
  p.reports, p.worst = reports, reports[1]
  for _, r in ipairs(reports) do
    local bubble = traffic.bubble { pp = p.pp, micro_batches = p.accumulate, schedule = p.schedule }
    if r.pipeline then r.pipeline.bubble = bubble end
    local t = planner.time(r, how, p.accumulate / seen, growth(traffic.model(how.model), p, seen, how.tokens))
    if not p.time or t.total > p.time.total then p.time = t end
    if r.peak.total > p.worst.peak.total then p.worst = r end
  end
  return true
end

--- Sizes that tensor parallelism must divide.
local function heads_of(model)
  local list, c = {}, model.config
  for _, key in ipairs(model.tp_divides or {}) do list[#list + 1] = c[key] end
  return list
end

--- Tokens of a picture: its patches, and the class.
local function patches_of(c)
  local n = 1
  for i = 1, 2 do
    local side, patch = c.image_size, c.patch_size
    n = n * ((type(side) == "table" and side[i] or side) // (type(patch) == "table" and patch[i] or patch))
  end
  return n + 1
end

--- A class with a loss for a configuration that names one without, as in BERT and ViT.
local function with_loss(config, cls)
  local other = cls and cls.is_base and ({ bert = "BertForMaskedLM", vit = "ViTForImageClassification" })[config.model_type]
  if not other then return cls end
  config.architectures = { other }
  return accel.models[other]
end

return function(...)
  local o, word = options(...)
  local config, why = config_of(word)
  if not config then return command.refuse(NAME, "%s", why) end
  local cls, problem = require "accel.models.auto".class_of(config, o.class)
  if not cls then return command.refuse(NAME, "%s: %s", word, problem) end
  if o.class then config.architectures = accel.json.array { o.class } end
  cls = with_loss(config, cls)
  local built, model = pcall(cls, config, { device = "meta" })
  if not built then return command.refuse(NAME, "%s: %s", word, type(model) == "table" and model.message or model) end
  local c, parameters = configuration.plain(model.config), 0
  for _, p in ipairs(model:parameters()) do parameters = parameters + p:numel() end
  if not (c.n_embd or c.d_model or c.num_hidden_layers and c.intermediate_size) then
    return command.refuse(NAME, "%s: %s is not a transformer; try plans by accel-run --dry-run --plan", word, cls.__name or "it")
  end
  local hardware, half = planner.hardware[o.device], o.mixed_precision ~= "no"
  local positions, decoder = c.n_positions or c.max_position_embeddings or math.huge, c.n_embd ~= nil or c.num_key_value_heads ~= nil
  local pictures = c.image_size and patches_of(c)
  local how = {
    config = config, model = c, ranks = o.num_processes, local_ranks = o.num_processes // o.num_machines, limit = o.limit,
    tokens = pictures or o.seq_length or math.min(positions, decoder and 2048 or 512), decoder = decoder, sequences = model.sp_plan ~= false,
    global_batch = o.global_batch_size or 4 * o.num_processes, mixed_precision = o.mixed_precision,
    accelerator = o.device ~= "cpu", rate = o.flops and o.flops * 1e12 or half and hardware.half or hardware.single,
    costs = hardware.costs,
    near = o.local_bandwidth and o.local_bandwidth * 1e9 or hardware.near, bandwidth = o.bandwidth * 1e9, micro = o.micro_batch_size, tp = o.tp,
    pp = o.pp, cp = o.cp, ep = o.ep, zero = o.zero, heads = heads_of(model),
  }
  if pictures and o.seq_length then usage("--seq-length: pictures of %s are %d tokens each", word, pictures) end
  if o.cp and o.cp > 1 and not decoder then usage("--cp: plans that divide sequences need a decoder, and %s is not one", word) end
  if o.ep and o.ep > 1 and not c.num_local_experts then usage("--ep: %s has no experts", word) end
  if how.tokens > positions then usage("--seq-length: %d tokens, but the model has %d positions", how.tokens, positions) end
  local list = planner.candidates(traffic.model(c), how)
  if #list == 0 then
    return command.refuse(NAME, "no plan divides %d rows over %d ranks, heads %s, %d layers; try another --global-batch-size, --tp or --pp",
      how.global_batch, how.ranks, table.concat(how.heads, " and "), traffic.model(c).layers)
  end
  local folder = assert(accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-plan."))
  local _ <close> = accel.util.guard(function() folders.remove(folder) end)
  local job = { size = how.ranks, folder = folder, env = {}, script = package.searchpath("accel.cli.plan_step", package.path) }
  -- first the fastest by the formulas, then the plain ones, so that the report also covers plans that do not fit, then
  -- the smallest
  local chosen, seen, played, failed = {}, {}, {}, {}
  local function take(p)
    local key = p and label(p)
    if p and not seen[key] then seen[key], chosen[#chosen + 1] = true, p end
  end
  for i = 1, math.min(o.tries, #list) do take(list[i]) end
  local plain = {}
  for _, p in ipairs(list) do
    if not p.tp and not p.pp and not p.cp and not p.ep and not p.recompute then plain[p.zero or 0] = plain[p.zero or 0] or p end
  end
  for zero = 0, 3 do take(plain[zero]) end
  local fitting = false
  local function try(p)
    local ok, reason = play(job, o, p, how)
    if not ok then
      failed[#failed + 1] = { plan = label(p), why = reason }
      return
    end
    played[#played + 1], fitting = p, fitting or p.worst.peak.total <= o.limit
  end
  for _, p in ipairs(chosen) do try(p) end
  if not fitting then -- the formulas were too optimistic: order by their estimates, the smallest first
    table.sort(list, function(a, b) return a.estimate < b.estimate end)
    for i = 1, math.min(o.tries, #list) do
      if not seen[label(list[i])] and not fitting then try(list[i]) end
    end
  end
  table.sort(played, function(a, b)
    local fits, other = a.worst.peak.total <= o.limit, b.worst.peak.total <= o.limit
    if fits ~= other then return fits end
    if fits then return a.time.total < b.time.total end
    return a.worst.peak.total < b.worst.peak.total
  end)
  local best = played[1]
  if not best then return command.refuse(NAME, "%s: %s", failed[1].plan, (failed[1].why:match "^[^\n]*")) end
  local fits = best.worst.peak.total <= o.limit
  local yaml = plans.yaml(best, { num_processes = how.ranks, num_machines = o.num_machines, mixed_precision = o.mixed_precision,
    cpu = o.device == "cpu", gradient_accumulation_steps = not best.micro_batches and best.accumulate or nil })
  if o.output and fits then assert(accel.write_file(o.output, yaml)) end
  if o.json then
    local out = {}
    for i, p in ipairs(played) do
      out[i] = { plan = plans.text(p), rows = p.rows, forwards = p.accumulate, fits = p.worst.peak.total <= o.limit, peak = p.worst.peak,
        estimate = p.estimate, time = p.time, rank = p.worst.rank, flops = p.worst.flops }
    end
    print(accel.json.encode({ parameters = parameters, fits = fits, limit = o.limit, plans = accel.json.array(out), config = fits and yaml or nil },
      { pretty = true }))
    return fits
  end
  local function put(fmt, ...) io.stdout:write(fmt:format(...), "\n") end
  local function say(fmt, ...) put("%s", cli.filled("#", fmt:format(...), 2):gsub("\n  ", "\n# ")) end
  say("%s: %.1f M parameters; %d rows of %d tokens per update on %d ranks of %s, %s each, %s", cls.__name or word, parameters / 1e6,
    how.global_batch, how.tokens, how.ranks, o.device, o.memory, o.mixed_precision == "no" and "f32" or o.mixed_precision)
  say("%.3g TFLOP/s per rank, %.3g GB/s inside a machine, %.3g GB/s between machines; %.3g us to start a kernel, %.3g us per collective, more with "
    .. "more ranks; for the rank that takes the most:", how.rate / 1e12, how.near / 1e9, how.bandwidth / 1e9, how.costs.launch * 1e6,
    how.costs.start * 1e6)
  put("#\n# %s", (table_of(played, o.limit):gsub("\n", "\n# ")))
  for _, f in ipairs(failed) do say("%s: not played: %s", f.plan, (f.why:match "^[^\n]*")) end
  put("#")
  if fits then
    say("%s fits and takes the least time of those that do. Forwards of %d row%s, %d of them an update, on each of %d data ranks:",
      label(best), best.rows, best.rows == 1 and "" or "s", best.accumulate, best.dp)
    put("#")
    if not best.micro_batches and best.accumulate > 1 then
      say("accel.Accelerator { gradient_accumulation_steps = %d }, batches of %d", best.accumulate, best.rows)
    else
      say("batches of %d", best.rows * best.accumulate)
    end
    put("%s", yaml)
  else
    say("no plan fits; the closest is %s with %s. Try --memory %dG, more ranks, a shorter --seq-length, or offload (accel-run help offload).",
      label(best), gib(best.worst.peak.total), math.ceil(best.worst.peak.total / (1 << 30)))
  end
  return fits
end
