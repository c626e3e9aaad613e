-- Ranks that Slurm starts: `srun -n 2 accel-run script.lua` on one machine, by the daemons of Debian's packages slurm-wlm and munge, which
-- this test runs in its own folder, on ports of its own. Skips where they are not installed, or do not start.
-- tier: slow
local accel = require "accel"

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/slurm-"))
local R = accel.process.program()
local source = os.getenv "ACCEL_TEST_SRC" or "."

local function run(command)
  local p = assert(io.popen("{ " .. command .. "; } 2>&1 </dev/null"))
  local text = p:read "a"
  local _, _, status = p:close()
  return text, status
end

local function write(name, text)
  local file <close> = assert(io.open(root .. "/" .. name, "w"))
  file:write(text)
end

local function read(name)
  local file <close> = io.open(root .. "/" .. name, "r")
  return file and file:read "a" or ""
end

local daemons = {} -- ended by their handles
local function skip(why)
  for _, p in ipairs(daemons) do p:close() end
  print("skipped: " .. why)
  os.exit(77, true)
end

local function daemon(name, command)
  daemons[#daemons + 1] = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec %s >'%s/%s.out' 2>&1 </dev/null"):format(command, root, name) },
    { SLURM_CONF = root .. "/slurm.conf" })
end

for _, program in ipairs { "munged", "slurmctld", "slurmd", "srun", "sinfo", "sbatch" } do
  if select(2, run("PATH=$PATH:/usr/sbin command -v " .. program)) ~= 0 then
    skip(("there is no %s (Debian: apt-get install slurm-wlm munge)"):format(program))
  end
end

local host = run("hostname"):gsub("%s", "")
local port = 20000 + accel.util.Random((assert(io.open "/proc/self/stat"):read "n")):below(9000)
accel.makedirs(root .. "/munge")
accel.makedirs(root .. "/state")
accel.makedirs(root .. "/spool")
run(("cd '%s' && chmod 700 . munge && head -c 128 /dev/urandom > munge/key && chmod 400 munge/key"):format(root))
write("slurm.conf", ([[
ClusterName=accel
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/munge
AuthInfo=socket=ROOT/munge/socket
StateSaveLocation=ROOT/state
SlurmdSpoolDir=ROOT/spool
SlurmctldPidFile=ROOT/slurmctld.pid
SlurmdPidFile=ROOT/slurmd.pid
SlurmctldPort=PORT
SlurmdPort=NEXT
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=HOST NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
]]):gsub("%u%u%u%u+", { HOST = host, USER = run("id -un"):gsub("%s", ""), ROOT = root, PORT = port, NEXT = port + 1 }))

daemon("munged", ("munged --force --foreground --key-file='%s/munge/key' --socket='%s/munge/socket' --pid-file='%s/munge/pid' "
  .. "--log-file='%s/munge/log' --seed-file='%s/munge/seed'"):format(root, root, root, root, root))
local path = "PATH=$PATH:/usr/sbin SLURM_CONF='" .. root .. "/slurm.conf' "
daemon("slurmctld", "env PATH=\"$PATH:/usr/sbin\" slurmctld -D")
daemon("slurmd", "env PATH=\"$PATH:/usr/sbin\" slurmd -D")
local ready = run(path .. "; export PATH SLURM_CONF; i=0; until sinfo -h -o %T 2>/dev/null | grep -q idle; do i=$((i+1)); "
  .. "[ $i -lt 150 ] || { echo no; exit; }; sleep 0.2; done; echo yes"):match "%a+"
if ready ~= "yes" then skip("Slurm does not start here: " .. (read "slurmctld.out" .. read "slurmd.out"):sub(-300):gsub("\n", "; ")) end

local checked, err = pcall(function()
  local function srun(words, status, ...)
    local text, got = run(("cd '%s' && %s timeout 120 %s"):format(root, path, words))
    assert(got == status, ("%s: status %d\n%s%s"):format(words, got, text, read "job.out"))
    for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("%s: lacks %q:\n%s"):format(words, part, text)) end
    return text
  end
  write("w.lua", [[
    local accel = require "accel"
    local a = accel.Accelerator { project_dir = "out" }
    local x = a:reduce(accel.ones(3) * (a.process_index + 1), "sum")
    print(("rank %d of %d, local %d, sum %g, %s"):format(a.process_index, a.num_processes, a.local_process_index, x[1]:item(),
      tostring(os.getenv "ACCELERATE_MIXED_PRECISION")))
  ]])
  srun(("srun -n 2 '%s' --cpu w.lua"):format(R), 0, "rank 0 of 2, local 0, sum 3, nil", "rank 1 of 2, local 1, sum 3, nil")

  -- a configuration says how, Slurm how many
  write("one.yaml", "distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: bf16\nuse_cpu: true\n")
  srun(("srun -n 2 '%s' --config_file one.yaml w.lua"):format(R), 0, "rank 0 of 2, local 0, sum 3, bf16", "rank 1 of 2, local 1, sum 3, bf16")

  -- a rank that fails ends the other, and says so once
  write("fails.lua", [[
    local a = require("accel").Accelerator()
    a:wait_for_everyone()
    if a.process_index == 1 then error "no more" end
    a:wait_for_everyone()
  ]])
  srun(("srun -n 2 '%s' --cpu fails.lua"):format(R), 1, "fails.lua:3: no more")

  -- the example's batch script
  srun(("env PATH='%s':\"$PATH\" sbatch --wait --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 --output='%s/job.out' "
    .. "'%s/examples/slurm/job.sbatch' w.lua"):format(R:match "^(.*)/", root, source), 0, "Submitted batch job")
  local said = read "job.out"
  assert(said:find("rank 0 of 2", 1, true) and said:find("rank 1 of 2", 1, true), said)
end)
for i = #daemons, 1, -1 do daemons[i]:close() end
run("rm -rf '" .. root .. "'")
if not checked then error(err, 0) end
print "slurm ok"
