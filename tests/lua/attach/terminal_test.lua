-- ps, top, stacks and attach as people have them: in terminals of 80 and 40 columns, in one that changes its size, in a pipe; Ctrl-C, Ctrl-Z and fg,
-- a terminal that is gone, a client that no longer reads.
-- tier: sampled
-- One width in a sample, and no client that reads nothing.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local t = dofile(here .. "support.lua")
local pty = dofile(here .. "../../support/pty.lua")
local sample = dofile(here .. "../../support/sample.lua")
local WIDTHS = sample.full and { 40, 80 } or { sample.seed % 2 == 0 and 40 or 80 }
local exe = ("'%s'"):format(t.exe)

local function play(what, script, words, columns)
  local env = { PTY_COLUMNS = tostring(columns or 80) }
  for name, value in next, t.env do env[name] = value end
  pty.play(what, script, words, env)
end

local function widest(text)
  local most = 0
  for line in text:gmatch "[^\n]*" do most = math.max(most, #line) end
  return most
end

local function sleep(seconds) accel.process.spawn("/bin/sleep", { "sleep", tostring(seconds) }, {}):wait(seconds + 10) end

local SPIN, MEET, AFTER = t.line_of "local function spin()", t.line_of "if rank == 2 then dist.barrier()", t.line_of "opt:zero_grad()"

-- ---- three ranks: one loops, one is stopped, one waits in a collective that the others never enter ----
do
  local job = t.start(("--num-processes 3 '%s' 1000000 stuck"):format(t.case))
  local row = t.wait("ranks that are stuck", function()
    local row = t.ps()[1]
    return row and row.step == 20 and row
  end)
  local pid = tonumber(t.run("stacks"):match "rank 1 %(pid (%d+)%)")
  os.execute(("kill -STOP %d"):format(pid))
  t.wait("its stop", function() return t.run("stacks"):find "is stopped; kill" end)

  -- all three lines within a second; of a few tries the best, since a program that has to wait for a CPU is no slower for it
  local best, text = math.huge, nil
  for _ = 1, 3 do
    local began = accel.clock()
    text = t.run "stacks"
    best = math.min(best, accel.clock() - began)
  end
  assert(text:find("rank 0 [^\n]*\n  %S+job.lua:" .. SPIN .. ": in"), text)
  assert(text:find("rank 1 [^\n]*is stopped; kill %-CONT " .. pid .. " lets it continue\n  last seen at %S+job.lua:%d+"), text)
  assert(text:find("rank 2 [^\n]*waits in barrier at %S+job.lua:" .. MEET .. " for ranks 0, 1 for [^\n]*\n  [^\n]*\n  %S+job.lua:" .. MEET .. ": in"),
    text)
  assert(best < 1, ("stacks took %.2f s"):format(best))
  print(("stacks of three ranks: %.2f s"):format(best))

  for _, columns in ipairs(WIDTHS) do
    play(("ps in %d columns"):format(columns), ("expect JOB\nexpect %s\nexpect job.lu\nend 0\nwidest %d\n"):format(row.id, columns), exe .. " ps",
      columns)
    play(("stacks in %d columns"):format(columns), ("expect rank 0\nexpect job.lua:%d\nexpect rank 2\nexpect job.lua:%d\nend 0\n"):format(SPIN, MEET),
      exe .. " stacks", columns)
    play(("top in %d columns"):format(columns), ("expect RANK\nexpect 0 \nexpect 1 \nexpect 2 \nwidest %d\nexpect RANK\nsend \\x03\nend 0\n"):format(
      columns), exe .. " top --interval 0.2", columns)
  end
  play("top in a terminal that is resized", [[
expect AT
widest 80
resize 24 40
expect RANK
expect RANK
expect RANK
widest 40
resize 6 100
expect more ranks
expect MEM
send \x03
end 0
]], exe .. " top --interval 0.2")
  play("top is stopped and goes on", ([[
expect ready>
line %s top --interval 0.2
expect RANK
send \x1a
expect top
expect ready>
line fg
expect RANK
expect RANK
send \x03
expect ready>
line exit
end 0
]]):format(exe), "env PS1='ready> ' sh -i")

  -- into a pipe: one table, as wide as $COLUMNS
  for _, columns in ipairs { 40, 60, 120 } do
    local status, out = pty.pipe("", exe .. " top", { COLUMNS = tostring(columns), XDG_RUNTIME_DIR = t.env.XDG_RUNTIME_DIR })
    assert(status == 0 and select(2, out:gsub("RANK", "")) == 1 and not out:find "\27", out)
    assert(widest(out) <= columns and out:find(columns > 60 and "TOKENS/S" or "STEP", 1, true), out)
  end

  play("attach to ranks that do not come", ([[
expect :detach leaves
expect [rank 0] runs, last seen at
expect [rank 1] is stopped (SIGSTOP)
expect [rank 2] waits in barrier
expect they come to the prompt after the step
send \x03
expect [running]>
line loss
expect no rank is at the prompt
line :stacks
expect rank 0
expect job.lua:%d
expect rank 1
expect is stopped
expect rank 2
expect job.lua:%d
line :detach
end 0
]]):format(SPIN, MEET), exe .. " attach")
  os.execute(("kill -CONT %d"):format(pid))
  t.kill(job)
end

-- ---- three ranks that train ----
do
  local job = t.start(("--num-processes 3 --timeout 60 '%s' 1000000 slow"):format(t.case))
  t.running(3, 3)
  local function steps_on(what)
    local before = t.ps()[1].step
    t.wait(what, function() return t.ps()[1].step > before + 10 end, 30)
  end
  for _, columns in ipairs(WIDTHS) do
    play(("a prompt in %d columns"):format(columns), ([[
timeout 30
expect [all] at
expect [0-2]
line :break job.lua:%d if rank == 1 and i %% 20 == 0
expect breakpoint 1 at
line :c
expect [rank 1] at
expect (breakpoint 1)
expect [1;
line @1 rank, i %% 20
expect 1  0
line :delete 1
line :c
expect [running]>
send \x03
expect [all] at
line scale = 0.5
line :step 3
expect after step
line scale
expect [all] 0.5
line loss:isfinite():item()
expect [all] true
line scale = 1.0
line :detach
end 0
]]):format(AFTER), exe .. " attach", columns)
    steps_on "steps after :detach"
  end
  play("a NaN that a watch finds", [[
timeout 30
expect [all] at
line :watch loss
expect watch 1
line @1 scale = 0/0
line :c
expect [running]>
expect loss: tensor
expect nan
line loss:isfinite():item()
expect [rank 1] false
line :detach
end 0
]], exe .. " attach")
  steps_on "steps after the NaN"
  play("Ctrl-C, another size, Ctrl-Z and fg at a prompt", ([[
expect ready>
line %s attach
expect [all] at
expect [0-2]
line :c
expect [running]>
send \x03
expect [all] at
expect [0-2]
line while true do end
expect stdin:
send \x03
expect interrupted
expect [0-2]
resize 24 40
line rank
expect [rank 0] 0
send \x1a
expect ready>
line fg
expect [0-2]
line :locals
expect loss
line :detach
expect ready>
line exit
end 0
]]):format(exe), "env PS1='ready> ' sh -i")
  steps_on "steps after Ctrl-Z and fg"
  play("a terminal that is gone at the prompt", "expect [all] at\nexpect [0-2]\nhangup\nend 129\n", exe .. " attach")
  steps_on "steps after SIGHUP"
  play("a terminal that is gone while ranks run", "expect [all] at\nexpect [0-2]\nline :c\nexpect [running]>\nhangup\nend 129\n", exe .. " attach")
  steps_on "steps after SIGHUP"

  -- the connection is dead: nothing that is written to the terminal is taken, then not by the client's socket either
  if sample.full then
    local feed = "printf '%s\\n' 'for i = 1, 3e5 do print((\"x\"):rep(100)) end'; sleep 60"
    local p <close> = accel.process.spawn("/bin/sh", { "sh", "-c", ("(%s) | exec %s attach >'%s/dead.out' 2>&1"):format(feed, exe, t.tmp) }, t.env)
    t.wait("output", function() return #t.read(t.tmp .. "/dead.out") > 1000 end)
    p:signal(19)
    local before = t.ps()[1].step
    t.wait("steps while the client reads nothing", function() return t.ps()[1].step > before + 10 end, 40)
    p:signal(9)
    p:signal(18)
    steps_on "steps after the client's end"
  end
  local text = t.run("attach", "rank\n")
  assert(text:find("[rank 0] 0", 1, true), text)
  assert(not t.read(job.err):find "error", t.read(job.err))
  t.kill(job)
end
