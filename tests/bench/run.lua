-- Measures accel beside its peers: both sides alternate in one run; medians, spreads and ratios are printed. Nothing
-- here passes or fails. README.md tells how it measures and what each bench is.
--   accel-run bench [NAME...]                 or, the same, accel-run tests/bench/run.lua [NAME...]; --help, --list
local accel = require "accel"

local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local cli = require "accel.util.cli"
local nearest = require "accel.util.nearest"
local children = require "children"
local compare = require "compare"
local history = require "history"
local machine = require "machine"
local report = require "report"
local h = require "harness"

-- Files of suites/, in the order in which their benches run. Each returns a function of h and the table that it puts
-- its benches into: suites.NAME = {about =, run =, group = nil or a name for several}.
local FILES = { "process", "dispatch", "compile", "mlp", "bandwidth", "adamw", "gemm", "attention", "cross_entropy", "quant", "gpt",
  "resnet18", "conv", "layers", "loader", "checkpoint", "resume", "offload", "tokenizers", "track", "generate", "accelerator", "profiler",
  "attach", "ddp", "shard", "parallel", "comm", "scale", "cuda" }

local declared = {
  name = "accel-run bench", usage = "[options] [NAME...]",
  summary = "Measures accel and, if installed, PyTorch and others in turn. Without a NAME, all benches run (see --list).",
  { "rounds", "int", nil, "N", "number of rounds; the table has their medians [5; 15 with --save or --against]" },
  { "threads", "int", math.min(2, accel.num_threads()), "N", "threads of each program" },
  { "peers", "string", nil, "LIST", "PyTorch configurations to compare with: " .. table.concat(h.CONFIGS, ",") .. ", or none [all]" },
  { "json", "string", nil, "FILE", "write all results as JSON, with the time of each round" },
  { "save", "string", nil, "FILE", "save the results for --against; in a folder, one file for each kind of machine" },
  { "against", "string", nil, "FILE", "compare with results of --save, or in turn with another accel-run;"
    .. " the exit status is 1 if a row is slower" },
  { "plots", "string", nil, "FOLDER", "write the curves of the bench scale to FOLDER as PNG" },
  { "list", "flag", false, nil, "list the benches" },
  { "no_idle_gate", "flag", false, nil, "do not wait for an idle machine" },
  { "quick", "flag", false, nil, "use tiny sizes and do not wait for an idle machine: a check that the benches run" },
  { "python", "string", nil, "PROGRAM", "the Python interpreter with PyTorch [python3]" },
  { "only", "string", nil, "NAME", "the same as NAME" },
}

-- ---- what there is ----

local benches, order, groups = {}, {}, {}
for _, file in ipairs(FILES) do
  local path = ("%s/suites/%s.lua"):format(here, file)
  local f = io.open(path, "rb")
  if f then
    f:close()
    dofile(path)(h, setmetatable({}, { __newindex = function(_, name, bench)
      if type(bench) == "function" then bench = { run = bench, about = "see suites/" .. file .. ".lua" } end
      benches[name], order[#order + 1] = bench, name
      if bench.group then
        groups[bench.group] = groups[bench.group] or {}
        table.insert(groups[bench.group], name)
      end
    end }))
  end
end

local function list()
  for _, name in ipairs(order) do print(("%-19s %s"):format(name, benches[name].about)) end
  local names = {}
  for name in pairs(groups) do names[#names + 1] = name end
  table.sort(names)
  local line = "groups:"
  for _, name in ipairs(names) do
    if #line + #name > 78 then
      print(line)
      line = "groups:"
    end
    line = line .. " " .. name
  end
  print(line)
end

-- The benches that these words mean, in the order of the words; ends the program where there is no such.
local function chosen(words)
  local names, seen = {}, {}
  local function add(name)
    if not seen[name] then names[#names + 1], seen[name] = name, true end
  end
  for _, word in ipairs(words) do
    if benches[word] then
      add(word)
    elseif groups[word] then
      for _, name in ipairs(groups[word]) do add(name) end
    else
      local known = { table.unpack(order) }
      for name in pairs(groups) do known[#known + 1] = name end
      local near = nearest(word, known)
      cli.fail(declared, ("no bench '%s'%s"):format(word, near and ("; did you mean '%s'?"):format(near)
        or "; --list tells what there is"))
    end
  end
  return #words > 0 and names or order
end

local function peers_of(text)
  if not text then return nil end
  local known, wanted = { none = true }, {}
  for _, name in ipairs(h.CONFIGS) do known[name] = true end
  for name in text:gmatch "[^,%s]+" do
    if not known[name] then
      local near = nearest(name, known)
      cli.fail(declared, ("--peers: no peer '%s'%s"):format(name, near and ("; did you mean '%s'?"):format(near)
        or "; there are " .. table.concat(h.CONFIGS, ", ") .. ", none"))
    end
    wanted[name] = true
  end
  return next(wanted) and wanted or cli.fail(declared, "--peers names none")
end

-- ---- the run ----

local o, words = cli(declared)
if o.list then
  list()
  os.exit(0, true)
end
if o.only then table.insert(words, 1, o.only) end
o.rounds = o.rounds or (o.save or o.against) and compare.ROUNDS or 5
for _, name in ipairs { "rounds", "threads" } do
  if o[name] < 1 then cli.fail(declared, ("--%s must be 1 or more"):format(name)) end
end
local names = chosen(words)
local exe = accel.process.program()
if not exe then cli.fail(declared, "accel-run, which runs our side, was not found") end
o.peers, o.idle_gate = peers_of(o.peers), not (o.no_idle_gate or o.quick)

-- What --against names: {rows =, title =, how =} of a file, or the program of another build.
local before
local function read_before()
  if not o.against then return end
  local path = history.file(o.against, history.kind(machine.facts()))
  local data, why = history.read(path)
  if not data and children.capture(("test -f %s && test -x %s && echo yes"):format(children.quote(path), children.quote(path))) then
    o.other, before = path, { rows = {}, title = path .. ", by turns", how = "paired" }
    return
  end
  if not data then cli.fail(declared, "--against: " .. why) end
  local kind = history.kind(machine.facts())
  if data.kind ~= kind then
    cli.fail(declared, ("--against: %s is of another kind of machine, %s; this is %s"):format(path, data.kind, kind))
  end
  before = { rows = data.rows, title = path, how = "unpaired" }
end
read_before()
o.yardstick = (o.save or o.against) ~= nil and not o.other
accel.on_interrupt "flag" -- children.lua asks
io.stdout:setvbuf "line" -- what was measured is there even if this program is killed

local facts
local function write_json(complete)
  if not o.json then return end
  local text = accel.json.encode(report.finite {
    complete = complete, machine = facts, python = h.known_python() or accel.json.null,
    suites = accel.json.array(report.suites),
    options = { rounds = o.rounds, threads = o.threads, quick = o.quick, idle_gate = o.idle_gate, pinned = h.pinned },
  }, { pretty = true })
  local ok, why = accel.write_file(o.json, text .. "\n")
  if not ok then cli.fail(declared, "--json: " .. why) end
end

local function head()
  local f = machine.facts()
  facts = f
  print(("accel %s, %s kernels, oneDNN %s, gcc %s"):format(f.accel, f.isa, f.onednn or "absent", f.compiler))
  local pinned = h.pinned and "pinned to " .. h.pinned or "not pinned"
  print(("%s; %d CPUs, %s; %d threads"):format(f.cpu, f.cpus, pinned, o.threads))
  print(("median of %d rounds by turns [min, max]; ratio: the best peer to accel"):format(o.rounds))
  if not o.idle_gate then print "WARNING: other programs may run at the same time; do not quote these figures" end
  if o.quick then print "--quick: tiny sizes in place of the named ones, and no goals" end
  report.goals = not o.quick
end

local failed, finished, others = 0, 0, {}
local function run_all()
  h.start(here, exe, o)
  head()
  for _, name in ipairs(names) do
    local ok, e = pcall(h.run, benches[name], name)
    h.progress()
    if ok then table.insert(others, e) end
    if not ok then h.stopped = h.stopped or children.stop_of(e) end
    if h.stopped then return end
    if ok then
      finished = finished + 1
    else
      failed = failed + 1
      report.suite.failed = tostring(e)
      io.stdout:flush()
      io.stderr:write(("accel-run bench: %s: %s\n"):format(name, tostring(e)))
    end
    if finished + failed < #names then pcall(write_json, false) end
    children.remove() -- weights of half a gigabyte
  end
end

local ok, e = pcall(run_all)
h.progress()
children.remove()
if not ok then h.stopped = children.stop_of(e) end
if not ok and not h.stopped then error(e, 0) end
if h.stopped then
  print(("\nstopped: %d of %d benches measured"):format(finished, #names))
  pcall(write_json, false)
  local whole = {}
  for _, suite in ipairs(report.suites) do
    if benches[suite.name].resumable then whole[#whole + 1] = suite end
  end
  if o.save and #whole > 0 then
    local saved, why = history.save(o.save, facts, history.rows(whole, o, here))
    if not saved then cli.fail(declared, "--save: " .. why) end
    print "points of scale are kept: the same command continues"
  end
  os.exit(128 + h.stopped.signal, true)
end
write_json(failed == 0)
local slower = 0
if o.save or before then
  local rows = history.rows(report.suites, o, here)
  if o.save and failed == 0 then
    local saved, why = history.save(o.save, facts, rows)
    if not saved then cli.fail(declared, "--save: " .. why) end
  end
  if before then
    if o.other then before.rows = history.rows(others, o, here) end
    local results, missing = compare.rows(before.rows, rows, before.how)
    slower = compare.show(results, missing, before.title)
  end
end
os.exit(failed == 0 and slower == 0, true)
