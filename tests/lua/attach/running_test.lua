-- What a client sets while ranks run: breakpoints and watches hold from the next step on. And what it does when the job ends; top's key and loss.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local t = dofile(here .. "support.lua")
local pty = dofile(here .. "../../support/pty.lua")
local exe = ("'%s'"):format(t.exe)
local AFTER, STEP = t.line_of "opt:zero_grad()", t.line_of "opt:step()"

local function play(what, script, words)
  local env = { PTY_COLUMNS = "80" }
  for name, value in next, t.env do env[name] = value end
  pty.play(what, script, words, env)
end

-- ---- two ranks run; then one, whose end the client reports by its status ----
for _, ranks in ipairs { 2, 1 } do
  local job = t.start(("--num-processes %d --timeout 60 '%s' 1000000 slow"):format(ranks, t.case))
  t.running(ranks, 3)
  local who, running = ranks == 2 and "[rank 1] " or "", ranks == 2 and "[running]>" or "(running)>"
  play(("breakpoints of %d running ranks"):format(ranks), ([[
timeout 8
expect job.lua:%d, after step
expect job.lua:%d>
line :c
expect RUNNING
line :break job.lua:%d if rank == world_size - 1 and step %% 10 == 3
expect breakpoint 1 at job.lua
expect WHOat
expect (breakpoint 1)
line accel.step_count() %% 10, i %% 10
expect 3  3
line :delete 1
line :c
expect RUNNING
line :break job.lua:%d if nowhere > 1
expect 'nowhere' is not defined here
line :delete 2
line :c
expect RUNNING
line :watch world_size
line :watch i - nowhere
expect watch 4, i - nowhere, fails: 'nowhere' is not defined here
line :delete 3
line :delete 4
line :detach
end 0
]]):format(STEP, STEP, AFTER, AFTER):gsub("RUNNING", running):gsub("WHO", who), exe .. " attach")
  local row = t.ps()[1]
  play("the end of the job", ([[
expect job.lua:%d, after step
line :c
expect RUNNING
line !kill -9 %d
expect the job has ended
end 137
]]):format(STEP, row.pid):gsub("RUNNING", running), exe .. " attach")
  t.kill(job)
end

local function write(name, text)
  local file <close> = assert(io.open(t.tmp .. "/" .. name, "w"))
  file:write(text)
  return ("'%s/%s'"):format(t.tmp, name)
end

-- ---- the status of a script that ends in its own way ----
local script = write("status.lua", "local accel = require 'accel'\naccel.breakpoint()\nos.exit(tonumber(arg[1]))\n")
for _, status in ipairs { 0, 3 } do
  local job = t.start(script .. " " .. status)
  t.wait("the breakpoint", function() return t.read(job.err):find "has stopped at" end)
  play("status " .. status, ("expect status.lua:2>\nline :c\nexpect the job has ended\nend %d\n"):format(status), exe .. " attach")
  assert(select(2, job.process:wait(30)) == status)
end

-- ---- top: nested logs, and q ----
script = write("nested.lua", [[
local accel = require "accel"
local a = accel.Accelerator {}
local net = accel.nn.Linear(2, 1)
local model, opt = a:prepare(net, accel.optim.SGD(net:parameters(), { lr = 0.1 }))
for i = 1, 100000 do
  a:backward(model(accel.ones(2, 2)):sum())
  opt:step()
  opt:zero_grad()
  a:log { eval = { loss = 9.25 }, train = { loss = 1.375, tokens_per_s = 512 } }
  os.execute "sleep 0.01"
end
]])
local job = t.start(script)
t.running(1, 2)
play("top", "expect RANK\nexpect 1.375\nexpect 512\nexpect RANK\nsend q\nend 0\n", exe .. " top --interval 0.2")
t.kill(job)

-- ---- a client that has asked for the first NaN and leaves takes that with it: nobody would let the script continue ----
script = write("later.lua", [[
local accel = require "accel"
local p = accel.nn.Linear(2, 1)
local opt = accel.optim.SGD(p:parameters(), { lr = 0.1 })
for i = 1, 200 do
  p(accel.ones(2, 2)):sum():backward()
  opt:step()
  opt:zero_grad()
  os.execute "sleep 0.01"
end
local bad = (accel.ones(2) - 3):sqrt()
print("over", bad)
]])
job = t.start(script)
t.running(1, 2)
play("leave", "expect later.lua:6>\nline :nan on\nexpect the first NaN\nline :detach\nend 0\n", exe .. " attach")
assert(job.process:wait(30) == "exit" and t.read(job.out):find "over", t.read(job.err))
