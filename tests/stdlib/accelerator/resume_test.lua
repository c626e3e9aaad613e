-- accel-run --resume: what it loads and when, what it says; SIGTERM and SIGUSR1 to the launcher or to one rank, which save and end
-- with status 75; restarts that go on by themselves. On 1 and 3 ranks.
--   accel-run tests/stdlib/accelerator/resume_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local program, case = accel.process.program(), ranks.tests .. "stdlib/accelerator/resume_case.lua"
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/resume"

local function read(path)
  local f <close> = io.open(path, "rb")
  return f and f:read "a" or ""
end

--- Runs the case; signal(pid of accel-run, pids of ranks) is called once it is under way. Returns how it ended, its status, and what it
--- wrote.
local function run(n, options, args, signal)
  os.execute(("rm -f '%s'.pid* '%s.out'"):format(tmp, tmp))
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec '%s' --num_threads 1 --num_processes %d %s '%s' '%s' %s "
    .. ">'%s.out' 2>'%s.err' </dev/null"):format(program, n, options, case, tmp, args, tmp, tmp) }, {})
  if signal then
    local deadline = accel.clock() + 60
    while not read(tmp .. ".out"):find "runs" do
      assert(not p:wait(0.01) and accel.clock() < deadline, read(tmp .. ".err"))
    end
    signal(p, function(r) return read(("%s.pid%d"):format(tmp, r)) end)
  end
  local how, status = p:wait(120)
  return how, status, read(tmp .. ".out"), read(tmp .. ".err")
end

local function has(text, ...)
  for _, part in ipairs { ... } do assert(text:find(part, 1, true), ("'%s' is not in: %s"):format(part, text)) end
end
local function clean() os.execute(("rm -rf '%s'"):format(tmp)) end

for _, n in ipairs { 1, 3 } do
  clean()
  local how, status, out, err = run(n, "--resume auto", "4")
  assert(how == "exit" and status == 0, err)
  has(err, "accel: --resume auto: ", "starting from scratch")
  has(out, "from\t0\t0\tnothing")
  local whole = out:match "end[^\n]*"

  -- signals: every rank stops at the same batch, the rest has the same bits
  for k, signal in ipairs { 15, 10, 15 } do
    clean()
    how, status, out, err = run(n, "--max_restarts 2", "4 pause=0.004", function(p, pid)
      if k == 3 then os.execute("kill -TERM " .. pid(n - 1)) else p:signal(signal) end
    end)
    assert(how == "exit" and status == 75, ("%s %s\n%s%s"):format(how, status, out, err))
    has(err, signal == 15 and "accel: SIGTERM: stopped at step " or "accel: SIGUSR1: stopped at step ", "--resume auto")
    assert(not err:find "restart %d of" and not err:find "exited with status", err)
    local step = tonumber(err:match "stopped at step (%d+)")
    how, status, out, err = run(n, "--resume auto", "4 twice")
    assert(how == "exit" and status == 0, err)
    has(err, ("accel: resumed from %s/checkpoints/checkpoint_0: step %d"):format(tmp, step))
    has(out, ("from\t%d\t"):format(step), whole)
  end

  -- a failure behind a save: the restart goes on from it by itself
  clean()
  how, status, out, err = run(n, "--max_restarts 1 --monitor_interval 0", "4 save=9 fail=14")
  assert(how == "exit" and status == 0, err)
  has(err, "as asked", "restart 1 of 1", "accel: resumed from ")
  has(out, "from\t0\t", "from\t9\t", whole)

  -- a folder that is named; the same where it holds checkpoints; one that is none
  for _, folder in ipairs { "/checkpoints/checkpoint_0", "/checkpoints" } do
    how, status, out, err = run(n, ("--resume '%s%s'"):format(tmp, folder), "4")
    assert(how == "exit" and status == 0, err)
    has(out, "from\t9\t", whole)
  end
  how, status, out, err = run(n, ("--resume '%s.nowhere'"):format(tmp), "4")
  assert(how == "exit" and status == 1 and out == "", out)
  has(err, "--resume " .. tmp .. ".nowhere: ")

  -- an object that is missing when the first pass begins
  how, status, out, err = run(n, "--resume auto", "4 late")
  assert(how == "exit" and status == 1, out)
  has(err, "cannot be resumed: the first pass begins", "1 scheduler (accel.optim.StepLR)")

  -- without a folder for checkpoints signals end a run as ever
  for _, signal in ipairs { 15, 10 } do
    how, status = run(n, "", "400 pause=0.004 unarmed", function(p) p:signal(signal) end)
    assert(how == "signal" and status == signal, ("%s %s"):format(how, status))
  end
  -- and the first Ctrl-C does, with one
  clean()
  how, status = run(n, "", "400 pause=0.004", function(p) p:signal(2) end)
  assert(how == "signal" and status == 2, ("%s %s"):format(how, status))
end
