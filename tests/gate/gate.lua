-- The gate: spends hours on goals that are not reached yet, and prints the table. tests/gate.sh starts it, goals.lua has the goals,
-- worker.lua runs one worker, results.lua keeps and shows what was reached.
--
-- Each goal that is not reached gets its share of the time, which its workers share. A worker has a credit of seconds: its share comes in
-- at the start, each run takes from it, and what is left stays in the file of results for the next gate. So a gate of an hour runs what an
-- hour allows, and a worker that needs three hours comes every few gates. Next is the worker with the largest credit, among those whose
-- credit pays for their smallest run. Where there is none, what is left of the time goes to the one that comes nearest to it.
local accel = require "accel"

local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local cli = require "accel.util.cli"
local spec = require "goals"
local results = require "results"
local worker = require "worker"

local SLICE <const> = 600 -- seconds of one run at most, where a worker can do less

local declared = {
  name = "gate.sh", usage = "[options]", summary = "Runs the goals of reliability as far as the time allows.",
  { "hours", "number", 0.5, "H", "time to spend" },
  { "goals", "string", nil, "LIST", "only these, as G1,G5" },
  { "workers", "string", nil, "LIST", "only these workers of --list" },
  { "file", "string", nil, "FILE", "where results are kept [build/gate/results.json]" },
  { "table", "flag", false, nil, "only print the table" },
  { "list", "flag", false, nil, "only tell the workers and their commands" },
}
local o, words = cli(declared)
if words[1] then cli.fail(declared, ("unexpected argument '%s'"):format(words[1])) end
if not (o.hours > 0) then cli.fail(declared, "--hours must be above 0") end

local function chosen(text, known, what)
  if not text then return nil end
  local set = {}
  for name in text:gmatch "[^,%s]+" do
    if not known[name] then cli.fail(declared, ("--%ss: no %s '%s'"):format(what, what, name)) end
    set[name] = true
  end
  return set
end
local by_name = {}
for _, goal in ipairs(spec.goals) do by_name[goal[1]] = goal end
local only, only_workers = chosen(o.goals, by_name, "goal"), chosen(o.workers, spec.workers, "worker")

local folder = (os.getenv "ACCEL_TEST_SRC" or ".") .. "/build/gate"
local path = o.file or folder .. "/results.json"
assert(accel.makedirs(folder .. "/logs"))
local r, why = results.read(path)
if not r then cli.fail(declared, why) end

if o.list then
  local ids = {}
  for id in pairs(spec.workers) do ids[#ids + 1] = id end
  table.sort(ids)
  for _, id in ipairs(ids) do
    local w = spec.workers[id]
    print(("%-16s %s"):format(id, w.lua and ("tests/%s %s"):format(w.lua, w.args or "") or w.bin or w.sh))
  end
  os.exit(0, true)
end

local function show()
  local goals = {}
  for _, goal in ipairs(spec.goals) do
    if not only or only[goal[1]] then goals[#goals + 1] = goal end
  end
  print(results.table(r, goals))
end
if o.table then
  show()
  os.exit(0, true)
end

-- ---- plan ----

--- Shares: {id = share} of workers whose figures are not reached.
local function shares()
  local out, total = {}, 0.0
  for _, goal in ipairs(spec.goals) do
    local ids, n = {}, 0
    for _, figure in ipairs(goal.figures) do
      local _, met = results.figure(r, figure)
      for _, id in ipairs(not met and results.workers_of(figure) or {}) do
        if not ids[id] and not (only_workers and not only_workers[id]) then ids[id], n = true, n + 1 end
      end
    end
    local share = only and (only[goal[1]] and math.max(goal.share, 1) or 0) or goal.share
    for id in pairs(ids) do out[id] = (out[id] or 0) + share / n end
    if n > 0 then total = total + share end
  end
  for id, share in pairs(out) do
    if share == 0 then out[id] = nil else out[id] = share / total end
  end
  return out
end

--- Seconds of a unit, from what runs have shown.
local function cost(id)
  local w, seen = spec.workers[id], r.workers[id]
  if seen and seen.units > 0 then return seen.seconds / seen.units end
  return math.max(w.cost or 1, seen and seen.runs > 0 and 2 * seen.seconds / seen.runs or 0) -- one that was late needs more
end

local function for_seconds(w) return ((w.args or "") .. (w.env or "") .. (w.sh or "")):find "%%s%f[%W]" ~= nil end
local function smallest(id)
  local w = spec.workers[id]
  return for_seconds(w) and w.least or cost(id) * (w.unit and 4 or 1)
end

local function commit()
  local p = assert(io.popen("git -C " .. worker.quote(here) .. " rev-parse --short=12 HEAD 2>/dev/null"))
  local id = p:read "l"
  p:close()
  return id or "unknown"
end
local head = commit()

-- ---- runs ----

local failed = 0

--- One run. again: a failure to be tried with its seed.
local function run(id, seconds, again)
  local w, at = spec.workers[id], { worker = id, commit = head }
  if again then
    at.n, at.seconds, at.seed = again.n, again.seconds, again.seed
  else
    r.seed = r.seed + 1
    at.seed = r.seed
    if for_seconds(w) then at.seconds = math.max(seconds, w.least)
    elseif w.unit then at.n = math.max(4, math.floor(seconds / cost(id))) end
  end
  local expected = at.seconds or cost(id) * (at.n or 1)
  at.tmp, at.log = ("%s/tmp/%s"):format(folder, id), ("%s/logs/%s-%d.log"):format(folder, id, at.seed)
  at.limit = math.ceil(math.max(w.limit or 300, 5 * expected + 120))
  io.stdout:write(("%s  %-16s %sseed %d ... "):format(os.date "%H:%M:%S", id, at.n and at.n .. " units, " or at.seconds
    and ("%.0f s, "):format(at.seconds) or "", at.seed))
  io.stdout:flush()
  local from = accel.clock()
  local result, counts, reason = worker.run(w, at)
  at.spent, at.result, at.counts, at.why = accel.clock() - from, result, counts, reason
  local told = {}
  for name, x in accel.pairs(counts) do told[#told + 1] = ("%s %g"):format(name, x) end
  table.sort(told)
  print(("%s in %.0f s%s%s"):format(result, at.spent, #told > 0 and ": " .. table.concat(told, ", ") or "", reason ~= "" and "  " .. reason or ""))
  results.add(r, at)
  results.worker(r, id).credit = results.worker(r, id).credit - at.spent
  if result == "failed" then failed = failed + 1 else os.remove(at.log) end
  local ok, message = results.write(path, r)
  if not ok then cli.fail(declared, message) end
end

local function all()
  local ends = accel.clock() + o.hours * 3600
  for _, f in ipairs { table.unpack(r.failures) } do
    if spec.workers[f.worker] and not (only_workers and not only_workers[f.worker]) then run(f.worker, f.seconds, f) end
  end
  for id, share in pairs(shares()) do
    local w = results.worker(r, id)
    w.credit = w.credit + share * o.hours * 3600
  end
  local skipped = {}
  while true do
    local left, best, most = ends - accel.clock(), nil, nil
    for id in accel.pairs(shares()) do
      local credit, needs = results.worker(r, id).credit, smallest(id)
      local rank = credit >= needs and 1e9 + credit or credit / needs
      if needs <= left and not skipped[id] and (not best or rank > most or rank == most and id < best) then best, most = id, rank end
    end
    if not best then return end
    local credit = results.worker(r, best).credit
    run(best, math.min(math.max(credit, smallest(best)), left, SLICE))
    skipped[best] = r.workers[best].skipped ~= nil or r.runs[#r.runs].result ~= "passed" or nil
  end
end

accel.on_interrupt "flag"
io.stdout:setvbuf "line"
print(("gate of %g h at %s, results in %s"):format(o.hours, head, path))
local ok, e = pcall(all)
print ""
show()
if not ok and e ~= "stopped" then error(e, 0) end
for _, f in ipairs(r.failures) do print(("FAILED: %s with seed %d: %s\n  %s"):format(f.worker, f.seed, f.why, f.log)) end
os.exit(ok and failed == 0 and #r.failures == 0, true)
