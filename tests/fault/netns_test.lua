-- Two machines, played by two network namespaces that a veth pair joins: the tcp backend by accel-run's own options, the mpi
-- backend by mpirun. Skips where the machine allows no namespaces (or is not ours to change).
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function run(command)
  local p = assert(io.popen("{ " .. command .. "; } 2>&1 </dev/null"))
  local text = p:read "a"
  return p:close() == true, text
end
local function skip(why)
  print("skipped: " .. why)
  os.exit(77, true)
end
if not run "command -v ip" then skip "there is no ip command (Debian: iproute2)" end
local tag = ("ac%d"):format(os.time() % 100000)
local a, b = tag .. "a", tag .. "b"
local function drop() run(("ip netns del %s; ip netns del %s"):format(a, b)) end
local ok, text = run(table.concat({
  "ip netns add " .. a, "ip netns add " .. b, ("ip link add %s netns %s type veth peer name %s netns %s"):format(a, a, b, b),
  ("ip -n %s addr add 10.213.7.1/24 dev %s"):format(a, a), ("ip -n %s addr add 10.213.7.2/24 dev %s"):format(b, b),
  ("ip -n %s link set %s up"):format(a, a), ("ip -n %s link set %s up"):format(b, b), ("ip -n %s link set lo up"):format(a),
  ("ip -n %s link set lo up"):format(b),
}, " && "))
if not ok then
  drop()
  skip("this machine allows no network namespaces: " .. text:match "[^\n]*")
end

local case = ("'%s/tests/fault/netns_case.lua'"):format(src)
local function machine(ns, rank)
  return (("ip netns exec %s timeout 60 '%s' --num_processes 4 --num_machines 2 --machine_rank %d --main_process_ip 10.213.7.1 "
    .. "--main_process_port 29511 %s tcp 4"):format(ns, exe, rank, case))
end
local checked, err = pcall(function()
  local good, said = run(machine(b, 1) .. " & " .. machine(a, 0) .. "; r=$?; wait $! && exit $r")
  assert(good and said:find "netns ok tcp", said)

  if not run "command -v mpirun && command -v mpicc" then
    print "mpi left out: there is no mpirun"
    return
  end
  -- mpirun reaches its "hosts" through an agent that enters their namespace; Open MPI leaks on its own
  local agent = tmp .. "/agent.sh"
  local f = assert(io.open(agent, "w"))
  f:write(("#!/bin/sh\ncase $1 in 10.213.7.1) n=%s ;; *) n=%s ;; esac\nshift\nexec ip netns exec $n sh -c \"$*\"\n"):format(a, b))
  f:close()
  os.execute("chmod +x '" .. agent .. "'")
  good, said = run(("ASAN_OPTIONS=detect_leaks=0 ip netns exec %s timeout 60 mpirun --allow-run-as-root -np 4 --host 10.213.7.1:2,10.213.7.2:2 "
    .. "--mca plm_rsh_agent '%s' "
    .. "--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.213.7.0/24 --mca oob_tcp_if_include 10.213.7.0/24 '%s' %s mpi 4"):format(
    a, agent, exe, case))
  assert(good and said:find "netns ok mpi", said)
end)
drop()
if not checked then error(err, 0) end
