-- A job on two machines, which are two launchers on this one with run folders of their own: ranks of the other one are reached by the command that
-- would be ssh. Then one that mpirun starts, whose ranks share no status pages. A prompt on all ranks; a wait that is interrupted, after which they
-- join anew.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local t = dofile(here .. "support.lua")
local pty = dofile(here .. "../../support/pty.lua")
local exe = ("'%s'"):format(t.exe)

local function has(text, part)
  assert(text:find(part, 1, true), ("no '%s' in\n%s"):format(part, text))
end

-- ---- the command that would be ssh: another run folder, the same user ----
local there = t.tmp .. "/there"
os.execute(("mkdir -p -m 700 '%s'"):format(there))
local ssh = t.tmp .. "/ssh.sh"
do
  local file <close> = assert(io.open(ssh, "w"))
  file:write "#!/bin/sh\n[ \"$1\" = nowhere ] && { echo 'no route to host' >&2; exit 255; }\nshift\n"
  file:write(("XDG_RUNTIME_DIR='%s' exec sh -c \"$*\"\n"):format(there))
end
os.execute(("chmod 700 '%s'"):format(ssh))
t.env.ACCEL_ATTACH_SSH = ssh

local function prompts(what, ranks)
  local all = {}
  for rank = 0, ranks - 1 do all[#all + 1] = ("expect [rank %d] %d\n"):format(rank, rank) end
  pty.play(what, ([[
timeout 40
expect [all] at
line rank
%sline scale = 0.5
line :step 2
expect after step
line scale
expect [all] 0.5
line @1 require("accel").dist.barrier()
expect the answer will be shown
send \x03
expect interrupted
expect work again
line require("accel").dist.barrier()
line :step 3
expect after step
line :ranks
expect rank %d
expect at the prompt
line :detach
end 0
]]):format(table.concat(all), ranks - 1), exe .. " attach", t.env)
end

local function steps_on(job)
  local before = t.ps()[1].step
  t.wait("further steps", function()
    local row = t.ps()[1]
    assert(row, t.read(job.err))
    return row.step > before + 5
  end)
end

-- ---- over tcp ----
do
  local port = 20000 + accel.util.Random((assert(io.open "/proc/self/stat"):read "n")):below(9000)
  local words = ("--num_processes 4 --num_machines 2 --machine_rank %%d --main_process_ip 127.0.0.1 --main_process_port %d --timeout 60 "
    .. "'%s' 1000000 slow"):format(port, t.case)
  local mine = t.start(words:format(0))
  local run = t.env.XDG_RUNTIME_DIR
  t.env.XDG_RUNTIME_DIR = there
  local other = t.start(words:format(1))
  t.env.XDG_RUNTIME_DIR = run
  t.wait("the job", function()
    local row = t.run("ps"):match "2 of 4%s+%S+%s+(%d+)"
    return row and tonumber(row) > 3
  end)
  local out, err = t.run "stacks"
  for rank = 0, 3 do assert(("\n" .. out):find(("\nrank %d %%([^\n]*\n  %%S+job.lua:%%d+"):format(rank)), out) end
  assert(err == "" and out:find "rank 3 %(%S+, pid %d+%)", out .. err)
  out = t.run "top"
  for rank = 0, 3 do assert(out:find("\n +" .. rank .. " +%d+ +%S+s "), out) end
  out, err = t.run "stacks --hosts nowhere"
  has(err, "not reached: nowhere: the command has ended")
  assert(out:find "rank 1 " and not out:find "rank 2 ", out)
  err = select(2, t.run "stacks --hosts=-oProxyCommand=x") -- an option of ssh
  has(err, 'not reached: "-oProxyCommand=x" is not a host name')
  t.env.ACCEL_PTY = nil
  prompts("a prompt on two machines", 4)
  local before = tonumber(t.run("ps"):match "2 of 4%s+%S+%s+(%d+)")
  t.wait("further steps", function() return tonumber(t.run("ps"):match "2 of 4%s+%S+%s+(%d+)") > before + 5 end)
  -- a client that is killed ends its tunnel, and leaves nothing behind
  local command = ("exec 2>/dev/null; sleep 60 | exec %s attach >'%s/killed.out'"):format(exe, t.tmp)
  local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", command }, t.env)
  t.wait("its prompt", function() return t.read(t.tmp .. "/killed.out"):find "after step" end)
  os.execute(("pkill -9 -P %d"):format(p:pid()))
  p:signal(9)
  before = tonumber(t.run("ps"):match "2 of 4%s+%S+%s+(%d+)")
  t.wait("steps after it", function() return tonumber(t.run("ps"):match "2 of 4%s+%S+%s+(%d+)") > before + 5 end)
  t.wait("the end of its tunnel", function()
    t.run "ps" -- tidies up
    for _, name in ipairs(accel.listdir(run .. "/accel")) do
      if name:find "^tunnel" then return false end
    end
    return true
  end, 20)
  pcall(mine.process.signal, mine.process, 9)
  pcall(other.process.signal, other.process, 9)
  t.wait("its end", function() return #accel.listdir(there .. "/accel") == 0 or t.run "ps" == "" end)
  mine.process:close()
  other.process:close()
end

-- ---- under mpirun ----
do
  if not os.execute "command -v mpirun >/dev/null 2>&1" then
    print "skipped: no mpirun"
    return
  end
  local base = t.tmp .. "/mpi"
  local p = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe "
    .. "-n 3 %s '%s' 1000000 slow >'%s.out' 2>'%s.err' </dev/null"):format(exe, t.case, base, base) }, t.env)
  local how
  local row = t.wait("the job under mpirun", function()
    how = how or p:wait(0.01)
    local row = t.ps()[1]
    return how or row and row.ranks == 3 and row.step > 3 and row
  end)
  if how then
    print("skipped: mpirun does not run here: " .. t.read(base .. ".err"):sub(1, 200))
    return
  end
  local out = t.run "stacks"
  for rank = 0, 2 do has(out, ("rank %d (pid "):format(rank)) end
  out = t.run "top"
  for rank = 0, 2 do assert(out:find("\n +" .. rank .. " +%d+ +%S+s "), out) end
  prompts("a prompt under mpirun", 3)
  steps_on { err = base .. ".err" }
  assert(row.ranks == 3)
  p:signal(15)
  p:wait(20)
  p:close()
end
