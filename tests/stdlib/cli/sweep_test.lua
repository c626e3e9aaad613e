-- accel-run sweep: trials of a grid and of draws, ASHA's rule against a model that sorts, runs in parallel with divided threads, a table with
-- the best run first, nothing repeated, faults of the file with line and key. Kills and early stops: sweep_stops_test.lua.
-- tier: every change
--   accel-run tests/stdlib/cli/sweep_test.lua
local accel = require "accel"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local files, trials = require "accel.cli.sweep_file", require "accel.cli.sweep_trials"
local support = require "sweep"
local root, write, shell, sweep, ran = support.root, support.write, support.shell, support.sweep, support.ran

-- ---- the rule ----
local state = 7
local function random(n)
  state = (1103515245 * state + 12345) % 2147483648
  return state // 65536 % n
end
for _, goal in ipairs { "minimize", "maximize" } do
  for factor = 2, 4 do
    for _ = 1, 200 do
      local values = {}
      for i = 1, 1 + random(12) do values[i] = random(6) > 0 and random(8) / 4 or false end
      local sorted = {}
      for _, x in ipairs(values) do if x then sorted[#sorted + 1] = x end end
      table.sort(sorted, function(a, b) if goal == "maximize" then return a > b end return a < b end)
      local own = values[#values]
      local want = own and own == sorted[1] or false -- the best one goes on, and so does who is as good as the last of the best 1/factor
      local last = sorted[math.max(1, #values // factor)] or sorted[#sorted]
      if own and last then want = want or (goal == "maximize" and own >= last or goal == "minimize" and own <= last) end
      assert(trials.goes_on(own or nil, values, factor, goal) == want, accel.json.encode(values))
    end
  end
end
assert(table.concat(trials.rungs({ min = 4, factor = 3 }, 36), " ") == "4 12 36" and #trials.rungs({ min = 4, factor = 3 }, 3) == 0)
assert(#trials.rungs({ min = 4, factor = 1 << 62 }, 100) == 1, "a product above all integers")

-- ---- trials ----
write("grid.yaml", "script: t.lua\nmetric: loss\nparameters:\n  lr: [0.1, 0.2, 0.4]\n  width: [1, 2]\n  flag: [true, false]\n")
local grid = trials.list(assert(files.read(root .. "/grid.yaml")))
local seen = {}
for _, t in ipairs(grid) do seen[table.concat(t.words, " ")] = true end
assert(#grid == 12 and seen["--lr=0.4 --width=2 --no-flag"] and seen["--lr=0.1 --width=1 --flag"])
write("draws.yaml", "script: t.lua\nmethod: random\nruns: 400\nseed: 3\nparameters:\n  a: {min: 1e-4, max: 1, scale: log}\n"
  .. "  b: {min: 3, max: 6}\n  c: [x, y]\n  d: {min: -1.0, max: 1.0}\n")
local draws = trials.list(assert(files.read(root .. "/draws.yaml")))
local again = trials.list(assert(files.read(root .. "/draws.yaml")))
local below, sum, b = 0, 0, {}
for i, t in ipairs(draws) do
  local p = t.parameters
  assert(p.a >= 1e-4 and p.a <= 1 and math.type(p.b) == "integer" and p.b >= 3 and p.b <= 6 and p.d >= -1 and p.d <= 1)
  below, sum, b[p.b] = below + (p.a < 1e-2 and 1 or 0), sum + p.d, (b[p.b] or 0) + 1
  assert(tonumber(t.words[1]:match "=(.*)") == p.a and again[i].key == t.key)
end
assert(#draws == 400 and math.abs(below - 200) < 50 and math.abs(sum) < 60 and b[3] > 60 and b[6] > 60, "the draws are not even")

-- ---- faults of a file ----
local function refuses(text, part)
  write("bad.yaml", text)
  local out, status = sweep "bad.yaml"
  assert(status == 1 and out:find(part, 1, true), out)
end
local HEAD <const> = "script: t.lua\nparameters:\n  lr: [1, 2]\n"
refuses(HEAD .. "metrik: loss\n", "bad.yaml:4: unknown key 'metrik'; did you mean 'metric'?")
refuses("script: t.lua\nparameters:\n  lr: {mni: 1, max: 2}\n", "bad.yaml:3: unknown key 'mni' in lr; did you mean 'min'?")
refuses(HEAD .. "method: gird\n", "bad.yaml:4: method is 'gird'; expected grid, halving, random (did you mean grid?)")
refuses(HEAD .. "runs: 3\n", "bad.yaml:4: runs has no effect on a grid")
refuses(HEAD .. "goal: maximize\n", "bad.yaml:4: goal has no effect without metric")
refuses(HEAD .. "parallel: 0\n", "bad.yaml:4: parallel must be an integer of 1 or more")
refuses("script: t.lua\nparameters:\n  lr: {min: 2, max: 1}\n", "bad.yaml:3: lr: max must be above min")
refuses("script: t.lua\nparameters:\n  lr: {min: 1, max: 2}\n", "bad.yaml:3: lr: a grid needs a list of values")
refuses("script: t.lua\nparameters:\n  lr: [1, 1]\n", "bad.yaml:3: lr has the value 1 twice")
refuses("script: t.lua\nparameters:\n  lr: [1, '1']\n", "bad.yaml:3: lr has the value 1 twice")
local RANDOM <const> = "script: t.lua\nmethod: random\nruns: 5\nparameters:\n  lr: "
refuses(RANDOM .. "{min: 1, max: 1e400}\n", "bad.yaml:5: lr: min and max are too far apart")
refuses(RANDOM .. "{min: -1, max: 9223372036854775807}\n", "bad.yaml:5: lr: integers must be within 2^53 of 0")
refuses("script: none.lua\nparameters:\n  lr: [1]\n", "bad.yaml:1: script: there is no file none.lua")
refuses("script: t.lua\n", "bad.yaml:1: parameters is missing; add it")
refuses(HEAD .. "method: halving\nruns: 3\nmetric: loss\n", "halving needs its table")
assert(ran() == 0)
write("few.yaml", RANDOM .. "[1, 2]\n")
local few = sweep "few.yaml --list"
assert(few:find("few.yaml: only 2 of 5 runs: the parameters have no more values that differ", 1, true), few)
write("--version", "error 'it ran'")
write("dash.yaml", "script: --version\nparameters:\n  lr: [1]\n")
local dash = sweep "dash.yaml"
assert(dash:find("it ran", 1, true), "a script is no option: " .. dash)

-- ---- a grid, in parallel ----
local out, status = sweep "grid.yaml --parallel 3 --json"
assert(status == 0, out)
local list = accel.json.decode(out:match "%[.*%]")
assert(#list == 12 and ran() == 12)
for i, t in ipairs(list) do
  local best = math.abs(t.parameters.lr - 0.3) + 1 / t.parameters.width + 1 / 5
  assert(t.state == "finished" and t.step == 5 and math.abs(t.best - best) < 1e-12 and (i == 1 or t.best >= list[i - 1].best))
end
for _, name in ipairs(accel.listdir(root .. "/ran")) do
  local handle <close> = assert(io.open(root .. "/ran/" .. name))
  local threads = tonumber(handle:read "a":match "(%d+)$")
  assert(threads == math.max(1, accel.process.cores() // 3), "threads are divided")
end
local store = accel.track.Store(root .. "/runs")
local first = assert(store:find(list[1].run))
assert(first.group == "grid" and store:config(first).lr == list[1].parameters.lr and not io.open(root .. "/elsewhere/runs.db"))
out, status = sweep "grid.yaml --parallel 3"
assert(status == 0 and ran() == 12 and out:find "TRIAL +STATE +lr +width +flag +BEST", "nothing is repeated: " .. out)

-- ---- what the script lacks ----
write("none.yaml", "script: t.lua\nmetric: lsos\nparameters:\n  lr: [1]\n")
out, status = sweep "none.yaml"
assert(status == 1 and out:find("trial 1 has no series 'lsos'; did you mean 'loss'?", 1, true), out)
write("f.lua", "error 'it broke'")
write("fails.yaml", "script: f.lua\nparameters:\n  lr: [1]\n")
out, status = sweep "fails.yaml"
assert(status == 1 and out:find("trial 1 (lr=1) failed with exit 1: ", 1, true) and out:find("it broke; see ", 1, true), out)
write("usage.lua", "require('accel').util.cli { name = 'usage.lua', { 'rate', 'number', 1, 'X', 'rate' } }")
write("usage.yaml", "script: usage.lua\nparameters:\n  lr: [1]\n")
out, status = sweep "usage.yaml"
assert(status == 1 and out:find("usage.lua: unknown option '--lr'", 1, true) and not out:find("Try '", 1, true), out)
