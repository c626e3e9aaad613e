-- What the suites of tests/bench are made of: commands of both sides, rounds in which they alternate, peers in their
-- configurations, and files that both sides start from. Every suite gets one table h:
--
--   h.accel(script, args)              accel's side: a script of sides/, run by accel-run
--   h.torch(what, args, configs)       sides of PyTorch, one by configuration; none where it is absent
--   h.alternate(sides, rounds)         runs them by turns: {side = {figure = {value by round}}}
--   h.row{...} h.line(...) h.losses(...) h.note(...) h.skip(...)    the table, see report.lua
--   h.shared(name, script, args)       a folder with what that script made, once per suite
--   h.compile(source, compiler, flags) a C program of sides/, or nil and why not
--
-- A side is {name =, command =, peer = true for all but accel's}. A command prints one JSON object on its last line:
-- numbers and lists by name, or {"skipped": why}.
local accel = require "accel"
local children = require "children"
local machine = require "machine"
local report = require "report"
local terminal = require "accel.util.terminal"

local h = { row = report.row, note = report.note, skip = report.skip, median = report.median, losses = report.losses,
  quote = children.quote, capture = children.capture }

local quote = children.quote
local MALLOC <const> = "MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 "
local REPEATS <const> = 2 -- of a round that others disturbed

--- How PyTorch is run. single: tuned with one thread, which small models are faster with; chunked: tuned with what
--- F.linear_cross_entropy does in pieces.
h.CONFIGS = { "eager", "tuned", "single", "chunked", "compile" }

local live = terminal.interactive(2)

--- One line of progress, where stderr is a terminal.
local function progress(text)
  if not live then return end
  io.stderr:write("\r\27[K", text and ((h.bar or "") .. text):sub(1, 79) or "")
  io.stderr:flush()
end
h.progress = progress

--- options: rounds, threads, peers ({name = true}, nil: all), quick, idle_gate, python, yardstick (run sides/yardstick.c in every round),
--- other (another accel-run, whose sides take turns with ours)
---@param here string this folder
---@param exe string accel-run
---@param options table
function h.start(here, exe, options)
  h.here, h.exe, h.options, h.quick = here, exe, options, options.quick
  h.cores = accel.features().cpus
  h.pin, h.pinned = machine.pin(options.threads)
  h.env = ("env ACCEL_DEVICE=cpu OMP_NUM_THREADS=%d ACCEL_NUM_THREADS=%d "):format(options.threads, options.threads)
end

-- ---- sides ----

--- The command of a script of ours.
function h.ours(script, args)
  return ("%s%s%s %s %s%s"):format(h.pin, h.env, quote(h.exe), quote(h.here .. "/sides/" .. script), args or "",
    h.quick and " --quick" or "")
end

function h.accel(script, args) return { name = "accel", command = h.ours(script, args) } end

local function python() return quote(h.options.python or "python3") end

--- Whether peers other than accel are wanted at all.
function h.wants_peers() return not (h.options.peers and h.options.peers.none) end

--- Facts about the Python side: {torch =, python =, cuda = its devices} or nil and why there is none. Asked once.
local facts, why
function h.python()
  if facts == nil then
    facts = false
    if not h.wants_peers() then
      why = "--peers none"
    else
      progress "looking for PyTorch"
      local code = "import json, platform; d = {'python': platform.python_version()}\n"
        .. "try:\n import torch\n d['torch'] = torch.__version__\n d['cuda'] = torch.cuda.device_count()\n"
        .. "except ImportError: pass\n"
      local text = children.capture(("%s -c %s 2>/dev/null"):format(python(), quote(code .. "print(json.dumps(d))")))
      local d = text and accel.json.decode(text)
      if not d then why = ("no Python: %s does not run"):format(h.options.python or "python3")
      elseif not d.torch then why = "no PyTorch: pip install torch"
      else facts = d end
      progress()
    end
  end
  return facts or nil, why
end

--- What is known of it so far, without asking.
function h.known_python() return facts or nil end

setmetatable(h, { __index = function(_, key) return key == "have_torch" and h.python() ~= nil or nil end })

local function has_cxx() return h.capture "command -v c++ || command -v g++ || command -v clang++" ~= nil end

--- Sides of PyTorch. configs: of h.CONFIGS, those that make a difference to this work; --peers chooses among them.
---@param what string
---@param args? string
---@param configs? string[] all that a training step can have
---@return table[]
function h.torch(what, args, configs)
  local sides = {}
  local found, reason = h.python()
  if found and (args or ""):find "%-%-device cuda" and found.cuda == 0 then found, reason = nil, "it has no CUDA device" end
  if not found then
    if h.wants_peers() then report.skip("PyTorch", reason) end
    return sides
  end
  configs = configs or { "eager", "tuned", "compile" }
  local wanted, chosen = h.options.peers, {}
  for _, name in ipairs(configs) do
    if not wanted or wanted[name] then chosen[#chosen + 1] = name end
  end
  for _, name in ipairs(#chosen > 0 and chosen or { configs[1] }) do
    if name == "compile" and not has_cxx() then
      report.skip("compile", "no C++ compiler, which torch.compile needs (Debian and Ubuntu: g++)")
    else
      local env = name == "single" and h.env:gsub("(OMP_NUM_THREADS=)%d+", "%11") or h.env
      if name ~= "eager" then env = env .. MALLOC end
      if name == "compile" then
        env = ("%sTORCHINDUCTOR_CACHE_DIR=%s "):format(env, quote(children.folder() .. "/inductor"))
      end
      local command = ("%s%s%s -B %s %s --config %s%s %s"):format(h.pin, env, python(),
        quote(h.here .. "/sides/peer_torch.py"), what, name, h.quick and " --quick" or "", args or "")
      sides[#sides + 1] = { name = name, peer = true, command = command }
    end
  end
  return sides
end

--- accel's side in front of PyTorch's, for h.alternate.
function h.both(script, what, args, configs)
  return { h.accel(script, args), table.unpack(h.torch(what, args, configs)) }
end

-- ---- rounds ----

local function last_line(text) return text:match "([^\n]*)%s*$" or "" end

-- One side once: its figures, or nil and the reason. What fails on our side fails the suite.
local function turn(side)
  local ok, out, err, ended = children.run(side.command, true)
  local figures = ok and accel.json.decode(last_line(out))
  if type(figures) ~= "table" then
    local said = last_line(err ~= "" and err or out)
    if not side.peer then error(("%s's side failed (%s): %s\n  %s"):format(side.name, ended, said, side.command), 0) end
    return nil, ok and "printed no figures" or said ~= "" and said or ended
  end
  if figures.skipped then return nil, figures.skipped end
  return figures
end

-- All sides once, by turns, and once more where others took part of the machine. Returns {side = figures}.
local function round_of(sides, label, out)
  local seen
  for attempt = 0, REPEATS do
    local figures, watch = {}, machine.watch()
    for i = #sides, 1, -1 do
      if sides[i].out then table.remove(sides, i) end
    end
    for _, side in ipairs(sides) do
      progress(("%s: %s"):format(label, side.name))
      local reason
      figures[side.name], reason = turn(side)
      if reason then
        side.out = true
        report.skip(side.name, reason)
      end
    end
    seen = watch()
    local disturbed = h.options.idle_gate and seen and (seen.foreign > machine.FOREIGN or seen.steal > machine.FOREIGN)
    if not disturbed then return figures end
    out.repeated = out.repeated + 1
    if attempt == REPEATS then
      out.disturbed = out.disturbed + 1
      out.most = math.max(out.most, seen.foreign + seen.steal)
      return figures
    end
    machine.wait_idle(progress)
  end
end

local function reverse(list)
  for i = 1, #list // 2 do list[i], list[#list + 1 - i] = list[#list + 1 - i], list[i] end
end

-- ---- two builds ----

local OTHER <const> = "\0" -- behind the names of sides that another build runs
local replayed -- what alternate returned for the other build, in order, while a bench runs

-- The sides with those of the other build beside ours, and the yardstick.
local function widened(sides)
  local out = {}
  for _, side in ipairs(sides) do
    out[#out + 1] = side
    local command = h.options.other and side.command:gsub(quote(h.exe):gsub("%p", "%%%0"), (quote(h.options.other):gsub("%%", "%%%%")))
    if command and command ~= side.command then
      out[#out + 1] = { name = side.name .. OTHER, command = command, peer = side.peer }
    end
  end
  if h.options.yardstick then
    local program, reason = h.compile("yardstick.c")
    if program then out[#out + 1] = { name = "yardstick", peer = true, command = h.pin .. quote(program) }
    else report.skip("yardstick", reason) end
  end
  return out
end

-- What was measured, as if the other build alone had been there.
local function others(got)
  local out = {}
  for name, figures in accel.pairs(got) do
    local plain = name:match("^(.*)" .. OTHER .. "$")
    if plain then out[plain] = figures elseif not out[name] and not got[name .. OTHER] then out[name] = figures end
  end
  return out
end

--- Runs a bench. With another build its rows are made twice, from the same rounds: returns the suite of the other one, or nil.
---@param bench table of suites/
---@param name string
---@return table? suite
function h.run(bench, name)
  replayed = h.options.other and { at = 0 } or nil
  report.begin(name, bench.about)
  bench.run(h)
  if not replayed then return nil end
  local ours, exe = report.suite, h.exe
  report.quiet, replayed.at, h.exe = true, 1, h.options.other
  report.begin(name, bench.about)
  local other = report.suite
  local ok, e = pcall(bench.run, h)
  report.quiet, replayed, h.exe = false, nil, exe
  table.remove(report.suites)
  report.suite = ours
  if not ok then error(e, 0) end
  return other
end

--- Runs the sides by turns, `rounds` times. After Ctrl-C it returns the rounds that are whole, if there is one.
---@param sides table[]
---@param rounds? integer
---@return table<string, table<string, any[]>>
function h.alternate(sides, rounds)
  rounds = rounds or h.options.rounds
  if h.stopped then error(h.stopped, 0) end
  if replayed and replayed.at > 0 then
    replayed.at = replayed.at + 1
    return replayed[replayed.at - 1]
  end
  local got, kept, out = {}, report.suite, { repeated = 0, disturbed = 0, most = 0 }
  sides = widened(sides)
  if h.options.idle_gate then
    local busy, idle = machine.wait_idle(progress)
    if not idle then
      report.note("  WARNING: not idle (%.0f %% busy after a minute): figures are not to be quoted", 100 * busy)
      kept.not_idle = busy
    end
  end
  local done = 0
  for round = 1, rounds do
    -- every other round in the opposite order, so that what the first leaves in caches favours neither
    if h.options.other and round > 1 then reverse(sides) end
    local ok, figures = pcall(round_of, sides, ("%s: round %d/%d"):format(kept.name, round, rounds), out)
    if not ok then
      progress()
      h.stopped = children.stop_of(figures)
      if not h.stopped or done == 0 then error(figures, 0) end
      break
    end
    done = round
    for name, side in accel.pairs(figures) do
      got[name] = got[name] or {}
      for key, value in accel.pairs(side) do
        got[name][key] = got[name][key] or {}
        table.insert(got[name][key], value)
      end
    end
  end
  progress()
  if done < rounds then report.note("  stopped after %d of %d rounds", done, rounds) end
  if out.disturbed > 0 then
    report.note("  %d of %d rounds were disturbed (others had up to %.0f %% of the machine)", out.disturbed, done,
      100 * out.most)
  end
  for name, figures in accel.pairs(got) do table.insert(kept.raw, { side = name, figures = figures }) end
  kept.rounds, kept.repeated, kept.disturbed = done, out.repeated, out.disturbed
  if not replayed then return got end
  table.insert(replayed, others(got))
  for name in pairs(replayed[#replayed]) do got[name .. OTHER] = nil end
  return got
end

--- One figure of the peers: {config = values by round}, for h.row.
function h.peers(got, key)
  local peers = {}
  for name, figures in accel.pairs(got) do
    if name ~= "accel" and figures[key] then peers[name] = figures[key] end
  end
  return peers
end

--- A row from positional arguments: ours and the peer's values. goal: a text that is only shown, or a goal of h.row.
function h.line(what, unit, ours, peer, goal)
  if type(goal) == "string" then
    h.row { what = what, unit = unit, ours = ours, peers = { peer = peer }, share = "(aim: " .. goal .. ")" }
  else
    h.row { what = what, unit = unit, ours = ours, peers = { peer = peer }, goal = goal }
  end
end

-- ---- files ----

--- A folder that a script of ours (run with --make FOLDER) has filled: the same weights and data for both sides.
---@return string folder
function h.shared(name, script, args)
  if h.stopped then error(h.stopped, 0) end
  local folder = children.folder() .. "/" .. name
  if not h.capture("test -d " .. quote(folder)) then
    progress("making data: " .. name)
    assert(accel.makedirs(folder))
    local ok, out, err = children.run(h.ours(script, ("--make %s %s"):format(quote(folder), args or "")), true)
    progress()
    if not ok then error(("no data was made by %s: %s"):format(script, last_line(err ~= "" and err or out)), 0) end
  end
  return folder
end

--- A program from sides/<source>; nil and a reason where it cannot be had.
function h.compile(source, compiler, flags)
  local path = children.folder() .. "/" .. source:gsub("%.c$", "")
  if h.capture("test -x " .. quote(path)) then return path end
  compiler = compiler or "cc"
  if not h.capture("command -v " .. compiler) then
    return nil, ("no %s (Debian and Ubuntu: %s)"):format(compiler, compiler == "mpicc" and "libopenmpi-dev" or "gcc")
  end
  local ok, _, err = children.run(("%s -O3 %s -o %s %s"):format(compiler, flags or "", quote(path),
    quote(h.here .. "/sides/" .. source)))
  if not ok then return nil, "does not compile: " .. (err:match "error:[^\n]*" or last_line(err)) end
  return path
end

--- The time of a whole process, in microseconds as the field `us` of its figures.
function h.timed(command)
  return "sh -c " .. quote(([[s=$(date +%%s%%N); %s > /dev/null 2>&1 || exit 1; e=$(date +%%s%%N)
    echo "{\"us\": $(( (e - s) / 1000 ))}"]]):format(command))
end

--- Values by round, each put through f.
function h.map(values, f)
  local out = {}
  for i, x in ipairs(values or {}) do out[i] = f(x) end
  return values and out or nil
end

return h
