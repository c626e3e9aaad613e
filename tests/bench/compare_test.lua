-- accel-run bench --save and --against: the statistics on a synthetic timer, the file, and what is refused. The timer is deterministic: 1 %
-- of noise, one figure of 50 up to 40 % too slow, a fifth of the rounds disturbed by up to 60 %, and between two times the whole machine
-- faster or slower by up to 8 %. On equal builds ten tables hold no difference, and a planted slowdown of 5 % is found in each.
-- tier: sampled
local accel = require "accel"
local src = os.getenv "ACCEL_TEST_SRC" or (arg[0]:match "^(.*)/tests/" or ".")
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local sample = dofile(src .. "/tests/support/sample.lua")
package.path = src .. "/tests/bench/?.lua;" .. package.path
local compare, history, statistics = require "compare", require "history", require "statistics"

-- ---- statistics ----

local function range(n, f)
  local out = {}
  for i = 1, n do out[i] = f(i) end
  return out
end

-- Critical values from printed tables: of 20 differences the sign test's interval at 95 % leaves out 5 at each end, of two samples of 10
-- that of Mann and Whitney leaves out 23 of 100 differences.
do
  local zero, powers = range(20, function() return 0 end), range(20, function(i) return 3.0 ^ i end)
  local all, estimate, low, high = {}, statistics.paired(zero, powers, 0.05)
  assert(low == powers[6] and high == powers[15] and estimate == (powers[10] + powers[11]) / 2)
  powers = table.move(powers, 1, 10, 1, {})
  all, estimate, low, high = {}, statistics.unpaired(powers, range(10, function(i) return 7.0 ^ i end), 0.05)
  for i = 1, 10 do
    for j = 1, 10 do all[#all + 1] = 7.0 ^ j - 3.0 ^ i end
  end
  table.sort(all)
  assert(low == all[24] and high == all[100 - 23] and estimate == (all[50] + all[51]) / 2)
  assert(statistics.rounds(0.05) == 6 and statistics.rounds(0.01) == 8 and statistics.rounds(0.05, 4) == 4)
  assert(select("#", statistics.paired({ 1, 2 }, { 2, 4 }, 0.05)) == 1) -- too few
  assert(statistics.unpaired(range(40, function(i) return i end), range(40, function(i) return i + 5 end), 0.01) == 5)
end

-- ---- tables of a synthetic timer ----

local random = accel.util.Random(20261129)
local function uniform() return random:below(1 << 30) / (1 << 30) end
local function noise()
  local x = 0.0
  for _ = 1, 12 do x = x + uniform() end
  return math.exp(0.01 * (x - 6)) * (uniform() < 0.02 and 1 + 0.4 * uniform() or 1)
end

local ROWS <const>, ROUNDS <const> = 8, compare.ROUNDS

-- A table of rows: half of them with a peer. machine: how slow the machine is; shared: what the round did, by round; slow: {name = factor}.
local function measured(machine, shared, slow)
  local rows = {}
  for i = 1, ROWS do
    local name, rate = "row " .. i, i % 3 == 0
    local function figure(factor)
      return range(ROUNDS, function(r)
        local x = 100 * i * machine * factor * noise() * (shared and shared[r] or 1)
        return rate and 1e6 / x or x
      end)
    end
    rows[name] = { unit = rate and "GB/s" or "us", higher = rate, threads = 2, values = figure(slow and slow[name] or 1),
      yard = { chain_ns = range(ROUNDS, function() return 3 * machine * noise() ^ 0.3 end) } }
    if i % 2 == 0 then
      rows[name].peers, rows[name].ratio = { tuned = figure(1.7) }, { peer = "tuned" }
      for r, x in ipairs(rows[name].values) do -- both sides of a round saw the same machine
        rows[name].peers.tuned[r] = x * (rows[name].peers.tuned[r] / x) ^ 0.9
      end
    end
  end
  return rows
end

local function verdicts(results)
  local out = {}
  for _, r in ipairs(results) do
    if r.verdict == "slower" or r.verdict == "faster" then out[#out + 1] = r.name .. " " .. r.verdict end
  end
  return table.concat(out, ", ")
end

local tables = sample.full and 400 or 10
local found, false_alarms = { paired = 0, unpaired = 0 }, 0
for n = 1, tables do
  local planted = ("row %d"):format(n % ROWS + 1)
  local shared = range(ROUNDS, function() return uniform() < 0.2 and 1 + 0.6 * uniform() or 1 end)
  -- by turns
  local results = compare.rows(measured(1, shared), measured(1, shared), "paired")
  if verdicts(results) ~= "" then false_alarms = false_alarms + 1 end
  results = compare.rows(measured(1, shared), measured(1, shared, { [planted] = 1.05 }), "paired")
  if verdicts(results) == planted .. " slower" then found.paired = found.paired + 1 end
  -- from two times, between which the machine changed
  local drift = math.exp(0.16 * (uniform() - 0.5))
  results = compare.rows(measured(1), measured(drift), "unpaired")
  if verdicts(results) ~= "" then false_alarms = false_alarms + 1 end
  results = compare.rows(measured(1), measured(1, nil, { [planted] = 1.05 }), "unpaired")
  if verdicts(results) == planted .. " slower" then found.unpaired = found.unpaired + 1 end
end
print(("%d tables: %d false alarms, 5 %% found in %d by turns and %d from a file"):format(tables, false_alarms, found.paired, found.unpaired))
assert(false_alarms <= tables * 2 // 100)
assert(found.paired >= tables - tables * 4 // 100 and found.unpaired >= tables - tables * 4 // 100)

-- What has no verdict states why.
local function row(t)
  t.values = t.values or range(ROUNDS, function(r) return 100 + r % 3 end)
  t.unit, t.threads = t.unit or "us", t.threads or 2
  return t
end
local function unclear(before, now, how, why)
  local r = compare.row(row(before), row(now), how, 0.01)
  assert(r.verdict == "unclear" and r.why:find(why, 1, true), r.why)
end
unclear({}, { unit = "ms" }, "paired", "its unit was us")
unclear({ threads = 4 }, {}, "paired", "4 threads")
unclear({}, { quick = true }, "paired", "--quick")
unclear({}, { values = { 1, 0 } }, "paired", "not above zero")
unclear({ values = { 1, 2 } }, { values = { 1, 2 } }, "paired", "needs 8 rounds")
unclear({}, {}, "unpaired", "no yardstick")
assert(compare.row(row {}, row {}, "paired", 0.01).verdict == "same")

-- ---- files ----

assert(history.kind { cpu = "Intel(R) Xeon(R) Processor", flags = "amx_bf16 amx_tile avx2 avx512_bf16 avx512f ", cpus = 2 } == "intel-amx-2")
assert(history.kind { cpu = "AMD EPYC 9B45", flags = "avx2 avx512_bf16 avx512f ", cpus = 8 } == "amd-avx512bf16-8")

local exe = accel.process.program()
local function try(words)
  local p = assert(io.popen(("'%s' bench %s 2>&1 </dev/null"):format(exe, words)))
  local text = p:read "a"
  local _, _, status = p:close()
  return status or 0, text
end
local function write(name, text)
  local f <close> = assert(io.open(tmp .. "/" .. name, "w"))
  f:write(text)
  return tmp .. "/" .. name
end
local folder = tmp .. "/history"
os.execute(("rm -rf '%s'"):format(folder))
assert(accel.makedirs(folder))
local QUICK <const> = " --quick --rounds 2 --peers none --no-idle-gate "
local status, text = try("dispatch" .. QUICK .. ("--save '%s'"):format(folder))
assert(status == 0, text)
local names = accel.listdir(folder)
assert(#names == 1 and names[1]:find "^[a-z]+%-[a-z0-9]+%-%d+%.json$", names[1])
local kept = assert(history.read(folder .. "/" .. names[1]))
local add = kept.rows["dispatch: add, 1 element"]
assert(kept.version == 1 and kept.kind .. ".json" == names[1] and #add.values == 2 and add.unit == "ns" and add.quick and add.commit:find "^%w")
kept.rows["mlp: of before"] = add
assert(history.save(folder .. "/more.json", { cpu = "Intel", flags = "", cpus = 1 }, kept.rows)) -- a row a line
status, text = try("dispatch" .. QUICK .. ("--against '%s'"):format(folder))
assert(text:find("against " .. folder, 1, true) and text:find "dispatch: add, 1 element +[%d.]+ ns +[%d.]+ ns", text)
assert(status == 0 and text:find "needs %d+ rounds" and text:find("\n0 slower, 0 faster, 0 same, 5 unclear", 1, true), text)
for line in text:gmatch "[^\n]+" do assert(#line <= 80 or line:find(folder, 1, true), line) end
-- by turns with another build: this one
status, text = try("dispatch" .. QUICK .. ("--against '%s'"):format(exe))
assert(status == 0 and text:find(exe .. ", by turns", 1, true) and text:find("5 unclear", 1, true), text)

local function refused(file, why)
  local code, said = try("dispatch" .. QUICK .. ("--against '%s'"):format(file))
  assert(code == 2 and said:find(why, 1, true), said)
end
refused(tmp .. "/none.json", "No such file")
refused(folder .. "/more.json", "another kind of machine")
refused(write("text", "hello"), "not a file of accel-run bench --save")
refused(write("later.json", '{"format": "accel-bench", "version": 9}'), "version 9; this program reads version 1")
assert(not history.save(folder .. "/more.json", { cpu = "AMD", flags = "", cpus = 1 }, kept.rows))
print "ok"
