-- A machine that falls silent: its link goes down, nothing is closed. The rank that waits for it is told within
-- seconds, though TCP itself would try for a quarter of an hour. Two network namespaces play the machines; skips
-- where they are not allowed.
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"

if os.getenv "RANK" then
  local accel = require "accel"
  local dist = accel.dist
  local x = accel.zeros(30000)
  dist.barrier()
  if dist.get_rank() == 0 then os.execute "echo ready" end
  local ok, e
  repeat ok, e = pcall(dist.all_reduce, x) until not ok
  local f = assert(io.open "/proc/uptime")
  print(("told at %.2f: %s"):format(f:read "n", e))
  f:close()
  os.exit(false, true)
end

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
local tag = ("as%d"):format(os.time() % 100000)
local a, b = tag .. "a", tag .. "b"
local function drop() run(("ip netns del %s; ip netns del %s"):format(a, b)) end
local ok, text = run(table.concat({
  "ip netns add " .. a, "ip netns add " .. b,
  ("ip link add %s netns %s type veth peer name %s netns %s"):format(a, a, b, b),
  ("ip -n %s addr add 10.214.7.1/24 dev %s"):format(a, a),
  ("ip -n %s addr add 10.214.7.2/24 dev %s"):format(b, b),
  ("ip -n %s link set %s up"):format(a, a), ("ip -n %s link set %s up"):format(b, b),
}, " && "))
if not ok then
  drop()
  skip("this machine allows no network namespaces: " .. text:match "[^\n]*")
end

local function machine(ns, rank)
  return (("ip netns exec %s timeout 100 '%s' --num_processes 2 --num_machines 2 --machine_rank %d "
    .. "--main_process_ip 10.214.7.1 --main_process_port 29512 '%s/tests/fault/silence_test.lua'"):format(
    ns, exe, rank, src))
end
local checked, err = pcall(function()
  local p = assert(io.popen(machine(b, 1) .. " 2>&1 & " .. machine(a, 0) .. " 2>&1; wait"))
  local said = {}
  for line in p:lines() do
    said[#said + 1] = line
    if line:find "ready" then break end
  end
  run "sleep 0.3"
  local f = assert(io.open "/proc/uptime")
  local began = f:read "n"
  f:close()
  assert(run(("ip -n %s link set %s down"):format(a, a)))
  said[#said + 1] = p:read "a"
  p:close()
  local all, n = table.concat(said, "\n"), 0
  for at, what in all:gmatch "told at ([%d.]+): ([^\n]*)" do
    n = n + 1
    assert(tonumber(at) - began < 30, all) -- TCP itself would try for a quarter of an hour
    assert(what:find "rank [01] %(%S+:%d+%) died: its machine does not answer any more", all)
    assert(what:find "silence_test.lua:%d+", all)
  end
  assert(n == 2, all)
end)
drop()
if not checked then error(err, 0) end
