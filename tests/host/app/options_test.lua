-- Every option of accel-run acts, or says that it does not: alone, twice, after --, with each command, and on one process where it is for
-- ranks. Options and commands are those of accel-run --help. Errors that a restart cannot mend are not restarted, and told once.
-- tier: every change
local accel = require "accel"
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options-"))
local RATES <const> = root .. "/rates.json"
do
  local from <close> = assert(io.open((arg[0]:match "^.*/" or "") .. "../../support/rates.json"))
  assert(accel.write_file(RATES, from:read "a"))
end
local usage = accel.host_chunk("help/topics").usage()

-- Output with errors, and the status.
local function run(words)
  local pipe = assert(io.popen(("cd '%s' && exec '%s' %s 2>&1 </dev/null"):format(root, accel.process.program(), words)))
  local text = pipe:read "a"
  local _, how, status = pipe:close()
  return text, how == "signal" and 128 + status or status
end

local function write(name, text) assert(accel.write_file(root .. "/" .. name, text)) end

local function gives(words, status, ...)
  local text, got = run(words)
  assert(got == status, ("accel-run %s: status %d, wanted %d\n%s"):format(words, got, status, text))
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("accel-run %s: lacks %q\n%s"):format(words, part, text)) end
  return text
end

local function count(text, part)
  local n, at = 0, 1
  while true do
    local from, to = text:find(part, at, true)
    if not from then return n end
    n, at = n + 1, to + 1
  end
end

-- ---- each option once: what a script sees of it, or what is said ----
write("s.lua", [[
local accel = require "accel"
print("threads", accel.num_threads(), "limit", accel.mem_stats "cpu".limit_bytes, "seed", accel.get_rng_state().seed)
print("device", accel.ones(1).device, "ranks", accel.dist.get_world_size())
for name in ("MASTER_ADDR MASTER_PORT ACCEL_BACKEND ACCEL_TIMEOUT TORCHELASTIC_RUN_ID TORCHELASTIC_MAX_RESTARTS"):gmatch "%S+" do
  print(name, os.getenv(name))
end
print("undeclared", pcall(function() return nothing_here end))
for line in io.lines "/proc/self/status" do if line:find "Cpus_allowed_list" then print(line) end end
]])
-- option = { value, words that stand beside it } or { value, words, false, where = what } for what a script does not see
local RANKS <const> = "--num-processes 2 --num-threads 1"
local CASES <const> = {
  execute = { "'print(5)'", alone = true }, library = { "no_such_module", said = "no_such_module" },
  interactive = { nil, said = "is for one rank", beside = RANKS }, device = { "meta" }, cpu = { nil, said = "given twice", beside = "--device meta" },
  ["num-threads"] = { "1" }, ["memory-limit"] = { "64M" }, seed = { "9" }, resume = { "auto", said = "--resume had no effect" },
  profile = { "t.json", said = "trace is in t.json" }, ["dry-run"] = { nil, said = "rank 0" },
  ["config-file"] = { "no.yaml", said = "no.yaml" }, pdb = {}, ["no-strict"] = {}, help = {}, version = {},
  ["num-processes"] = { "2" }, ["nproc-per-node"] = { "2" }, ["num-machines"] = { "2", said = "2 machines need", beside = RANKS },
  ["machine-rank"] = { "1", said = "must be below num_machines", beside = RANKS }, ["main-process-ip"] = { "h1", beside = RANKS },
  ["main-process-port"] = { "61234", beside = RANKS }, backend = { "tcp", beside = RANKS }, timeout = { "77", beside = RANKS },
  ["cpu-affinity"] = { "none", beside = RANKS, cores = 2 }, ["log-dir"] = { "logs", beside = RANKS },
  tee = { nil, beside = RANKS .. " --log-dir logs" }, ["max-restarts"] = { "2", beside = RANKS },
  ["monitor-interval"] = { "2", said = "there is no restart to wait for", beside = RANKS },
  rendezvous = { "h1", said = "is for a range of machines", beside = "--num-machines 1:1 --nproc-per-node 2" },
  ["wait-machines"] = { "3", said = "one machine waits for no other", beside = "--num-machines 1:1 --nproc-per-node 2" },
  replace = { "no", said = "only an elastic job replaces ranks", beside = RANKS },
  ["run-id"] = { "mine", beside = RANKS }, ["job-secret-file"] = { "s", said = "has no effect on one machine", beside = RANKS },
  insecure = { said = "has no effect on one machine", beside = RANKS },
}
-- What does not change from run to run: lines in order, without ports and processes.
local function settled(text)
  local lines = {}
  text = text:gsub("MASTER_PORT\t(%d+)", function(port) return port ~= "61234" and "" or nil end):gsub("pid %d+", ""):gsub("RUN_ID\t%x+", "")
  for line in text:gmatch "[^\n]+" do
    lines[#lines + 1] = line
  end
  table.sort(lines)
  return table.concat(lines, "\n")
end

local totals = { options = 0, effect = 0, warn = 0, raise = 0, excepted = 0 }
for _, name in ipairs(usage.names) do
  local c = assert(CASES[name], "accel-run has an option that this test does not know: --" .. name)
  totals.options = totals.options + 1
  local word, script = "--" .. name .. (c[1] and " " .. c[1] or ""), c.alone and "" or " s.lua"
  if name == "dry-run" then word = word .. " --rates '" .. RATES .. "'" end -- else it measures this machine: minutes under a sanitizer
  local excepted = name == "pdb" or c.cores and accel.process.cores() < c.cores -- pdb waits for a prompt: tests/lua/repl has it
  local before = excepted or run((c.beside or "") .. (c.alone and " -e 'print(4)'" or script))
  if excepted then
    totals.excepted = totals.excepted + 1
  else
    local after, status = run(("%s %s%s"):format(c.beside or "", word, script))
    assert(settled(after) ~= settled(before), ("accel-run %s is silent:\n%s"):format(word, after))
    assert(not c.said or after:find(c.said, 1, true), word .. "\n" .. after)
    local kind = status == 2 and "raise" or after:find "warning: %-%-" and "warn" or "effect"
    totals[kind] = totals[kind] + 1
  end
end

-- ---- twice ----
for words, said in pairs {
  ["--seed 3 --seed 4 -e 'print(1)'"] = "--seed is given twice, as '3' and as '4'; the last one counts",
  ["--cpu --device meta -e 'print(1)'"] = "--device is given twice, as 'cpu' and as 'meta'",
  ["--num-processes 2 --num-processes 1 -e 'print(1)'"] = "--num-processes is given twice",
} do
  local text = gives(words, 0, said, "1\n")
  assert(count(text, "given twice") == 1, text)
end
assert(count(gives("--num-processes 2 --num-threads 1 --seed 3 --seed 4 -e 'print(1)'", 0), "given twice") == 1, "told by the launcher alone")
assert(not gives("--seed 3 --seed 3 --cpu --cpu -e 'print(1)'", 0):find "twice")
-- as the interpreter lua: in their order, and a prompt after them
gives("-e 'x = 1' -e 'x = x + 1 print(x)'", 0, "2\n")
write("lib.lua", "return { n = 40 }\n")
gives("-l lib -e 'print(lib.n)' -l other=lib -e 'print(other.n + 2)'", 0, "40\n42\n")
write("uses.lua", "print('n', lib.n)\n")
gives("-l lib uses.lua", 0, "n\t40\n")
gives("--num-processes 2 --num-threads 1 -l lib uses.lua", 0, "[rank 1] n\t40\n")
gives("-l = uses.lua", 2, "names no module")
gives("-v", 0, "accel-run ")
write("in.lua", "(rawget(_G, 'y') or rawget(_G, 'lib').n) + 1\n")
for words, want in pairs { ["-i -e 'y = 5'"] = "6", ["-l lib -i uses.lua"] = "41", ["-l lib -i"] = "41", ["-l lib repl"] = "41" } do
  local pipe = assert(io.popen(("cd '%s' && exec '%s' %s 2>&1 <in.lua"):format(root, accel.process.program(), words)))
  local text = pipe:read "a"
  pipe:close()
  assert(text:find(want, 1, true), words .. "\n" .. text)
end
-- what follows the script or -- is not accel-run's
assert(gives("-- s.lua --seed 9", 0):find "seed\t0" and gives("s.lua --num-processes 3", 0):find "ranks\t1")

-- ---- ranks' options on one process ----
for _, option in ipairs { "--backend tcp", "--timeout 5" } do
  gives(option .. " -e 'print(1)'", 0, ("warning: %s has no effect: this process is the only rank"):format(option:match "%S+"))
  assert(not gives(RANKS .. " " .. option .. " -e 'print(1)'", 0):find "warning: %-%-")
end

-- ---- with each command: an option acts on what the command does, or ends it ----
local TENSORS <const> = "num-threads memory-limit device cpu"
local TAKES <const> = { repl = TENSORS .. " seed resume no-strict library num-processes nproc-per-node", ckpt = TENSORS,
  ["merge-weights"] = TENSORS, preprocess = TENSORS,
  generate = TENSORS, gguf = TENSORS, quantize = TENSORS, data = TENSORS, bench = TENSORS, doctor = TENSORS, env = TENSORS }
local LEAVE <const> = { execute = true, help = true, version = true, ["dry-run"] = true, ["config-file"] = true } -- take the command's place
local commands = 0
for command in accel.pairs(usage.commands) do
  commands = commands + 1
  for _, name in ipairs(usage.names) do
    local takes = (" " .. (TAKES[command] or "") .. " "):find(" " .. name .. " ", 1, true)
    if not LEAVE[name] and not takes then
      local c = CASES[name]
      local text, status = run(("--%s %s %s"):format(name, c[1] or "", command))
      local raised = status == 2 and (text:find "has no effect on" or text:find "runs on no ranks" or text:find "is for" or text:find "has no ")
      assert(text:find "has no effect: this" or raised,
        ("accel-run --%s %s is taken:\n%s"):format(name, command, text))
    end
  end
end
assert(commands > 24, commands)
assert(gives("--num-threads 3 env", 0):find ", 3 threads" and gives("--num-threads 3 doctor", 0):find ", 3 threads")
gives("--memory-limit 64M env", 0, "limit 64.0 MiB")
for command in accel.pairs(TAKES) do gives("--device nowhere " .. command, 1, "no device 'nowhere") end

-- ---- --resume that nothing came of ----
write("accelerator.lua", "require('accel').Accelerator { project_dir = 'p' }")
gives("--resume auto -e 'print(1)'", 0, "warning: --resume had no effect: the script made no accel.Accelerator")
gives("--resume auto accelerator.lua", 0, "starting from scratch")

-- ---- what a restart cannot mend: not restarted, told once ----
write("refused.lua", [[
local accel = require "accel"
local a = accel.Accelerator { project_config = accel.accelerator.ProjectConfiguration { project_dir = "q", automatic_checkpoint_naming = true } }
local model = a:prepare(accel.nn.Linear(2, 1))
a:save_state()
]])
write("syntax.lua", "x = = 2")
write("usage.lua", "require('accel').util.cli { name = 'usage.lua', { 'n', 'int', 1, 'N', 'how many' } }")
write("own.lua", "require('accel').util.refuse('no way on with %s', 'this')")
gives("refused.lua", 0)
for words, c in pairs { ["refused.lua"] = { 1, "holds checkpoints of another run" }, ["syntax.lua"] = { 1, "unexpected symbol" },
  ["usage.lua --n x"] = { 2, "must be an integer" }, ["own.lua"] = { 1, "own.lua:1: no way on with this" } } do
  gives(words, c[1], c[2])
  local text = gives("--num-processes 3 --num-threads 1 --max-restarts 2 " .. words, c[1], "not restarted: ")
  assert(not text:find("restart 1 of", 1, true), text)
  assert(count(text, c[2]) == 1, text)
end
gives("--num-processes 1 --max-restarts 2 own.lua", 1, "not restarted: the run is refused")
gives("--resume nowhere --num-processes 2 --num-threads 1 --max-restarts 1 refused.lua", 1,
  "nowhere does not exist; expected the folder of a checkpoint", "not restarted")
-- other errors are restarted, also after a refusal that the script caught, and those that all ranks raise are told by the first
write("mended.lua", [[
pcall(require "accel".util.refuse, "caught")
if os.getenv 'TORCHELASTIC_RESTART_COUNT' == '0' then error 'first time' end print 'done']])
local text = gives("--num-processes 2 --num-threads 1 --max-restarts 1 --monitor-interval 0 mended.lua", 0, "done", "restart 1 of 1")
assert(count(text, "accel-run: mended.lua:2: first time") == 1, text)

print(("%d options of accel-run: %d act, %d warn, %d raise, %d excepted; %d commands"):format(totals.options, totals.effect, totals.warn,
  totals.raise, totals.excepted, commands))
