-- accel-run --num_processes from outside: what ranks see, how their output and ends are shown, signals, restarts.
local run = (os.getenv("ACCEL_TEST_BUILD") or "../..") .. "/bin/accel-run"
local tmp = (os.getenv("ACCEL_TEST_TMP") or ".") .. "/"
local slow = (os.getenv("ACCEL_TEST_SANITIZE") or "") ~= ""

local function write(name, text)
  local file = assert(io.open(tmp .. name, "wb"))
  file:write(text)
  file:close()
  return tmp .. name
end

local function read(name)
  local file = assert(io.open(tmp .. name, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- status, stdout, stderr of a shell command that ends within minutes; $R is accel-run. ranks() tells which of its pids
-- are alive.
local prelude = [[
cd '%s' && rm -f o e || exit 99
R='%s'
wait_for() { i=0; while ! grep -qs -- "$1" "${2:-o}"; do sleep 0.02; i=$((i+1)); [ $i -lt 5000 ] || exit 98; done; }
lives() { for p in "$@"; do st=$(sed 's/.*) //; s/ .*//' /proc/$p/stat 2>/dev/null); case "$st" in ''|Z|X) ;; *) return 0;; esac; done; return 1; }
gone() { i=0; while lives "$@"; do sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || { echo "alive: $*"; exit 97; }; done; }
pids() { sed -n 's/.*pid=\([0-9]*\).*/\1/p' o; }
]]
local function shell(command)
  local script = write("command.sh", prelude:format(tmp, run) .. command:gsub("%$R", '"$R"') .. "\n")
  local _, how, code = os.execute(("timeout -k 1 850 sh '%s' > '%sout' 2> '%serr'"):format(script, tmp, tmp))
  return how == "signal" and 128 + code or code, read "out", read "err"
end

local function check(command, status, out, err)
  local got, o, e = shell(command)
  local all = ("%s\nstatus %d\nstdout: %s\nstderr: %s"):format(command, got, o, e)
  assert(got == status, all)
  for _, part in ipairs(type(out) == "table" and out or { out }) do assert(o:find(part, 1, true), part .. "\n" .. all) end
  for _, part in ipairs(type(err) == "table" and err or { err }) do assert(e:find(part, 1, true), part .. "\n" .. all) end
  return o, e, all
end

local function count(text, part) return select(2, text:gsub(part:gsub("%p", "%%%0"), "")) end

-- Half a second after a rank failed the launcher ends the others; where the cores are not free some may be gone before
-- they have said why. Checks of what all say are tried again, up to ten times.
local function timely(f, ...)
  for _ = 1, 9 do
    if pcall(f, ...) then return end
  end
  f(...)
end

-- Usage.
write("print.lua", "print(1)")
local _, _, help = check("$R --help", 0, { "options for several ranks:", "--num-processes N", "--log-dir DIR" })
for line in help:gmatch "[^\n]+" do assert(#line <= 80, line) end
local wrong = {
  ["--num_processes 0"] = "'0' is not a number of ranks", ["--num_processes -2"] = "'-2' is not a number of ranks",
  ["--num_processes two"] = "'two' is not a number of ranks", ["--num_processes 2.5"] = "'2.5' is not a number",
  ["--num_processes ''"] = "'' is not a number", ["--num_processes 257"] = "257 ranks on one machine",
  ["--num_proceses 2"] = "did you mean '--num-processes'?", ["--num-procesess=2"] = "did you mean '--num-processes'?",
  ["--num_processes 2 --num_machines 3"] = "3 machines are too many for 2 ranks",
  ["--num_processes 3 --num_machines 2 --machine_rank 0 --main_process_ip h --main_process_port 1"] = "cannot be split",
  ["--num_processes 2 --num_machines 2"] = "2 machines need machine_rank",
  ["--num_processes 2 --num_machines 2 --machine_rank 0"] = "2 machines need main_process_ip",
  ["--num_processes 2 --num_machines 2 --machine_rank 2 --main_process_ip h --main_process_port 1"] = "must be below",
  ["--num_processes 2 --main_process_port 99999"] = "'99999' is not a port", ["--num_processes 2 --machine_rank x"] = "'x'",
  ["--num_processes 2 --num_machines 0"] = "'0' is not a number of machines",
  ["--num_processes 2 --backend nccll"] = "'nccll' is not one of auto|", ["--timeout 0"] = "'0' is not a number of seconds",
  ["--timeout 1e9"] = "not a number of seconds", ["--num_processes 2 --cpu_affinity on"] = "neither auto nor none",
  ["--num_processes 2 --tee"] = "there is no --log-dir", ["--log_dir d"] = "--log-dir is for several ranks",
  ["--max_restarts 1"] = "--max-restarts is for several ranks", ["--num_processes 2 --max_restarts x"] = "'x' is not a number",
  ["--num_processes 2 --monitor_interval -1"] = "not a number of seconds", ["--num_processes"] = "'--num-processes' needs a value",
  ["--num_processes 2 --tee=1"] = "'--tee' takes no value",
  ["--num-machines 1:1"] = "1:1 needs --nproc-per-node", ["--num-machines 1:1 --num-processes 2"] = "give --nproc-per-node",
  ["--num-machines 1:2 --nproc-per-node 2"] = "num_machines 1:2 needs --rendezvous",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous h --machine-rank 0"] = "machine_rank, main_process_ip and main_process_port",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous h --insecure"] = "must prove who they are",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous h --max-restarts 1"] = "leave it out",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous h --backend shm"] = "machines share no memory",
  ["--num-machines 1:2 --nproc-per-node 65 --rendezvous 127.0.0.1"] = "may have 64",
  ["--num-machines 1:5 --nproc-per-node 64 --rendezvous 127.0.0.1"] = "may have 256 ranks in all",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous 127.0.0.1:1,127.0.0.1:1"] = "127.0.0.1 and 127.0.0.1 are the same address, port 1",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"] = "3 addresses for a job of at most 2 machines",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous 127.0.0.1:x"] = "'127.0.0.1:x' is not HOST[:PORT]",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous ''"] = "'' is not a list of HOST[:PORT]",
  ["--num-machines 2 --nproc-per-node 2 --rendezvous h"] = "rendezvous is for a range of machines",
  ["--num-machines 1:1 --nproc-per-node 2 --rendezvous h"] = "rendezvous is for a range of machines",
  ["--num-machines 1:1 --nproc-per-node 2 --wait-machines 3"] = "one machine waits for no other",
  ["--num-machines 1:2 --nproc-per-node 2 --rendezvous h --wait-machines x"] = "'x' is not a number of seconds",
  ["--rendezvous h"] = "--rendezvous is for jobs that may lose ranks; add --num-machines MIN:MAX",
  ["--replace no"] = "add --num-machines 1:1", ["--num-machines 2:4"] = "--num-machines 2:4 needs --nproc-per-node",
  ["--num-machines 2:1 --nproc-per-node 2"] = "or MIN:MAX as in 1:1", ["--num-machines 1: --nproc-per-node 2"] = "or MIN:MAX",
  ["--num-machines 1:1 --nproc-per-node 2 --backend mpi"] = "backend mpi cannot lose ranks; use --backend shm or tcp",
  ["--nproc-per-node 0"] = "'0' is not a number of ranks", ["--nproc-per-node 2 --num-processes 2"] = "give one of them",
  ["--np 2"] = "did you mean '--num-processes'", ["--master_addr=h"] = "did you mean '--main-process-ip'",
}
for options, message in pairs(wrong) do
  local tail = options == "--num_processes" and "" or " print.lua"
  local o, e = check("$R " .. options .. tail, 2, nil, message)
  assert(o == "" and e:find("^accel%-run: "), e)
end
check("$R --num_processes 2 env", 2, nil, "env runs on no ranks")
check("$R --num_processes 2 nowhere.lua", 2, nil, "accel-run: cannot read 'nowhere.lua'")
check("ACCEL_TIMEOUT=-3 $R --num_processes 2 print.lua", 2, "", "ACCEL_TIMEOUT")

-- What ranks see; output of others than rank 0 behind a prefix; options and arguments.
write("env.lua", [[
local list = {}
for name in ("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
  .. "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS"):gmatch "%S+" do
  list[#list + 1] = os.getenv(name) or "nil"
end
io.stderr:write("to stderr\n")
print(table.concat(list, " "), arg[0], #arg, ...)
print(require("accel").get_rng_state().seed, require("accel").num_threads())
io.write("no end")
]])
local o, e = check("unset OMP_NUM_THREADS; $R --num_processes 2 --seed 5 env.lua --num_processes 7 -x", 0, {
  "0 0 2 2 0 1 0 2 default 0 0\tenv.lua\t3\t--num_processes\t7\t-x\n",
  "[rank 1] 1 1 2 2 0 1 1 2 default 0 0\tenv.lua\t3\t--num_processes\t7\t-x\n", "5\t", "[rank 1] 5\t",
  "[rank 1] no end\n" }, { "to stderr\n", "[rank 1] to stderr\n" })
assert(count(o, "no end") == 2 and count(e, "to stderr") == 2)
check("$R --num-processes=2 --num-threads 2 -e 'print(#arg, require(\"accel\").num_threads())' a b", 0,
  { "2\t2\n", "[rank 1] 2\t2\n" })
check("echo 'print(os.getenv \"RANK\", ...)' | $R --num_processes 2 - a", 0, { "0\ta\n", "[rank 1] 1\ta\n" })
check("echo line | $R --num_processes 2 -e 'print(io.read())'", 0, { "line\n", "[rank 1] nil\n" })
o = check("$R --num_processes auto -e 'print(\"one of\", os.getenv \"WORLD_SIZE\")'", 0, "one of\t")
assert(count(o, "one of") == tonumber(o:match "one of\t(%d+)"))
o, e = check("ACCEL_LOG=info $R --num_processes 2 print.lua", 0, nil, "launch: 2 ranks, ")
assert(count(e, "launch: ") <= 2, e)
o = check("$R --nproc-per-node 2 -e 'print(os.getenv \"WORLD_SIZE\")'", 0, { "2\n", "[rank 1] 2\n" })
o = check("$R --num_processes 1 -e 'print(os.getenv \"RANK\", os.getenv \"WORLD_SIZE\")'", 0, "0\t1\n")
-- warnings of the environment come once
_, e = check("ACCEL_NUM_THREADZ=1 $R --num_processes 2 print.lua", 0)
assert(count(e, "ACCEL_NUM_THREADZ") == 1, e)
-- what a script starts is not a rank
write("nested.lua", "if os.getenv 'RANK' == '0' then os.execute(arg[1]) end")
check([[$R --num_processes 2 nested.lua "'${R}' -e 'print(require(\"accel\").dist.get_world_size())'"]], 0, "1\n")
check([[$R --num_processes 2 nested.lua "'${R}' --num_processes 3 -e 'print(os.getenv \"WORLD_SIZE\")'"]], 0,
  { "3\n", "[rank 2] 3\n" })
check("RANK=0 WORLD_SIZE=2 $R --num_processes 2 print.lua", 2, "", "already rank 0 of 2, started by torchrun")

-- Failures: the first one's status, its error once, one line of each other rank, one of the launcher.
write("fails.lua", [[
local dist = require("accel").dist
if dist.get_rank() == 1 then error("broken on purpose") end
dist.barrier()
]])
timely(function()
  _, e = check("$R --num_processes 3 fails.lua", 1, "", { "[rank 1] accel-run: fails.lua:2: broken on purpose",
    "accel-run: rank 1 (pid ", ") exited with status 1" })
  assert(count(e, "stack traceback") == 1 and count(e, "accel-run: rank ") == 1, e)
  assert(select(2, e:gsub("accel%-run: [^\n]*rank 1 [^\n]*broken on purpose", "")) == 2, e) -- ranks 0 and 2
end)
check("$R --num_processes 2 -e 'os.exit(require(\"accel\").dist.get_rank() * 7)'", 7, "", "exited with status 7")
check("$R --num_processes 2 -e 'local x = = 1'", 1, "", "exited with status 1")

-- os.exit with a status is a failure that others name, wherever they are.
write("exits.lua", "local d = require('accel').dist\nif d.get_rank() == 1 then os.exit(3) end\nd.barrier()")
for _ = 1, 5 do
  timely(function()
    _, e = check("$R --num_processes 3 exits.lua", 3, "", ") exited with status 3 at exits.lua:2\n")
    assert(count(e, "stopped: rank 1 failed at exits.lua:2: exit with status 3") == 2, e)
    assert(count(e, "\n") == (e:find "share" and 4 or 3), e)
  end)
end
check("$R --num_processes 2 -e 'require(\"accel\").dist.barrier() os.exit(256)'", 0, "")
-- Who fails before others have joined leaves nothing that they take for a call.
write("early.lua", "local d = require('accel').dist\nif d.get_rank() == 17 then error('early') end\nd.barrier()")
for _ = 1, slow and 2 or 6 do
  timely(function()
    _, e = check("$R --num_processes 40 early.lua", 1, "", "[rank 17] accel-run: early.lua:2: early")
    assert(count(e, "rank 17 failed at early.lua:2: early") == 39 and not e:find "differ", e)
  end)
end
-- One that never comes is named, too.
write("stuck.lua", "local d = require('accel').dist\nif d.get_rank() == 1 then os.execute('sleep 30') end\nd.barrier()")
timely(check, "$R --num_processes 2 --timeout 0.2 stuck.lua", 1, "", -- joining must not take longer either
  { "rank 1 has made no call so far", ", waiting for rank 1 (pid " })
-- Limits of the system: a line, not a silent death.
check("ulimit -f 8; $R --num_processes 2 print.lua", 1, "", "accel-run: cannot make a segment of ")
check("ulimit -n 9; $R --num_processes 2 print.lua", 1, "", "Too many open files")
if not slow then check("ulimit -v 200000; $R --num_processes 2 print.lua", 1, "", "; raise ulimit -v") end
write("long.lua", "local s = 'x'\n" .. ("s = 'x'\n"):rep(3000) .. "print(s)")
check("(ulimit -f 8; $R --num_processes 2 - < long.lua)", 1, "", "accel-run: standard input: File too large")

-- Killed inside a collective: named with signal and line, and the others leave at once.
write("loop.lua", [[
local accel = require "accel"
local dist = accel.dist
io.stdout:setvbuf("line")
local x = accel.ones(10)
print("pid=" .. io.open("/proc/self/stat"):read("a"):match "%d+" .. " rank=" .. dist.get_rank() .. ".")
while true do
  accel.step()
  dist.all_reduce(x, "max")
end
]])
local both = "$R --num_processes 2 loop.lua > o 2> e & p=$!\nwait_for 'rank=0\\.'; wait_for 'rank=1\\.'\n"
  .. "r0=$(sed -n 's/^pid=\\([0-9]*\\).*/\\1/p' o); r1=$(sed -n 's/^.rank 1. pid=\\([0-9]*\\).*/\\1/p' o)\n"
local finish = "wait $p; s=$?; cat e; gone $(pids); exit $s"
for _, victim in ipairs { 0, 1 } do
  timely(function()
    o = check(both .. "t=$(date +%s%N); kill -9 $r" .. victim .. "; wait $p; s=$?; echo ms=$((($(date +%s%N) - t) / 1000000)); "
      .. finish:gsub("wait %$p; s=%$%?; ", ""), 137, ("accel-run: rank %d (pid "):format(victim))
    assert(o:find("was killed by signal 9 %(SIGKILL%)[^\n]* at loop%.lua:%d"), o)
    assert(count(o, "was killed by signal") == 1, o)
    assert(slow or tonumber(o:match "ms=(%d+)") < 1000, o)
  end)
end

-- Stopped is not dead.
check(both .. "kill -STOP $r1; wait_for 'is stopped' e; kill -CONT $r1; wait_for 'continues' e; kill -STOP $r1; sleep 0.05; "
  .. "kill -9 $r0; " .. finish, 137, "rank 1 (pid ")

-- Ctrl-C: to the launcher, or as a terminal does it, to all at once; both end at the next step.
write("steps.lua", [[
local accel = require "accel"
local dist = accel.dist
io.stdout:setvbuf("line")
local x = accel.ones(10)
accel.step() -- from here on a signal waits for the next one
print("pid=" .. io.open("/proc/self/stat"):read("a"):match "%d+" .. " rank=" .. dist.get_rank() .. ".")
local n = 0
local ok, err = pcall(function()
  while true do
    accel.step()
    n = n + 1
    dist.all_reduce(x, "max")
    local t = accel.clock()
    while accel.clock() - t < 0.002 do end
  end
end)
dist.barrier()
print("stopped", ok, err.code, n)
if arg[1] == "exit" then os.exit(5) end
error(err, 0)
]])
local steps = both:gsub("loop", "steps")
local finish_o = finish:gsub("cat e", "cat o e")
for _, kill in ipairs { "kill -INT $p", "kill -INT -$p" } do
  local begin = kill:find("-$p", 1, true) and steps:gsub("^%$R", "setsid $R") or steps
  o = check(begin .. kill .. "; " .. finish_o, 130, { "stopped\tfalse\tinterrupted", "[rank 1] stopped\tfalse\tinterrupted" })
  assert(count(o, "press Ctrl-C again") == 1 and count(o, "interrupted by signal 2") == 1, o)
  local a, b = o:match "\nstopped\tfalse\tinterrupted\t(%d+)", o:match "1%] stopped\tfalse\tinterrupted\t(%d+)"
  assert(a == b and not o:find "accel%-run: rank", o)
end
-- The same while ranks are inside os.execute, whose commands get it, too; the second one does not wait for them.
write("command.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
accel.step()
print("pid=" .. io.open("/proc/self/stat"):read("a"):match "%d+" .. " rank=" .. accel.dist.get_rank() .. ".")
local ok, err = pcall(function()
  while true do
    os.execute(arg[1])
    accel.step()
    accel.dist.barrier()
  end
end)
print("stopped", ok, err.code)
error(err, 0)
]])
local commands = both:gsub("^%$R", "setsid $R"):gsub("loop.lua", "command.lua '%%s'")
o = check(commands:format("sleep 0.05") .. "kill -INT -$p; " .. finish_o, 130,
  { "stopped\tfalse\tinterrupted", "[rank 1] stopped\tfalse\tinterrupted" })
timely(function() -- where it is lost the launcher kills the ranks after five seconds
  o = check(commands:format("trap \"\" INT; sleep 100") .. "kill -INT -$p; sleep 0.2; t=$(date +%s%N); kill -INT -$p; wait $p; s=$?; "
    .. "echo ms=$((($(date +%s%N) - t) / 1000000)); gone $(pids); exit $s", 130)
  assert(tonumber(o:match "ms=(%d+)") < 4000, o)
end)
-- A signal to one rank alone: all stop at one step, and that rank is the one that is named.
write("one.lua", read("steps.lua"):gsub("local ok, err = pcall%(", "("):gsub("end%)\ndist.barrier%(%).*", "end)()\n"))
for _, victim in ipairs { 0, 1 } do
  o = check(both:gsub("loop", "one") .. "kill -TERM $r" .. victim .. "; " .. finish, 143,
    ("accel-run: rank %d (pid "):format(victim))
  assert(count(o, "was killed by signal 15 (SIGTERM)") == 1 and count(o, "accel-run: rank") == 1, o)
  assert(not o:find("traceback", 1, true) and not o:find("stopped: ", 1, true), o)
end
check(steps:gsub("steps.lua", "steps.lua exit") .. "kill -TERM $p; " .. finish_o, 5, "stopped\tfalse\tinterrupted")
write("busy.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
accel.step()
print("pid=" .. io.open("/proc/self/stat"):read("a"):match "%d+" .. " rank=" .. accel.dist.get_rank() .. ".")
while true do pcall(function() while true do end end) end
]])
local busy = both:gsub("loop", "busy")
check(busy .. "kill -INT $p; sleep 0.2; kill -INT $p; " .. finish, 130)

-- A launcher that is killed takes everything along.
check(both .. "kill -9 $p; " .. finish, 137)
check(both .. "kill -STOP $r1; kill -9 $p; " .. finish, 137)

-- One that fails ends the others, also where they do not wait for it and swallow errors.
write("alone.lua", [[
io.stdout:setvbuf("line")
local dist = require("accel").dist
print("pid=" .. io.open("/proc/self/stat"):read("a"):match "%d+" .. " rank=" .. dist.get_rank() .. ".")
if dist.get_rank() == 0 then error("alone") end
while true do pcall(function() while true do end end) end
]])
o = check("$R --num_processes 2 alone.lua > o 2> e & p=$!\n" .. finish, 1, "alone.lua:4: alone")
assert(count(o, "accel-run: rank 0 (pid ") == 1, o)

-- Logs.
write("talk.lua", [[
io.stdout:setvbuf("line")
print("out", os.getenv "RANK")
io.stderr:write("err ", os.getenv "RANK", "\n")
]])
for _, tee in ipairs { "", "--tee" } do
  o, e = check("rm -rf logs; $R --num_processes 2 --log_dir logs/a " .. tee .. " talk.lua", 0, "out\t0\n",
    { "err 0\n", "[rank 1] err 1\n" })
  assert(count(o, "[rank 1] out\t1") == (tee == "" and 0 or 1), o)
  for r = 0, 1 do
    local log = read(("logs/a/rank_%d.log"):format(r))
    assert(log:find("out\t" .. r .. "\n", 1, true) and log:find("err " .. r .. "\n", 1, true) and #log == 12, log)
  end
end
-- Rank 0's pieces of a line stay together among the lines of others (tests/host/launch/test_output.c); a prompt shows
-- all the same.
write("pieces.lua", [[
io.stdout:setvbuf("no")
for i = 1, 1000 do
  for _, s in ipairs { "a", "b", "c", "\n" } do
    io.stdout:write(s)
    for _ = 1, 1000 do end
  end
end
]])
o = check("$R --num_processes 3 --log_dir logs --tee pieces.lua", 0, "")
assert(count(o, "[rank 1] abc\n") == 1000 and count(o, "[rank 2] abc\n") == 1000, #o)
assert(o:gsub("%[rank %d%] abc\n", "") == ("abc\n"):rep(1000), "rank 0's lines")
local whole = 0
for line in o:gmatch "[^\n]*\n" do whole = whole + (line == "abc\n" and 1 or 0) end
assert(whole >= 500, whole) -- what stays alone for a moment is shown, like a prompt: where the cores are not free, too
write("prompt.lua", [[
if os.getenv "RANK" == "0" then io.write "name? " io.flush() end
while not io.open "go" do end
]])
check("rm -f go; $R --num_processes 2 --log_dir logs prompt.lua > o 2> e & p=$!; wait_for 'name? '; touch go; wait $p", 0)
check("$R --num_processes 2 --log_dir logs -e 'error(1)'", 1, "", "; see logs/rank_")
check("$R --num_processes 2 --log_dir /proc/no/logs print.lua", 1, "", "log_dir: cannot make /proc/no")

-- Restarts.
write("again.lua", [[
local n = tonumber(os.getenv "TORCHELASTIC_RESTART_COUNT")
require("accel").dist.barrier()
print("try", n)
if n < 2 and os.getenv "RANK" == "1" then os.exit(3) end
]])
o, e = check("$R --num_processes 2 --max_restarts 2 --monitor_interval 0.01 again.lua", 0, { "try\t2\n", "[rank 1] try\t2\n" },
  { "exited with status 3", "restart 1 of 2", "restart 2 of 2" })
check("$R --num_processes 2 --max_restarts 1 again.lua", 3, "try\t1\n", "accel-run: rank 1 (pid ")

-- A reader that leaves.
check("$R --num_processes 2 -e 'for i = 1, 20000 do print(i) end' 2> e | head -n 1 > o; cat o", 0, "1\n")
-- A closed pipe ends the job without a word, whichever rank wrote to it, also where the others wait; a caller that ignores
-- SIGPIPE has the output dropped.
write("filter.lua", [[
local dist = require("accel").dist
local writes = os.getenv "RANK" == arg[1] or arg[1] == "all"
for i = 1, 20000 do
  if writes then print("line") io.stdout:flush() end
  if i == 10000 then dist.barrier() end
end
while true do dist.barrier() end
]])
local closed = "{ $R --num_processes 2 filter.lua %s 2> e; echo $? > status; } | head -n 1 > o; cat e status"
for _, who in ipairs { "0", "1", "all" } do
  o = check(closed:format(who), 0)
  assert(o == "141\n", who .. ": " .. o)
end
check("trap '' PIPE; { $R --num_processes 2 -e 'for i = 1, 20000 do if os.getenv \"RANK\" == \"1\" then print(i) end end' 2> e; "
  .. "echo $? > status; } | head -n 1 > o; cat e status", 0, "0\n")

-- Several machines: here two launchers that know each other's address only.
write("four.lua", [[
local accel = require "accel"
local t = accel.full({ 1000 }, accel.dist.get_rank() + 1)
accel.dist.all_reduce(t)
print(accel.dist.get_rank(), accel.dist.get_node_rank(), t[1]:item())
]])
local machines = "port=$($R --num_processes 1 -e 'print(os.getenv \"MASTER_PORT\")')\n"
  .. "machine() { $R --num_processes 4 --num_machines 2 --machine_rank $1 --main_process_ip 127.0.0.1 --main_process_port $port "
  .. "--timeout 30 $2 > o$1 2> e$1; }\nrm -f o0 o1 e0 e1\n"
check(machines .. "machine 0 four.lua & machine 1 four.lua; s=$?; wait $! || s=$?; cat o0 o1; exit $s", 0,
  { "0\t0\t10\n", "[rank 1] 1\t0\t10\n", "[rank 2] 2\t1\t10\n", "[rank 3] 3\t1\t10\n" })
o = check(machines .. "machine 0 loop.lua & a=$!; machine 1 loop.lua & b=$!; wait_for 'rank=3\\.' o1; wait_for 'rank=0\\.' o0\n"
  .. "cat o0 o1 > o; kill -9 $(sed -n 's/^.rank 3. pid=\\([0-9]*\\).*/\\1/p' o1); wait $a; echo a=$?; wait $b; echo b=$?; "
  .. "cat e0; echo ----; cat e1; gone $(pids)", 0, { "a=1\n", "b=137\n" })
assert(o:find("\naccel%-run: rank 3 %(pid %d+%) was killed by SIGKILL[^\n]*\n%-%-%-%-"), o)
assert(o:find("\naccel%-run: rank 3 %(pid %d+, [^)]*%) was killed by signal 9 %(SIGKILL%)[^\n]*\n$"), o)
o = check(machines:gsub("30", "1") .. "machine 1 four.lua; s=$?; cat e1; exit $s", 1, "cannot reach rank 0 at 127.0.0.1:")
assert(select(2, o:gsub("\naccel%-run: rank [23] %(pid", "")) == 1, o)

-- Many at once.
write("many.lua", [[
local accel = require "accel"
local t = accel.full({ 100 }, accel.dist.get_rank() + 1)
accel.dist.all_reduce(t)
assert(t[1]:item() == 3)
]])
local jobs = slow and 20 or 100
o = check(("for i in $(seq %d); do ($R --num_processes 2 many.lua && echo fine) & done; wait"):format(jobs), 0)
assert(count(o, "fine\n") == jobs, o)
