-- The goals of the gate and its workers, for gate.lua. A goal has figures, a figure adds up counts of workers, a worker is a test or a
-- fuzzer that exists without the gate. A new goal or worker is an entry here and nothing else.
--
-- A worker:
--   lua, bin, sh   a script for accel-run, a C test by its name in ctest, or a shell command
--   args           how much to do: %n units, %s seconds. A worker without either does a fixed amount.
--   env            variables before the command, with the same letters
--   counts         { name = pattern of a number in its output }; true: 1 for each run that passes; a number: as many
--   unit           the count that %n means
--   cost           seconds of one unit (of a run where there is no %n and no %s), until a run has shown it; least: of %s
--   limit          seconds that a run may take at least
-- Each run gets a seed of its own in ACCEL_TEST_SEED, so that sampled tests take other cases each time.
--
-- A figure: { name, want, of = { "worker.count" ... } } adds up.  most: the last run must not exceed it;  floor: the smallest
-- total of the counts must reach it;  last: what the last run showed must reach it. Without `of` nothing measures it yet.
local accel = require "accel"

local M = { workers = {}, goals = {} }

local function worker(id, w) M.workers[id] = w end
local function goal(g) M.goals[#M.goals + 1] = g end

-- ---- workers ----

for _, id in ipairs { "ckpt_kill", "shard_kill", "mesh_kill" } do
  worker(id, { lua = ("fault/%s_test.lua"):format(id), args = "%n", unit = "kills", cost = id == "mesh_kill" and 2 or 0.8,
    counts = { kills = "(%d+) shots, %d+ inside", saves = "shots, (%d+) inside" } })
end
worker("offload_kill", { lua = "fault/offload_kill_test.lua", args = "%n", unit = "kills", cost = 1, counts = { kills = "(%d+) kills" } })
worker("writer_kill", { bin = "host/ckpt/kill", cost = 6, counts = { kills = "(%d+) kills,", saves = "kills, (%d+) inside" } })
worker("rank_kill", { lua = "fault/kill_test.lua", args = "%n", unit = "jobs", cost = 0.6,
  counts = { jobs = "(%d+) jobs, %d+ survivors", p99_ms = "p99 ([%d.]+) ms" } })
worker("members", { bin = "host/launch/member/many_schedules", env = "ACCEL_MEMBER_RUNS=%n", unit = "schedules", cost = 0.0001,
  counts = { schedules = "(%d+) schedules in all" } })
worker("elastic_kill", { lua = "fault/elastic_kill_test.lua", args = "%n", unit = "jobs", cost = 1.5,
  counts = { jobs = "(%d+) jobs on shm and tcp each", kills = "each, (%d+) kills:" } })
worker("elastic_train", { lua = "fault/elastic_train_test.lua", args = "%n", unit = "jobs", cost = 0.4,
  counts = { jobs = "ok: (%d+) jobs", kills = "jobs, (%d+) ranks killed" } })
worker("elastic_calls", { lua = "fault/elastic_calls_test.lua", cost = 20, counts = { jobs = "ok: (%d+) jobs", kills = "jobs, (%d+) ranks killed" } })
worker("kill_all", { lua = "fault/kill_all_test.lua", args = "%n", unit = "jobs", cost = 0.8, counts = { jobs = "(%d+) jobs killed at once" } })
worker("effective", { lua = "fault/effective_test.lua", args = "%s 10", least = 60, limit = 30000,
  counts = { faults = "(%d+) faults in", percent = "effective time ([%d.]+) %%", next_s = "to the next step median [%d.]+ s, p99 ([%d.]+) s" } })
worker("handshakes", { bin = "host/comm/tcp_trust", env = "ACCEL_TEST_FULL=1", cost = 10,
  counts = { refused = "(%d+) hostile connections, none accepted" } })
worker("classified", { lua = "fuzz/classified_test.lua", args = "%n", unit = "files", cost = 0.0005,
  counts = { files = "(%d+) classified files", valid = "(%d+) valid files" } })
worker("many_jobs", { lua = "fault/many_jobs_test.lua", args = "%n", unit = "rounds", cost = 15,
  counts = { rounds = "(%d+) rounds of %d+ jobs, the" } })
worker("shm_faults", { bin = "host/comm/shm_faults", cost = 15, counts = { cases = "PASSED  %] (%d+) test" } })
worker("tcp_faults", { bin = "host/comm/tcp_faults", cost = 15, counts = { cases = "PASSED  %] (%d+) test" } })
worker("mismatch", { lua = "fault/mismatch_test.lua", cost = 40, counts = { cases = "(%d+) cases %(" } })
worker("power_cut", { bin = "fault/power_cut", env = "ACCEL_TEST_CUTS=%n", unit = "cuts", cost = 0.4, counts = { cuts = "(%d+) cuts," } })
worker("power_replay", { bin = "fault/power_replay", cost = 5, counts = { disks = "(%d+) disks looked at" } })
worker("power_writers", { bin = "fault/power_writers", cost = 15, counts = { disks = "prefixes, (%d+) disks" } })
worker("ckpt_calls", { bin = "host/ckpt/syscalls", cost = 10, counts = { faults = "calls, (%d+) faults", loads = "(%d+) loads failed" } })
worker("host_calls", { bin = "fault/calls", cost = 4, counts = { faults = "(%d+) failures" } })
worker("allocations", { bin = "fault/memory", cost = 3, counts = { faults = "(%d+) failures" } })
worker("damage", { bin = "host/ckpt/damage", cost = 5, counts = { found = "(%d+) of %d+ found" } })
-- Every target of tests/fuzz, also one that comes later.
local fuzzers = {}
for _, name in ipairs(assert(accel.listdir((arg[0]:match "^(.*)/[^/]*$" or ".") .. "/../fuzz"))) do
  local what = name:match "^fuzz_(.*)%.c$"
  if what then fuzzers[#fuzzers + 1] = "fuzz_" .. what end
end
table.sort(fuzzers)
for _, id in ipairs(fuzzers) do
  local what = id:sub(6)
  worker(id, { sh = "sh tests/fuzz/run.sh %s " .. what, least = 30, limit = 7200, -- the first one builds them all
    counts = { inputs = { "number_of_executed_units:%s*(%d+)", "files, (%d+) runs" } } })
end
worker("templates", { lua = "fuzz/templates.lua", args = "%s %seed", least = 4,
  counts = { inputs = "(%d+) templates,", slowest_ms = "slowest (%d+) ms" } })
worker("configs", { lua = "fuzz/configs.lua", args = "%s %seed", least = 4, counts = { inputs = "(%d+) texts,", slowest_ms = "in ([%d.]+) ms" } })
worker("sandbox", { lua = "stdlib/config/sandbox_test.lua", cost = 30, counts = { scripts = "(%d+) scripts, the slowest" } })
worker("confined", { bin = "bindings/sandbox", cost = 5, counts = { runs = true } })
worker("misuse", { sh = "sh tests/fuzz/misuse.sh %accel-run %tmp/work %s --calls 1000 --seed %seed", least = 20,
  counts = { calls = "functions, (%d+) calls", errors = "calls, (%d+) errors" } })
worker("soak", { lua = "numerics/soak_test.lua", env = "ACCEL_SOAK_SECONDS=%s", least = 20, counts = { steps = "(%d+) steps: resident" } })
worker("worlds", { lua = "stdlib/accelerator/checkpoint_worlds_test.lua", cost = 30, counts = { pairs = 16 } })
worker("netns", { lua = "fault/netns_test.lua", cost = 5, counts = { runs = true } })
worker("silence", { lua = "fault/silence_test.lua", cost = 10, counts = { runs = true } })
worker("netns_hosts", { lua = "fault/netns_hosts_test.lua", cost = 10, counts = { runs = true } })
worker("attach_cycles", { lua = "lua/attach/cycles_test.lua", args = "%n", unit = "clients", cost = 0.5,
  counts = { clients = "(%d+) clients came" } })
worker("same_bits", { lua = "numerics/determinism_test.lua", cost = 10, counts = { runs = true } })
worker("world_bits", { lua = "stdlib/dist/world_bits_test.lua", cost = 30, counts = { runs = true } })
worker("host_cycles", { bin = "bindings/host_cycles", cost = 15, counts = { cycles = 1000 } })
worker("symbols", { sh = "ctest --test-dir %build -R '^check/symbols$' --output-on-failure", cost = 10, counts = { passed = true } })
worker("coverage", { sh = "sh tests/coverage.sh", cost = 7200, counts = { branches = "goal folders: lines [%d.]+ %%, branches ([%d.]+) %%" } })
worker("stall", { sh = "%accel-run bench checkpoint --peers none --rounds 3", cost = 40,
  counts = { percent = "of 10 steps of [^\n]-ms%s+([%d.]+) %%" } })
for _, preset in ipairs { "asan", "ubsan", "tsan" } do
  worker(preset, { sh = ("sh tests/run.sh %s"):format(preset), cost = 10800, counts = { passes = true } })
end

-- ---- goals ----

local function all(ids, count)
  local out = {}
  for i, id in ipairs(ids) do out[i] = id .. "." .. count end
  return out
end

goal { "G1", "kill -9 anywhere, then resume with the same bits", share = 12, figures = {
  { "kills", want = 10000, of = all({ "ckpt_kill", "shard_kill", "mesh_kill", "offload_kill", "writer_kill" }, "kills") },
  { "kills inside a save", want = 1000, of = all({ "ckpt_kill", "shard_kill", "mesh_kill", "writer_kill" }, "saves") } } }
goal { "G2", "death is told and repaired soon", share = 2, figures = {
  { "killed jobs", want = 1000, of = { "rank_kill.jobs" } }, { "kill to error of survivors, p99 ms", most = 100, of = { "rank_kill.p99_ms" } },
  { "kill to the next step, p99 s", most = 1, of = { "effective.next_s" } } } }
goal { "G3", "stopped, looping, deadlocked ranks are named", share = 2, figures = {
  { "cases", want = 1000, of = { "shm_faults.cases", "tcp_faults.cases" } } } }
goal { "G4", "mismatched collectives name both script lines", share = 5, figures = { { "cases", want = 5000, of = { "mismatch.cases" } } } }
goal { "G5", "power cuts lose no acknowledged checkpoint", share = 6, figures = {
  { "cuts of a mounted disk", want = 10000, of = { "power_cut.cuts" } },
  { "disks replayed after each call", want = 10000, of = { "power_replay.disks", "power_writers.disks" } } } }
goal { "G6", "system calls fail", share = 3, figures = {
  { "failures", want = 100000, of = { "ckpt_calls.faults", "ckpt_calls.loads", "host_calls.faults" } } } }
goal { "G7", "allocations fail", share = 5, figures = { { "failures", want = 1000000, of = { "allocations.faults" } } } }
goal { "G8", "parsers survive any bytes", share = 20, figures = {
  { "inputs of the parser with fewest", floor = 1e9, of = all(fuzzers, "inputs") }, { "inputs", want = 2e10, of = all(fuzzers, "inputs") } } }
goal { "G9", "malformed files with their expected error", share = 1, figures = {
  { "classified files", want = 10000, of = { "classified.files" } }, { "valid files", want = 1000, of = { "classified.valid" } } } }
goal { "G10", "foreign input costs little time and memory", share = 2, figures = {
  { "inputs", want = 1e6, of = { "templates.inputs", "configs.inputs" } }, { "slowest template, ms", most = 50, of = { "templates.slowest_ms" } },
  { "slowest configuration, ms", most = 100, of = { "configs.slowest_ms" } } } }
goal { "G11", "Lua of others escapes nothing", share = 2, figures = {
  { "different scripts", most_seen = 2000, of = { "sandbox.scripts" } }, { "runs under the filter", want = 1000, of = { "confined.runs" } } } }
goal { "G12", "errors at every function of scripts", share = 4, figures = { { "errors", want = 1000000, of = { "misuse.errors" } } } }
goal { "G13", "a long run keeps its size", share = 10, figures = { { "steps", want = 5e7, of = { "soak.steps" } } } }
goal { "G14", "kill -9 of everything at once leaves nothing", share = 2, figures = { { "jobs", want = 1000, of = { "kill_all.jobs" } } } }
goal { "G15", "200 jobs start at once", share = 1, figures = { { "rounds", want = 1000, of = { "many_jobs.rounds" } } } }
goal { "G16", "checkpoints of N ranks on M", share = 1, figures = { { "pairs, 1 to 4 ranks", most_seen = 256, of = { "worlds.pairs" } } } }
goal { "G17", "lost, late and broken links", share = 2, figures = {
  { "runs", want = 2000, of = { "netns.runs", "silence.runs", "netns_hosts.runs" } } } }
goal { "G18", "hostile handshakes are refused", share = 2, figures = { { "handshakes", want = 1000000, of = { "handshakes.refused" } } } }
goal { "G19", "clients of attach disturb nothing", share = 4, figures = { { "clients", want = 10000, of = { "attach_cycles.clients" } } } }
goal { "G20", "the same run gives the same bits", share = 3, figures = {
  { "repeated runs", want = 1000, of = { "same_bits.runs", "world_bits.runs" } } } }
goal { "G21", "the first line names the true cause", share = 0, figures = {
  { "killed jobs", want = 1000, of = { "rank_kill.jobs" } }, { "failure classes with their message", want = 80 } } }
goal { "G22", "branch coverage of parsers, checkpoints, launcher, collectives", share = 1, figures = {
  { "branches, %", last = 100, of = { "coverage.branches" } } } }
goal { "G23", "a fault every 10 s for 8 hours", share = 3, figures = {
  { "effective time, %", last = 95, of = { "effective.percent" } }, { "faults", want = 2880, of = { "effective.faults" } } } }
goal { "G24", "checkpoints cost the steps little", share = 1, figures = { { "stall of 10 steps, %", most = 1, of = { "stall.percent" } } } }
goal { "G25", "sanitizers report nothing", share = 8, figures = {
  { "passes of the tests under asan", last = 1, of = { "asan.passes" } }, { "passes under ubsan", last = 1, of = { "ubsan.passes" } },
  { "passes under tsan", last = 1, of = { "tsan.passes" } } } }
goal { "G26", "damaged checkpoints are found", share = 4, figures = { { "damages", want = 1000000, of = { "damage.found" } } } }
goal { "G27", "a host in a C program", share = 1, figures = {
  { "open, run, close", want = 10000, of = { "host_cycles.cycles" } }, { "library without exits", want = 1, of = { "symbols.passed" } } } }
local elastic <const> = { "elastic_kill", "elastic_train", "elastic_calls" }
goal { "E1", "ranks of an elastic job are killed, the others continue within 5 s", share = 4, figures = {
  { "kills", want = 10000, of = all(elastic, "kills") } } }
goal { "E3", "losses and weights have the bits of an undisturbed run", share = 2, figures = {
  { "jobs with 1 to 20 kills", want = 2000, of = { "elastic_train.jobs", "elastic_calls.jobs" } } } }
goal { "E12", "an elastic job has one history", share = 2, figures = { { "simulated schedules", want = 10000000, of = { "members.schedules" } } } }

return M
