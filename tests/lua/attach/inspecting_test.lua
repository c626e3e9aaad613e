-- The commands of a prompt that inspect a training step, in a script that stops on a terminal, and the habits of IPython.
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local t = dofile(here .. "support.lua")
local pty = dofile(here .. "../../support/pty.lua")

local function play(what, script, words)
  local env = { PTY_COLUMNS = "80" }
  for name, value in next, t.env do env[name] = value end
  pty.play(what, script, ("sh -c \"cd '%s' && exec '%s' %s\""):format(t.tmp, t.exe, words), env)
end

local file = assert(io.open(t.tmp .. "/step.lua", "w"))
file:write [[
local accel = require "accel"
local model, spare = accel.nn.Linear(4, 1), accel.nn.Linear(2, 2)
local function root(x)
  local y = x * 2
  local z = (y - 100):sqrt()
  return z:sum()
end
accel.breakpoint()
local big = accel.ones(64, 64)
local loss = model(accel.ones(8, 4)):pow(2):mean()
loss:backward()
local values = accel.tensor { 0, 1, 1, 2, 0 / 0, math.huge }
accel.breakpoint()
local q = root(accel.ones(3))
local leaf = accel.zeros(2, { requires_grad = true })
local bad = (leaf:sqrt() * 0):sum()
bad:backward()
print("done", q)
]]
file:close()

play("a step", [[
expect step.lua:8>
line :mem on
expect the lines that make tensors are noted
line :nan on
line :c
expect step.lua:13: in main chunk
expect step.lua:13>
line :mem
expect step.lua:9
expect 16.0 KiB
expect f32 (64, 64)
line :stats values
expect f32 (6) cpu
expect min 0  max 2  mean 1
expect 6 values, 1 NaN, 1 infinite, 1 zero
expect # 1
expect ######################################## 2
line :stats model
expect weight
expect bias
line :grad
expect model.weight
expect model.bias
expect no gradient: spare.weight, spare.bias
line :grad model.weight
expect the tensor
line :graph loss
expect mean
expect pow
expect linear
expect model.weight f32 (1, 4) cpu
expect 3 operations, 2 leaves
expect it does not depend on: spare.weight, spare.bias
line :stats nothing_here
expect undeclared global
line :c
expect sqrt makes the first NaN at step.lua:5, element 1
line :p inputs[1]:shape
line inputs[1] + 1
expect tensor([-97., -97., -97.])
line :c
expect in the backward at step.lua:17
line :nan off
expect no longer
line :c
expect done
end 0
]], "step.lua")

play("habits", [[
timeout 10
expect explains more
line = 3 + 4
expect 7
line x = accel.ones(2, 3)
line x.shape?
expect x.shape:
line x?
expect x: tensor f32 (2, 3) cpu
line (x + 1)?
expect tensor f32 (2, 3) cpu
line !echo from the shell
expect from the shell
line !exit 3
expect exit 3
line %time x:sum()
expect tensors up to
line %timeit x:sum()
expect the median of 5 runs of
line :timeit error "no"
expect no
line for i = 1, 2 do
line   print("round", i)
line end
expect round
expect 2
line :quit
end 0
]], "repl")

-- an input of several lines is edited as one, and found by Ctrl-R
if #pty.editors() > 0 then play("history", [[
timeout 10
expect explains more
line x = accel.ones(2, 3)
line x.shape?
expect x.shape:
line for i = 1, 2 do
line   print("round", i)
line end
expect round
expect 2
expect >
send \x1b[A
quiet 0.3
expect for i = 1, 2 do   print("round", i) end
send \r
expect round
expect 2
expect >
send optim.AdamW(accel.nn.Linear(1, 1):parameters(), { l\t
expect lr  number = 1e-3: learning rate
expect { lr
send  = 0.1, am\t
expect amsgrad  boolean
expect amsgrad
send  = true }).defaults.amsgrad\r
expect true
expect >
quiet 0.2
send \x12
send x.shape
quiet 0.3
send \r
quiet 0.3
send \r
expect x.shape:
line :quit
end 0
]], "repl") end
