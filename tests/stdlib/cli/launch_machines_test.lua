-- accel-run launch on several machines, which are as many launches on this one: restarts of all ranks together, a machine that comes
-- back, how long ranks wait for one that does not (--rdzv_conf), and the command lines of mpirun.
--   accel-run tests/stdlib/cli/launch_machines_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")

local folder = dofile((arg[0]:match "^.*/" or "") .. "../../support/test_folder.lua") "machines"
local root, R, port, write, read, has = folder.root, folder.program, folder.port, folder.write, folder.read, folder.has

local function start(machine, name, flags, words)
  return accel.process.spawn("/bin/sh", { "sh", "-c", ("cd '%s' && exec env -i PATH=/usr/bin:/bin ACCEL_DEVICE=cpu HOME='%s' '%s' launch "
    .. "--num_machines 2 --machine_rank %d --main_process_ip 127.0.0.1 --main_process_port %d %s %s >'%s' 2>&1 </dev/null"):format(root, root,
    R, machine, port, flags, words, name) }, {})
end

local function ends(p, name)
  local how, code = p:wait(120)
  assert(how, name .. " does not end:\n" .. read "0.out" .. "\n" .. read "1.out")
  p:close()
  return how == "exit" and code or 128 + code, read(name)
end

-- The second machine's last rank fails in the first attempt, the first machine's in the second; the third ends well on both.
write("w.lua", [[
local accel = require "accel"
local a = accel.Accelerator()
local n = tonumber(os.getenv "TORCHELASTIC_RESTART_COUNT")
local x = accel.ones(4) * (a.process_index + 1)
x = a:reduce(x, "sum")
assert(x[1]:item() == 10)
if n == 0 and a.process_index == 3 then os.exit(3) end
if n == 1 and a.process_index == 0 then os.exit(4) end
a:wait_for_everyone()
print(("attempt %d: rank %d of %d is done as %s"):format(n, a.process_index, a.num_processes, os.getenv "ROLE_NAME"))
]])
local flags = "--num_processes 4 --cpu --max_restarts 2 --rdzv_conf join_timeout=60 --role trainer"
local one, two = start(0, "0.out", flags, "w.lua"), start(1, "1.out", flags, "w.lua")
local status, text = ends(one, "0.out")
assert(status == 0, text)
has(text, "attempt 2: rank 0 of 4 is done as trainer")
has(text, "attempt 2: rank 1 of 4 is done as trainer")
has(text, "restart 2 of 2")
status, text = ends(two, "1.out")
assert(status == 0, text)
has(text, "attempt 2: rank 3 of 4 is done as trainer")
has(text, "exited with status 3")

-- A machine dies in the first attempt and is started anew: it joins the second.
port = port + 1
write("back.lua", [[
local accel = require "accel"
local a = accel.Accelerator()
a:wait_for_everyone()
local first = io.open "died" == nil
if first and a.process_index == 1 then
  io.open("died", "w"):close()
  os.execute("kill -9 " .. (assert(io.open "/proc/self/stat"):read "a"):match "^%d+ %b() %a (%d+)") -- its launcher, and it with that
  os.execute "sleep 300" -- until that comes
end
a:wait_for_everyone()
print(("rank %d is done"):format(a.process_index))
]])
flags = "--num_processes 2 --cpu --max_restarts 1 --rdzv_conf join_timeout=60,read_timeout=5"
one, two = start(0, "0.out", flags, "back.lua"), start(1, "1.out", flags, "back.lua")
status, text = ends(two, "1.out")
assert(status == 137, text)
two = start(1, "1.out", flags, "back.lua")
status, text = ends(one, "0.out")
assert(status == 0, text)
has(text, "warning: without effect here: rdzv_conf read_timeout")
has(text, "rank 0 is done")
status, text = ends(two, "1.out")
assert(status == 0, text)
has(text, "rank 1 is done")

-- One that never comes is waited for as long as was said.
port = port + 1
for machine, part in ipairs { [0] = "rank 0 waited 0.", "rank 1 cannot reach rank 0" } do
  one = start(machine, "w.out", "--num_processes 2 --cpu --rdzv_conf timeout=0.5", "w.lua")
  local began = accel.clock()
  status, text = ends(one, "w.out")
  assert(status == 1 and accel.clock() - began < 60, text)
  has(text, part)
end
one = start(0, "w.out", "--num_processes 2 --cpu --rdzv_conf timeout=9,join_timeout=0.4", "w.lua")
status, text = ends(one, "w.out")
assert(status == 1, text)
has(text, "rank 0 waited 0.4")

case "launches over machines"

-- What is wrong in it, or means nothing.
local function says(conf, part, want)
  local p = accel.process.spawn("/bin/sh", { "sh", "-c", ("cd '%s' && exec '%s' launch --cpu --rdzv_conf '%s' s.lua >s.out 2>&1"):format(root, R,
    conf) }, {})
  status, text = ends(p, "s.out")
  assert(status == want, text)
  has(text, part)
end
write("s.lua", "")
says("join_timout=3", "rdzv_conf: there is no 'join_timout'; did you mean 'join_timeout'?", 2)
says("join_timeout=soon", "rdzv_conf: join_timeout must be a number of seconds, got 'soon'", 2)
says("60", "rdzv_conf: '60' is not key=value", 2)
says("join_timeout=3", "warning: without effect here: rdzv_conf (of several machines)", 0)

-- ---- mpirun ----

-- The command lines of each maker's mpirun, by one that tells them.
assert(accel.makedirs(root .. "/bin"))
local function mpirun(version)
  write("bin/mpirun", ("#!/bin/sh\nif [ \"$1\" = --version ]; then echo '%s'; exit; fi\nprintf '<%%s>' \"$@\"\necho\nexit 5\n"):format(version))
  assert(os.execute(("chmod +x '%s/bin/mpirun'"):format(root)))
end
write("mpi.yaml", "distributed_type: MULTI_CPU\nnum_machines: 2\nnum_processes: 6\nuse_cpu: true\nmpirun_config:\n  mpirun_hostfile: my hosts\n")
local function line()
  local p = accel.process.spawn("/bin/sh", { "sh", "-c", ("cd '%s' && exec env -i PATH='%s/bin' HOME='%s' '%s' launch "
    .. "--config_file mpi.yaml s.lua 'a b' >m.out 2>&1"):format(root, root, root, R) }, {})
  status, text = ends(p, "m.out")
  return text
end
for version, want in next, {
  ["mpirun (Open MPI) 4.1.4"] = "<--hostfile><my hosts><--npernode><3><-n><6><--bind-to><socket>",
  ["Intel(R) MPI Library for Linux"] = "<-f><my hosts><-ppn><3><-n><6>",
  ["HYDRA build details"] = "<-f><my hosts><-ppn><3><-n><6>",
  ["mvapich2 2.3"] = "<-f><my hosts><-ppn><3><-n><6>",
} do
  mpirun(version)
  assert(line() == ("%s<%s><--cpu><s.lua><a b>\n"):format(want, R) and status == 5, text)
end
mpirun "something else"
has(line(), "mpirun_hostfile: mpirun is not installed (Debian: openmpi-bin)")
assert(status == 2)
print "ok"
