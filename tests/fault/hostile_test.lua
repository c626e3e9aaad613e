-- A job of two machines on the loopback trains while 10,000 hostile connections reach its port: packets of the old protocol, noise, halves
-- of handshakes, connections that say nothing and come again. Its losses are bit for bit those of a quiet run; a thief with another secret
-- learns nothing and gets one line. The connections are made by python3.
-- tier: slow
--   accel-run tests/fault/hostile_test.lua [CONNECTIONS [STEPS]]       prints both times; take 5000 steps on a machine that is idle
local accel = require "accel"

if not accel.dist.is_initialized() and not arg[1] or tonumber(arg[1]) then
  if not os.execute "command -v python3 >/dev/null" or not accel.features().libcrypto then
    print "skipped: this needs python3 and a build with libcrypto"
    os.exit(77)
  end
  local total, steps = tonumber(arg[1]) or 10000, tonumber(arg[2]) or 60
  local tmp = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/hostile-"))
  local port = 20000 + accel.util.Random((assert(io.open "/proc/self/stat"):read "n")):below(9000)
  local self, program = arg[0], accel.process.program()

  local function read(name)
    local file <close> = io.open(tmp .. "/" .. name, "rb")
    return file and file:read "a" or ""
  end
  local function shell(command) return accel.process.spawn("/bin/sh", { "sh", "-c", command }, {}) end
  local function rank(n, secret, more)
    return shell(("ACCEL_JOB_SECRET='%s' exec '%s' --num_threads 1 --num-processes 2 --num-machines 2 --machine-rank %d "
      .. "--main-process-ip 127.0.0.1 --main-process-port %d --timeout 60 '%s' rank %d >'%s/%s' 2>&1 </dev/null"):format(secret, program, n,
      port, self, steps, tmp, more))
  end
  local file <close> = assert(io.open(tmp .. "/attack.py", "w"))
  file:write [[
import random, socket, sys, time
port, total = int(sys.argv[1]), int(sys.argv[2])
random.seed(5)
kept, refused = [], 0
for i in range(total):
    try:
        s = socket.create_connection(("127.0.0.1", port), 2)
        kind = i % 5
        if kind == 0: s.send(b"accelrv1accelcd1" + bytes(544))
        if kind == 1: s.send(random.randbytes(600))
        if kind == 2: s.send(b"accelau1\0\1\0\0" + bytes(40)[:random.randrange(40)])
        if kind == 3: s.send(b"accelau1\0\1\0\0\1\0\0\0\0\0\0\0\2\0\0\0" + bytes(64))
        kept.append(s)
        if len(kept) > 500: kept.pop(random.randrange(500)).close()
    except OSError:
        refused += 1
        time.sleep(0.0005)
print(total, "connections,", refused, "refused by the kernel: nobody listens once the ranks have met")
]]
  file:close()

  local function run(hostile)
    port = port + 1
    local began = accel.clock()
    local zero <close> = rank(0, "ours", "zero")
    local attacker <close> = hostile and shell(("exec python3 '%s/attack.py' %d %d >'%s/attack' 2>&1"):format(tmp, port, total, tmp))
    if hostile then
      while not read "zero":find "closed a connection" and accel.clock() - began < 20 do zero:wait(0.01) end
      local thief <close> = rank(1, "theirs", "thief")
      assert(thief:wait(60) == "exit", "the thief waits")
      local text = read "thief"
      assert(text:find "does not accept the secret" and not text:find "loss", text)
    else
      zero:wait(0.3) -- it listens
    end
    began = accel.clock()
    local one <close> = rank(1, "ours", "one")
    for name, p in accel.pairs { zero = zero, one = one } do
      local how, code = p:wait(120)
      assert(how == "exit" and code == 0, name .. ":\n" .. read(name))
    end
    local took = accel.clock() - began
    if hostile then
      assert(attacker:wait(120) == "exit")
      io.write(read "attack")
      local _, reports = read "zero":gsub("closed a connection", "")
      assert(reports == 1, read "zero")
    end
    local losses = {}
    for loss in (read "zero" .. read "one"):gmatch "loss (%S+)" do losses[#losses + 1] = loss end
    assert(#losses == 2 * steps, read "zero")
    table.sort(losses)
    return table.concat(losses, " "), took
  end
  local quiet, quiet_took = run(false)
  local hostile, hostile_took = run(true)
  assert(quiet == hostile, "the losses differ")
  print(("losses equal bit for bit; quiet %.2f s, beside hostile connections %.2f s"):format(quiet_took, hostile_took))
  return
end

local a = accel.Accelerator()
accel.manual_seed(1)
local model = accel.nn.Sequential(accel.nn.Linear(32, 64), accel.nn.GELU(), accel.nn.Linear(64, 1))
local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
model, optimizer = a:prepare(model, optimizer)
for step = 1, tonumber(arg[2]) do
  accel.manual_seed(100 * step + a.process_index)
  local loss = model(accel.randn(64, 32)):pow(2):mean()
  a:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  print(("rank %d step %d loss %a"):format(a.process_index, step, loss:item()))
end
