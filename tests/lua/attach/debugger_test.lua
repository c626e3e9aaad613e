-- accel.breakpoint(), accel.pdb.set_trace() and --pdb on a terminal: the prompt of one rank is in its process, that of several a client which
-- one of them starts. Continue and steps return at once, whatever their number; lines, returns, functions and failures stop as Python's pdb does.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local t = dofile(here .. "support.lua")
local pty = dofile(here .. "../../support/pty.lua")
local exe = ("cd '%s' && exec '%s'"):format(t.tmp, t.exe)

local function play(what, script, words)
  local env = { PTY_COLUMNS = "80" }
  for name, value in next, t.env do env[name] = value end
  env.ACCEL_ATTACH = nil
  pty.play(what, script, ("sh -c \"%s %s\""):format(exe, words), env)
end

local function write(name, text)
  local file <close> = assert(io.open(t.tmp .. "/" .. name, "w"))
  file:write(text)
end

write("loop.lua", [[
local accel = require "accel"
local function double(x)
  local y = x * 2
  return y, "two"
end
local total = 0
for i = 1, 6 do
  accel.breakpoint(i > 1)
  total = total + double(i)
end

-- a comment
print("total", total)
accel.pdb.set_trace "the last"
print("over")
]])
-- 3 s for an answer: they come within milliseconds; before, each took 5 s or never came
play("one rank", [[
timeout 20
expect loop.lua:8: in main chunk (accel.breakpoint())
expect 8  accel.breakpoint(i > 1)
expect loop.lua:8>
timeout 3
line i, total
expect 2  2
line :c
expect loop.lua:8: in main chunk (accel.breakpoint())
line local kept = i
line :n
expect loop.lua:9: in main chunk (after a step of lines)
line kept
expect 3
line n
expect undeclared global 'n'
expect the command is :n
line :into
expect loop.lua:3: in local 'double'
line :p x
expect 3
line :return
expect loop.lua:4: in
expect returns 6, "two"
line :w
expect loop.lua:9: in main chunk
line :n
expect loop.lua:7: in main chunk
line :until 14
expect loop.lua:8: in main chunk (accel.breakpoint())
line :break 11
expect breakpoint 1 at loop.lua:13 (line 11 holds no code)
line :break 3 if rank == 0 and world_size == 1 and step == 0 and x == 5
expect breakpoint 2 at loop.lua:3 if
line :break 9 if i > nothing
expect breakpoint 3 at
line :c
expect (breakpoint 3: its condition fails: 'nothing' is not defined here)
line :delete 3
line :break function double
expect breakpoint 4 at function double
line :c
expect in local 'double' (breakpoint 4)
line :delete 4
line :list 1 3
expect 2  local function double(x)
line :jump 3
expect Lua cannot continue at another line
line :c
line :c
expect loop.lua:3: in local 'double' (breakpoint 2)
line :out
expect loop.lua:7: in main chunk
line accel.breakpoint = function() end
line :c
expect loop.lua:13: in main chunk (breakpoint 1)
line :break
expect 1  loop.lua:13
expect 2  loop.lua:3 if
line :delete 1
line :c
expect total
expect the last
expect loop.lua:14: in main chunk (accel.pdb.set_trace())
line :next
expect loop.lua:15:
line :next
expect over
end 0
]], "loop.lua")
write("spin.lua", "accel = require 'accel'\nlocal n = 0\naccel.breakpoint()\nwhile true do\n  n = n + 1\nend\n")
play("Ctrl-C", [[
expect spin.lua:3>
timeout 5
line :c
quiet 0.2
send \x03
expect (Ctrl-C)
line n > 1000
expect true
line :c
quiet 0.1
send \x03
expect (Ctrl-C)
line :next
expect after a step of lines
line :detach
quiet 0.1
send \x03
expect interrupted
end 130
]], "spin.lua")
play("the end of a script by :quit", "expect loop.lua:8>\nline :q\nabsent total\nend 0\n", "loop.lua")
play("the end of the input", [[
expect loop.lua:8>
line accel.breakpoint = function() end
line :detach
expect loop.lua:14>
quiet 0.2
send \x04
expect over
end 0
]], "loop.lua")

write("wrong.lua", [[
local accel = require "accel"
local function product(x, rank)
  local y = x * 3
  if rank == 1 then return y:matmul(accel.ones(5, 5)) end
  return y
end
local dist = accel.dist
local rank = dist.is_initialized() and dist.get_rank() or 1
product(accel.ones(2, 3), rank)
dist.all_reduce(accel.ones(4))
]])
play("the error of one rank", [[
expect wrong.lua:4: matmul: shapes
expect wrong.lua:4: in
expect (an error)
expect wrong.lua:4>
line y:sum():item()
expect 18
line :next
expect the script has failed here and cannot continue; :c ends it
line :up
expect wrong.lua:9: in main chunk
line :c
expect stack traceback
end 1
]], "--pdb wrong.lua")

write("train.lua", [[
local accel = require "accel"
local rank = accel.dist.get_rank()
local m = accel.nn.Linear(4, 1)
local o = accel.optim.SGD(m:parameters(), { lr = 1e-3 })
accel.breakpoint()
for i = 1, 1000000 do
  local loss = m(accel.randn(8, 4)):pow(2):mean()
  loss:backward()
  o:step()
  o:zero_grad()
  if i == 60 then accel.breakpoint(rank == 1) end
end
]])
play("three ranks", [[
timeout 30
expect at train.lua:5, after step 0 (accel.breakpoint())
expect 5  accel.breakpoint()
expect [0-2] train.lua:5>
timeout 10
line :next
expect [all] at train.lua:6
line :step 2
expect [all] at train.lua:9, after step 2
line :diff
expect differ between ranks 0-2
line :c
expect [rank 1] at train.lua:11, after step 60 (accel.breakpoint())
expect [1; 0, 2 running] train.lua:11>
line i
expect [rank 1] 60
line :c
quiet 0.2
send \x03
expect [all] at train.lua:9, after step
line :break 10 if rank == world_size - 1
expect breakpoint 1 at train.lua:10
line :c
expect [rank 2] at train.lua:10
line :quit
]], "--num-processes 3 train.lua")
play("the error of one of two ranks", [[
expect wrong.lua:4: matmul: shapes
expect [rank 1] at wrong.lua:4, after step 0 (an error)
expect [rank 0] waits in all_reduce
expect for rank 1
expect [1; 0 running] wrong.lua:4>
line y:sum():item()
expect [rank 1] 18
line :up
expect [rank 1] wrong.lua:9: in main chunk
line :c
expect stack traceback
end 1
]], "--num-processes 2 --pdb wrong.lua")
