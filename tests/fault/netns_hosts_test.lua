-- A launch over a hostfile on two machines, played by two network namespaces that a veth pair joins: accel-run launch in one starts the
-- ranks of both, through an ssh that enters the namespace of its host; a restart and a machine that cannot be reached. Skips where the
-- machine allows no namespaces (or is not ours to change).
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function run(command)
  local p = assert(io.popen("{ " .. command .. "; } 2>&1 </dev/null"))
  local text = p:read "a"
  local _, _, status = p:close()
  return status == 0, text, status
end
local function skip(why)
  print("skipped: " .. why)
  os.exit(77, true)
end
local function write(name, text)
  local f <close> = assert(io.open(tmp .. "/" .. name, "w"))
  f:write(text)
end
if not run "command -v ip" then skip "there is no ip command (Debian: iproute2)" end
local tag = ("ah%d"):format(os.time() % 100000)
local a, b = tag .. "a", tag .. "b"
local function drop() run(("ip netns del %s; ip netns del %s"):format(a, b)) end
local made, text = run(table.concat({
  "ip netns add " .. a, "ip netns add " .. b, ("ip link add %s netns %s type veth peer name %s netns %s"):format(a, a, b, b),
  ("ip -n %s addr add 10.213.8.1/24 dev %s"):format(a, a), ("ip -n %s addr add 10.213.8.2/24 dev %s"):format(b, b),
  ("ip -n %s link set %s up"):format(a, a), ("ip -n %s link set %s up"):format(b, b), ("ip -n %s link set lo up"):format(a),
  ("ip -n %s link set lo up"):format(b),
}, " && "))
if not made then
  drop()
  skip("this machine allows no network namespaces: " .. text:match "[^\n]*")
end

-- ssh -o BatchMode=yes HOST COMMAND, as accel-run launch calls it; PATH has it and what it needs alone.
run(("rm -rf '%s/bin'; mkdir -p '%s/bin'; cd '%s/bin' && ln -s $(command -v ip) $(command -v sh) $(command -v env) ."):format(tmp, tmp, tmp))
write("bin/ssh", ("#!/bin/sh\n[ \"$1 $2\" = '-o BatchMode=yes' ] || exit 3\ncase $3 in 10.213.8.1) n=%s ;; 10.213.8.2) n=%s ;; "
  .. "*) echo \"no route to $3\" >&2; exit 255 ;; esac\nshift 3\nexec ip netns exec $n sh -c \"$*\"\n"):format(a, b))
run("chmod +x '" .. tmp .. "/bin/ssh'")
write("hosts", "# two machines\n10.213.8.1 slots=2\n10.213.8.2 slots=2\n")
local function configuration(more)
  write("ds.yaml", "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 4\nmain_process_port: 29517\nmixed_precision: 'no'\n"
    .. "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 1\n  deepspeed_hostfile: hosts\n" .. (more or ""))
end
local function launch(words)
  return run(("cd '%s' && PATH='%s/bin' ACCEL_DEVICE=cpu OMP_NUM_THREADS=1 timeout 100 ip netns exec %s '%s' launch "
    .. "--config_file ds.yaml %s"):format(tmp, tmp, a, exe, words))
end

local checked, err = pcall(function()
  configuration()
  local timeout = assert(io.popen "command -v timeout"):read "l"
  run(("ln -sf '%s' '%s/bin/'"):format(timeout, tmp))
  local good, said = launch(("'%s/tests/fault/netns_case.lua' tcp 4"):format(src))
  assert(good and said:find("netns ok tcp", 1, true), said)

  -- the environment of the configuration reaches the ranks of both; all start anew after a failure on the second
  write("w.lua", [[
    local accel = require "accel"
    local a = accel.Accelerator()
    local n = tonumber(os.getenv "TORCHELASTIC_RESTART_COUNT")
    assert(os.getenv "ACCELERATE_DEEPSPEED_ZERO_STAGE" == "2" and os.getenv "MASTER_ADDR" == "10.213.8.1")
    if n == 0 and a.process_index == 3 then os.exit(3) end
    a:wait_for_everyone()
    print(("attempt %d: rank %d of %d"):format(n, a.process_index, a.num_processes))
  ]])
  good, said = launch "--max_restarts 1 --rdzv_conf join_timeout=60 w.lua"
  assert(good, said)
  for rank = 0, 3 do assert(said:find(("attempt 1: rank %d of 4"):format(rank), 1, true), said) end

  -- a machine that cannot be reached ends the others
  write("hosts", "10.213.8.1 slots=2\n10.213.8.9 slots=2\n")
  local status
  good, said, status = launch "w.lua"
  assert(not good and status == 255 and said:find("machine 1 (10.213.8.9) ended with status 255", 1, true), said)
end)
drop()
if not checked then error(err, 0) end
print "netns hosts ok"
