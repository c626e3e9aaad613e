-- accel-run sweep while runs are under way: killed by kill -9 it goes on without repeating a finished run, Ctrl-C leaves no process, and early
-- stops follow ASHA's rule.  tier: slow
--   accel-run tests/stdlib/cli/sweep_stops_test.lua
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local files, trials = require "accel.cli.sweep_file", require "accel.cli.sweep_trials"
local support = require "sweep"
local root, write, shell, sweep, ran = support.root, support.write, support.shell, support.sweep, support.ran

-- ---- killed, and started again ----
local function background(args)
  return assert(tonumber((shell("cd '%s' && { '%s' sweep %s >out 2>&1 & echo $!; }", root, accel.process.program(), args))))
end
local function wait(what, f)
  for _ = 1, 400 do
    if f() then return end
    core.pause(0.02)
  end
  error("never: " .. what)
end
local function alive()
  local n = 0
  for _, name in ipairs(accel.listdir "/proc") do
    local handle = name:find "^%d+$" and io.open("/proc/" .. name .. "/environ", "rb")
    local text = handle and handle:read "a" or ""
    if handle then handle:close() end
    if text:find("ACCEL_SWEEP=", 1, true) and text:find(root, 1, true) then n = n + 1 end
  end
  return n
end
shell("rm -f '%s'/ran/*", root)
write("long.yaml", "script: t.lua\nargs: [--pause, 0.04]\nmetric: loss\nparallel: 2\nparameters:\n  lr: [1, 2, 3, 4, 5]\n")
local pid = background "long.yaml"
local store
wait("a store", function()
  store = accel.track.Store.open(root .. "/runs")
  return store
end)
local function done()
  local n = 0
  for _, run in ipairs(store:runs()) do n = n + (run.sweep and run.sweep.sweep == "long" and run.sweep.state == "finished" and 1 or 0) end
  return n
end
wait("two finished runs", function() return done() >= 2 end)
shell("kill -9 %d", pid)
wait("the end of its runs", function() return alive() == 0 end)
local before, kept = ran(), done()
local out, status = sweep "long.yaml"
assert(status == 0 and out:find(("%d of 5 runs of long are done"):format(kept), 1, true), out)
assert(ran() == before + 5 - kept and done() == 5, "a finished run was repeated")

-- ---- Ctrl-C ----
write("stop.yaml", "script: t.lua\nargs: [--steps, 1000, --pause, 0.05]\nmetric: loss\nparallel: 2\nparameters:\n  lr: [1, 2, 3]\n")
pid = background "stop.yaml"
wait("two runs", function() return alive() == 2 end)
shell("kill -INT %d", pid)
wait("its end", function() return alive() == 0 and not io.open(("/proc/%d/stat"):format(pid)) end)
local handle = assert(io.open(root .. "/out"))
assert(handle:read "a":find("interrupted; all runs have ended", 1, true))
handle:close()

-- ---- early stops: the good run comes first, so that every later one is stopped at the first rung ----
write("halving.yaml", "script: t.lua\nargs: [--pause, 0.02, --steps, 120]\nmetric: loss\nmethod: halving\nruns: 3\n"
  .. "halving: {min: 3, factor: 3}\nseed: 1\nparameters:\n  lr: {min: 0.0, max: 1.0}\n")
local three = trials.list(assert(files.read(root .. "/halving.yaml")))
out, status = sweep "halving.yaml --json"
assert(status == 0, out)
local best = math.huge
local list = accel.json.decode(out:match "%[.*%]")
table.sort(list, function(x, y) return x.trial < y.trial end)
for i, t in ipairs(three) do -- of up to three at a rung the best one goes on
  local loss = math.abs(t.parameters.lr - 0.3)
  local want = loss < best and "finished" or "stopped"
  best = math.min(best, loss)
  assert(list[i].state == want and (want == "stopped") == (list[i].step < 120), out)
  local run = assert(store:find(list[i].run))
  assert(run.status == "finished" and (want == "finished" or run.message:find "^stopped at step 3 by sweep halving"), run.message)
end
