-- accel-run repl and accel.repl() on one process: inputs from a file, and in a terminal with every editor there
-- is.
--   accel-run tests/host/app/repl_test.lua
local pty = dofile((arg[0]:match "^.*/" or "") .. "../../support/pty.lua")
local run = "'" .. pty.run .. "'"

local function has(text, part, what)
  assert(text:find(part, 1, true), ("%s: '%s' is not in\n%s"):format(what or "output", part, text))
end
local function piped(input, words, status)
  local got, out, err = pty.pipe(input, words)
  assert(got == status, ("status %d, expected %d\n%s\n%s"):format(got, status, out, err))
  return out, err
end

-- ---- a script on standard input ----
local out = piped([[
1 + 1
local y = 5
function twice(a)
  return a *
    2
end
twice(y), "text", nil
x = accel.ones(2, 3) * 2
x
for i = 1, 2 do
  print("loop", i)
end
_.shape[2]
:type x, twice
t = accel.ones(2, { requires_grad = true })
(t * 3):sum():backward()
t
:time twice(4)
:mem
pairs = 3
pairs
]], run .. " repl", 0)
has(out, "2\n10  \"text\"  nil\nf32 (2, 3) cpu  min 2 max 2 mean 2 std 0\n")
has(out, "loop\t1\nloop\t2\n3\n")
has(out, "tensor f32 (2, 3) cpu\nfunction (a) at stdin:3\n")
has(out, "requires_grad, grad f32 (2), |grad| 4.2426")
has(out, "8\n")
has(out, "tensors  ")
for line in out:gmatch "[^\n]+" do assert(#line <= 80, line) end

-- An error ends it, and says where; so does what has no end.
local _, err = piped("print(1)\nlocal function f()\n  error('bad')\nend\nf()\nprint('never')\n", run .. " repl", 1)
has(err, "stdin:3: bad")
has(err, "stdin:5: in main chunk")
_, err = piped("1 +\n", run .. " repl", 1)
has(err, "<eof>")
_, err = piped("x = \n\nundefined_name\n", run .. " repl", 1)
has(err, "stdin:3: undeclared global 'undefined_name'")
_, err = piped("\n:tine 3\n", run .. " repl", 1)
has(err, "stdin:2: no command :tine; did you mean :time?")
_, err = piped("@1 3\n", run .. " repl", 1)
has(err, "stdin:1: @ runs an input on some of several ranks, but there is only one process")
-- What is written without an end of its line, and what io.write gives back.
out = piped("io.write('no newline')\nio.write(' at', ' all')\n3 + 4\nio.stdout:write('x')\n'y'\nio.write('z')", run
  .. " repl", 0)
assert(out == "no newline at all\n7\nx\n\"y\"\nz", out)
-- The last error stays; own names are explained; a mode that stays open says so.
_, err = piped("x = nil\nx.foo()\n", run .. " repl", 1)
out = piped("local q = accel.ones(2)\nq?\nmatmul?\naccel.no_grad()\n_:close()\naccel.is_grad_enabled()\nnn\n", run
  .. " repl", 0)
has(out, "q: tensor f32 (2) cpu\nmatmul\n")
has(out, "no_grad, open; :close() ends it\ntrue\nmodule accel.nn: ")
out = piped("a = 1\na.b.c\na = 2\n", run .. " -e 'require(\"accel\").repl()'", 0)
has(out, "") -- at a breakpoint it goes on
out = piped("x.foo = 1\ny = 3\n:bt\nno_such?\n", run .. " -e 'require(\"accel\").repl()'", 0)
has(out, "stdin:1: undeclared global 'x'\n")
has(out, "  stdin:1: in main chunk\n")
out = piped("a = 1\nb =\n 2\n:save saved.lua\n", "cd '" .. pty.tmp .. "' && " .. run .. " repl", 0)
assert(pty.read "saved.lua" == "a = 1\nb =\n 2\n", pty.read "saved.lua")
_, err = piped("", run .. " repl x", 2)
has(err, "repl takes no arguments")

-- ---- a breakpoint ----
pty.write("stop.lua", [[
local accel = require "accel"
local outer = 10
local function step(n, ...)
  local x = accel.ones(2) * n
  local name = "before"
  accel.repl("look here")
  print("after", n, name, outer, x:sum():item(), ...)
end
local co = coroutine.wrap(function() step(3, "v", "w") end)
co()
print("end")
]])
local stop = "cd '" .. pty.tmp .. "' && exec " .. run .. " stop.lua"
out = piped([[
name, n, outer
name = "changed"
outer = outer + 1
n, ...
local n2 = n * 2
n2
coroutine.wrap(function() name = name .. "!" return name end)()
:locals
:bt
no_such
made_here = 3
made_here
:c
]], stop, 0)
has(out, "look here\nstop.lua:6: in ")
has(out, '"before"  3  10\n3  "v"  "w"\n6\n"changed!"\n')
has(out, "outer  11  (upvalue)")
has(out, "* stop.lua:6: in ")
has(out, "\n3\nafter\t3\tchanged!\t11\t6.0\tv\tw\nend\n")
out = piped(":up\n:quit\n", stop, 0)
assert(not out:find "after" and not out:find "\nend", out)

-- Callers' locals, read and written.
pty.write("callers.lua", [[
local accel = require "accel"
local function loss_of(x, scale)
  local scaled = x * scale
  accel.repl()
  return scaled
end
local function step(i)
  local batch = i + 1
  local loss = loss_of(batch, 3)
  return loss + batch
end
print("sum", step(4))
]])
local callers = "cd '" .. pty.tmp .. "' && exec " .. run .. " callers.lua"
out, err = piped("scaled\nbatch\n:up\nbatch, i\nbatch = 100\n:bt\n:down\nscaled = 1\n:up 9\n:c\n", callers, 0)
has(out, "callers.lua:4: in upvalue 'loss_of' (:c or Ctrl-D continues, :quit ends)\n15\n")
has(err, "stdin:2: undeclared global 'batch'; a local of that name is at :up (callers.lua:9)\n")
has(out, "callers.lua:9: in local 'step'\n5  4\n")
has(out, "  callers.lua:4: in upvalue 'loss_of'\n* callers.lua:9: in local 'step'\n  callers.lua:12: in main chunk\n")
has(err, "the last caller is callers.lua:12")
has(out, "sum\t101\n")

-- ---- accel-run help ----
out = piped("", run .. " help matmul", 0)
has(out, "x:matmul(other)")
out = piped("", run .. " help --num-processes", 0)
has(out, "number of ranks on all machines")
out = piped("", run .. " help ACCEL_TIMEOUT", 0)
has(out, "seconds after which")
for _, topic in ipairs { "", "nn.Linear", "optim", "examples", "Module:train", "x:sum", "t.shape", ":time", "02_mlp" } do
  out = piped("", run .. " help " .. topic, 0)
  assert(#out > 20, topic)
end
out = piped("", run .. " help matmull", 0)
has(out, "Nothing is named 'matmull'. Pages with 'matmul':")
has(out, "help matmul\n")
_, err = piped("", run .. " help --num-proceses", 1)
has(err, "did you mean --num-processes?")
out = piped("", run .. " help guide", 0)
has(out, "accelerator")
out = piped("", run .. " help guide repl", 0)
has(out, "One prompt for all ranks")
out = piped("", run .. " help loader workers", 0)
has(out, "help guide data")

-- ---- in a terminal ----
local editors = pty.editors()
if #editors == 0 then print "neither libedit nor readline: lines are read as they come" end
for _, kind in ipairs(editors) do
  pty.play(kind .. ": lines, completion, history, Ctrl-C", [[
expect :help explains more
expect >\x20
line 1 + 41
expect \n42\n
line function f(a)
expect >>\x20
line   return a * 2
expect >>\x20
line end
expect >\x20
line f(21), "multi"
expect 42  "multi"
expect >\x20
send accel.util.Progr\t
expect Progress
send .dura\t(90)\r
expect "1:30"
expect >\x20
send \e[A
expect duration(90)
send \r
expect "1:30"
expect >\x20
send x = accel.ones(2, 3)\rx:contig\t
expect x:contiguous
send ().sha\t
quiet 0.1
send \x03
expect ^C
expect >\x20
line print "runs" while true do end
expect \nruns\n
send \x03
expect stdin:9: interrupted
expect >\x20
send not a (line
quiet 0.1
send \x03
expect ^C
expect >\x20
line 6 + 7
expect \n13\n
line pcall(function() print "runs" while true do end end)
expect \nruns\n
send \x03
expect false
line while true do pcall(function() print "runs" while true do end end) end
expect \nruns\n
send \x03
expect runs\n
send \x03
expect interrupted
expect >\x20
line coroutine.wrap(function() print "runs" while true do end end)()
expect \nruns\n
send \x03
expect interrupted
expect >\x20
line error("wrong")
expect stdin:14: wrong
line :bt
expect stdin:14: in main chunk
line f(
expect >>\x20
line 4)
expect \n8\n
expect >\x20
line x
expect f32 (2, 3) cpu  min 1 max 1 mean 1 std 0
expect >\x20
quiet 0.1
send \x04
end 0
]], run .. " repl", { ACCEL_EDITOR = kind })
end

-- A pasted line that is longer than libedit can hold leaves the session as it was.
for _, kind in ipairs(editors) do
  pty.play(kind .. ": a very long line", ([[
expect >\x20
line x = #"PASTED"
LONG
expect >\x20
line 8 + 9
expect \n17\n
expect >\x20
line :quit
end 0
]]):gsub("%u%u%u%u+", {
    PASTED = ("p"):rep(9000), LONG = kind == "libedit" and "expect this one was dropped" or "line x\nexpect \\n9000\\n",
  }), run .. " repl", { ACCEL_EDITOR = kind, XDG_STATE_HOME = pty.tmp .. "long" })
end

-- Characters of two and more bytes, also those that libedit could take for Meta keys, also without a locale.
local letters = "[\u{f1}\u{df}\u{b0}\u{d7}\u{c0}\u{ff}] [\u{103}\u{153}\u{20ac}\u{65e5}]"
for _, kind in ipairs(editors) do
  for _, locale in ipairs { "C", "C.UTF-8" } do
    pty.play(("%s: letters, LC_ALL=%s"):format(kind, locale), ([[
expect >\x20
line ("X"):rep(3)
expect \n"XXX"
line x = "LETTERS"
line #x, x
expect \nLENGTH  "LETTERS"
expect >\x20
line :quit
end 0
]]):gsub("%u+", { X = "\u{e9}", XXX = ("\u{e9}"):rep(3), LETTERS = letters, LENGTH = #letters }), run .. " repl",
      { ACCEL_EDITOR = kind, LC_ALL = locale, XDG_STATE_HOME = pty.tmp .. "letters" })
  end
end

local history = pty.read "state/accel/history" or ""
if #editors > 0 then
  has(history, 'f(21), "multi"\n', "history")
  pty.play("history of an earlier session", [[
expect >\x20
send \e[A
expect x
send \e[A\e[A
quiet 0.2
send \x03
expect ^C
expect >\x20
line :quit
end 0
]], run .. " repl", { ACCEL_EDITOR = editors[1] })
end

pty.play("without an editor; 80 columns", [[
expect >\x20
line accel.randn(100, 100)
expect f32 (100, 100) cpu
expect >\x20
line :help
expect :quit
expect >\x20
line print "runs" while true do end
expect \nruns\n
send \x03
expect interrupted
expect >\x20
line 1 +
expect >>\x20
send \x03
expect >\x20
line 5 + 5
expect \n10\n
line :quit
end 0
]], run .. " repl", { ACCEL_EDITOR = "plain" })

pty.play("a breakpoint in a terminal", [[
expect look here
expect stop.lua:6>\x20
line name = "by hand"
expect >\x20
line print "runs" while true do n = n end
expect \nruns\n
send \x03
expect interrupted
expect >\x20
line :c
expect after\t3\tby hand
expect end
end 0
]], "sh -c \"" .. stop:gsub('"', '\\"') .. "\"")

-- The program's own end: SIGTERM is no Ctrl-C.
pty.play("SIGTERM ends it", [[
expect >\x20
line os.execute("kill -TERM $PPID")
end 143
]], run .. " repl")
