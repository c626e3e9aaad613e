-- Cables of an elastic job: three machines, played by network namespaces on a bridge, of which one or all lose their link while the job
-- runs. The majority continues, the rest waits and ends its ranks when it hears that. Skips where the machine allows no namespaces.
-- tier: slow
local src = os.getenv "ACCEL_TEST_SRC" or "."
local exe = os.getenv "ACCEL_TEST_BUILD"
exe = exe and exe .. "/bin/accel-run" or "build/dev/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local folder = tmp .. "/cables"

local function run(command)
  local p = assert(io.popen("{ " .. command .. "; } 2>&1 </dev/null"))
  local text = p:read "a"
  local _, _, status = p:close()
  return status == 0, text
end
local function skip(why)
  print("skipped: " .. why)
  os.exit(77, true)
end
if not run "command -v ip" then skip "there is no ip command (Debian: iproute2)" end
local tag = ("ac%d"):format(os.time() % 100000)
local function drop() run(("for i in 1 2 3 b; do ip netns del %s$i; done"):format(tag)) end
local made, text = run(([[T=%s
set -e
ip netns add ${T}b
ip -n ${T}b link add br0 type bridge
ip -n ${T}b link set br0 up
for i in 1 2 3; do
  ip netns add $T$i
  ip link add v$i netns $T$i type veth peer name v$i netns ${T}b
  ip -n ${T}b link set v$i master br0 up
  ip -n $T$i addr add 10.213.9.$i/24 dev v$i
  ip -n $T$i link set v$i up
  ip -n $T$i link set lo up
done]]):format(tag))
if not made then
  drop()
  skip("this machine allows no network namespaces: " .. text:match "[^\n]*")
end

local UPDATES <const>, MICRO <const>, LIMIT <const> = 600, 8, 5
local state = 7
for u = 1, UPDATES do
  local sum = 0
  for i = 0, MICRO - 1 do sum = sum + u * 1000 + i end
  state = (state * 1000003 + sum) & 0xffffffffffff
end
local function read(path)
  local f <close> = io.open(path)
  return f and f:read "a"
end

--- A job of three machines with one rank each. act: shell commands once it runs. Returns { text =, status =, hash =, pause = } of each.
local function job(act)
  run(([[T=%s; rm -rf '%s'; mkdir -p '%s'; cd '%s'; export ACCEL_JOB_SECRET=0123456789abcdef0123456789abcdef
for i in 1 2 3; do
  ip netns exec $T$i timeout -s KILL 100 '%s' --num-threads 1 --rendezvous 10.213.9.1,10.213.9.2 --num-machines 2:3 --nproc-per-node 1 \
    '%s/tests/fault/elastic_kill_case.lua' '%s' %d %d >log$i 2>&1 </dev/null &
  eval J$i=$!
done
for i in $(seq 300); do [ -e running ] && break; sleep 0.1; done
cut() { ip -n ${T}b link set v$1 down; }
mend() { ip -n ${T}b link set v$1 up; }
%s
for i in 1 2 3; do eval wait \$J$i; echo $? >status$i; done]]):format(tag, folder, folder, folder, exe, src, folder, UPDATES, MICRO, act))
  local out, all = {}, {}
  for i = 1, 3 do
    local hash, pause = (read(("%s/%d"):format(folder, i - 1)) or ""):match "^(%d+) %d+ %d+ %d+ (%S+)"
    out[i] = { text = read(("%s/log%d"):format(folder, i)), status = tonumber(read(("%s/status%d"):format(folder, i))), hash = tonumber(hash),
      pause = tonumber(pause) }
    all[i] = ("-- machine %d: status %s, hash %s, pause %s\n%s"):format(i, out[i].status, hash, pause, out[i].text)
  end
  return out, table.concat(all)
end

local checked, err = pcall(function()
  for _, cut in ipairs { 1, 3 } do -- the first machine holds rank 0 and a seed address
    local out, all = job(("sleep 0.2; cut %d; sleep 3; mend %d"):format(cut, cut))
    for i = 1, 3 do
      local ok = out[i].status == (i == cut and 1 or 0) and out[i].hash == (i ~= cut and state or nil)
      assert(ok and (i == cut or out[i].pause < LIMIT), all)
    end
    assert(all:find "has been silent for 1.5 s; generation 2: 2 ranks on 2 machines continue at update %d+ after 1%.%d+ s", all)
    assert(out[cut].text:find "paused at update" and out[cut].text:find "was silent for too long; generation 2 continues without it", all)
  end
  -- nobody hears anybody: all wait, and continue with the same members
  local out, all = job "sleep 0.2; for i in 1 2 3; do cut $i; done; sleep 4; for i in 1 2 3; do mend $i; done"
  for i = 1, 3 do assert(out[i].status == 0 and out[i].hash == state, all) end
  assert(all:find "all machines are heard again; generation 2: 3 ranks on 3 machines continue", all)
end)
drop()
if not checked then error(err, 0) end
print "2 cables cut: the majority did each update once; no network for 4 s: the same members continued"
