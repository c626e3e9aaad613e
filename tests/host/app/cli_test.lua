-- accel-run from outside: options, exit codes, output, signals: host/app.
local run = (os.getenv("ACCEL_TEST_BUILD") or "../..") .. "/bin/accel-run"
local tmp = (os.getenv("ACCEL_TEST_TMP") or ".") .. "/"

local function write(name, text)
  local file = assert(io.open(tmp .. name, "wb"))
  file:write(text)
  file:close()
  return tmp .. name
end

local function read(name)
  local file = assert(io.open(tmp .. name, "rb"))
  local text = file:read("a")
  file:close()
  return text
end

-- status, stdout, stderr of a shell command; $R is accel-run.
local function shell(command)
  local script = write("command.sh", "R='" .. run .. "'\ncd '" .. tmp .. "' && rm -f o || exit 99\n"
    .. command:gsub("%$R", '"$R"') .. "\n")
  local _, how, code = os.execute(("sh '%s' > '%sout' 2> '%serr'"):format(script, tmp, tmp))
  return how == "signal" and 128 + code or code, read "out", read "err"
end

local function check(command, status, out, err)
  local got, o, e = shell(command)
  local all = ("%s\nstatus %d\nstdout: %s\nstderr: %s"):format(command, got, o, e)
  assert(got == status, all)
  if out then assert(o:find(out, 1, true), all) end
  if err then assert(e:find(err, 1, true), all) end
  if err == "" then assert(e == "", all) end
  return o, e
end

-- Usage.
check("$R --help", 0, "Usage: accel-run", "")
check("$R -h", 0, "exit status:", "")
check("$R --help", 0, "show the version\n", "")
check("$R --version", 0, "accel-run ", "")
check("$R", 2, "", "no script given")
check("$R --num-thraeds 2 x.lua", 2, nil,
  "unknown option '--num-thraeds'; did you mean '--num-threads'?\nTry 'accel-run --help'.")
check("$R -num-threads 2 x.lua", 2, nil, "unknown option '-num-threads'; did you mean '--num-threads'?\nTry")
check("$R --zzzzzz", 2, nil, "unknown option '--zzzzzz'\nTry")
check("$R --num_threads", 2, nil, "needs a value")
check("$R --num_threads=two -e 1", 2, nil, "'two' is not a number")
check("$R --help=3", 2, nil, "takes no value")
check("$R -x", 2, nil, "unknown option '-x'")
check("$R nowhere.lua", 2, nil, "cannot read 'nowhere.lua': No such file")
-- A misspelt command: what is meant; a file of any name is a script.
check("$R estimate-memry", 2, "", "did you mean accel-run estimate-memory?")
write("nowhere", "print 'a script'")
check("$R nowhere", 0, "a script\n", "")
os.remove(tmp .. "nowhere")
check("$R env --help", 0, "Usage: accel-run", "")
check("$R repl -h", 0, "Usage: accel-run", "")
check("$R env extra", 2, nil, "no arguments")

-- Scripts: arguments, standard input, -e, dashes and underscores.
write("args.lua", "print(arg[0], #arg, arg[1], ...)")
check("$R args.lua --steps 3 -x", 0, "args.lua\t3\t--steps\t--steps\t3\t-x", "")
check("echo 'print(1 + 1, ...)' | $R - a b", 0, "2\ta\tb", "")
check("$R -e 'print(7, ...)' x", 0, "7\tx", "")
check("$R -e 'print(require(\"accel\").num_threads())' --num-threads 1", 0)
check("$R --num-threads 1 -e 'print(require(\"accel\").num_threads())'", 0, "1\n", "")
check("$R --num_threads=1 -e 'print(require(\"accel\").num_threads())'", 0, "1\n", "")
check("$R --seed 9 -e 'print(require(\"accel\").get_rng_state().seed)'", 0, "9\n", "")
check("$R --memory-limit 64M -e 'print(require(\"accel\").mem_stats().limit_bytes)'", 0,
  tostring(64 << 20), "")
check("$R -- args.lua", 0, "args.lua\t0", "")
assert(shell "mkdir -p sub" == 0)
write("sub/beside.lua", "return 5")
write("sub/m.lua", "print(require 'beside')")
check("$R sub/m.lua", 0, "5")
check("$R --no-strict -e 'print(nothing_here)'", 0, "nil", "")
check("$R -e 'print(nothing_here)'", 1, nil, "undeclared global 'nothing_here'")
check("$R -e 'print(accel.ones(2):sum():item())'", 0, "2.0\n", "") -- accel is a global of -e, of scripts it is not
check("$R -e 'print(arg[1], ...)' x", 0, "x\tx\n", "")
check("echo 'print(accel)' | $R -", 1, nil, "undeclared global 'accel' (a script begins with: local accel = require \"accel\")")

-- What failed, where, and the way there.
write("fails.lua", [[
local accel = require "accel"
local function layer(x) return x:matmul(x) end
local input = accel.zeros(2, 3)
layer(input)
]])
local _, e = check("$R fails.lua", 1, "", "accel-run: fails.lua:2: matmul: ")
assert(e:find("(2, 3)", 1, true) and e:find("stack traceback:", 1, true)
  and e:find("input: f32 (2, 3)", 1, true), e)
write("syntax.lua", "local x = = 3")
_, e = check("$R syntax.lua", 1, "", "syntax.lua:1:")
assert(not e:find("traceback", 1, true))
check("$R -e 'error({code = 3})'", 1, "", "accel-run: error object { code = 3 }\n")
write("cyclic.lua", "local t = { list = {} } for i = 1, 500 do t.list[i] = i end t.t = t error(t)")
_, e = check("$R cyclic.lua", 1, "", "error object { list = { 1, 2,")
assert(e:find("490 more", 1, true) and #e:match "^[^\n]*" < 400, e)
check("$R relp", 2, "", "cannot read 'relp': No such file or directory; did you mean accel-run repl?")
check("$R ./no_such_script.lua", 2, "", "cannot read './no_such_script.lua': No such file or directory\n")
check("$R -e 'error()'", 1, "", "(error object is a nil value)")
check("$R -e 'error(setmetatable({}, { __tostring = function() return \"own text\" end }))'", 1, "",
  "accel-run: own text")
check("$R -e 'error(\"plain\")'", 1, "", "plain")
write("binary.lua", string.dump(function() end))
check("$R binary.lua", 1, "", "binary")

-- Names that are not there: the nearest one of the table that was asked, and none for tables of the script.
write("typo.lua", [[
local accel = require "accel"
local nn = accel.nn
local own = {}
local case = arg[1]
if case == "accel" then accel.zerso(2) end
if case == "nn" then local model = nn.Linaer(2, 3) end
if case == "optim" then accel.optim.AdanW({}) end
if case == "method" then nn.Linear(2, 2):parametrs() end
if case == "own" then own.zerso(2) end
if case == "ctx" then
  accel.Function { forward = function(ctx, x) ctx:save_for_bakward(x) return x end, backward = print }(accel.ones(1))
end
local loader = accel.data.DataLoader(accel.data.ListDataset { 1 })
if case == "loader" then loader:state_dcit() end
local Own = nn.Module:extend "Own"
function Own:freeze() self:requires_grad_(false) end
local o = Own()
if case == "class" then o:freze() end
if case == "checkpointing" then o:gradient_checkpointing_enable() end
]])
local function typo(case, near)
  local _, text = check("$R typo.lua " .. case, 1, "", "attempt to call a nil value")
  local hint = text:match("^[^\n]*did you mean ([^\n]*)%?\n")
  assert(hint == near, ("%s: %s, not %s"):format(case, hint, near))
end
typo("accel", "accel.zeros")
typo("nn", "nn.Linear")
typo("optim", "accel.optim.AdamW")
typo("method", ":parameters")
typo("own", nil)
typo("ctx", ":save_for_backward")
typo("loader", ":state_dict")
typo("class", ":freeze")
check("$R typo.lua checkpointing", 1, "", "the models of accel.models have it; in your own module, forward calls")

-- Methods called with a dot: the line of the script, and how it is written. Other errors stay what they are.
write("dot.lua", [[
local accel = require "accel"
local case, m = arg[1], accel.nn.Linear(2, 1)
local made = { sgd = accel.optim.SGD(m:parameters()) }
local schedule = accel.optim.lr_scheduler.StepLR(made.sgd, 1)
local Own = accel.nn.Module:extend "Own"
function Own:freeze(on) self:requires_grad_(not on) end
local own = Own()
if case == "train" then m.train() end
if case == "false" then m.train(false) end
if case == "step" then made.sgd.step() end
if case == "schedule" then schedule.step() end
if case == "state" then m.load_state_dict({}) end
if case == "own" then own.freeze(true) end
if case == "caught" then print(pcall(m.train)) end
if case == "colon" then own:frieze() end
if case == "inside" then function Own:freeze() local t = nil; return t.x end own:freeze() end
local App = {}
function App.new() local self = {}; self.f = assert(io.open("no-such.cfg")); return self end
function App:run() error("boom", 0) end
if case == "constructor" then App.new() end
if case == "plain" then local function helper(self, n) error("boom") end helper({}, 3) end
if case == "unrelated" then App.run() end
]])
local function dot(case, line, said)
  local _, text = check("$R dot.lua " .. case, 1, "", ("accel-run: dot.lua:%d: "):format(line) .. said)
  assert(not text:match "^[^\n]*":find("/accel/", 1, true), text)
end
dot("train", 8, "train: use m:train(")
dot("false", 9, "train: use m:train(")
dot("step", 10, "step: use made.sgd:step(")
dot("schedule", 11, "step: use schedule:step(")
dot("state", 12, "load_state_dict: use m:load_state_dict(")
dot("own", 13, "freeze: use own:freeze(")
check("$R dot.lua caught", 0, "use m:train(), with a colon")
dot("colon", 15, "attempt to call a nil value")
dot("inside", 16, "attempt to index a nil value (local 't')")
-- what merely has a variable of that name, or fails for another reason, keeps its message
check("$R dot.lua constructor", 1, "", "accel-run: dot.lua:18: no-such.cfg: No such file")
dot("plain", 21, "boom")
_, e = check("$R dot.lua unrelated", 1, "", "boom")
assert(not e:find("with a colon", 1, true), e)
_, e = check("$R --num_processes 2 dot.lua schedule", 1, "", "use schedule:step(...), with a colon")
assert(not e:find("attempt to", 1, true), e)

-- One past the last is nil; who uses it is told.
write("past.lua", "local t = require 'accel'.ones(3)\nprint(t[4])\nprint(t[4]:item())")
check("$R past.lua", 1, "nil\n", "; the last position of t is 3, and t[4] is nil\n")
write("other.lua", "local t, rows = require 'accel'.ones(3), {}\nlocal k = 2\nrows[k].v = t[1]")
_, e = check("$R other.lua", 1, "", "attempt to index a nil value")
assert(not e:find("t has 3", 1, true), e)

check("$R -e 'require(\"accel\").nn.Linaer(2)'", 1, "", "attempt to call a nil value (field 'Linaer')")
check("$R -e 'local nn = require(\"accel\").nn nn.Linaer(2)'", 1, "", "did you mean nn.Linear?")

-- Tracebacks are the script's frames, and those of layers that held tensors.
write("frames.lua", [[
local accel = require "accel"
local function build() local optimizer = accel.optim.AdamW({}, { lrr = 1 }) return optimizer end
if arg[1] == "option" then build() end
if arg[1] == "global" then print(not_there) end
accel.nn.Sequential(accel.nn.Linear(3, 2))(accel.zeros(4, 5))
]])
local function frames(case)
  local _, text = check("$R frames.lua " .. case, 1, "", "accel-run: frames.lua:")
  return select(2, text:gsub("\n  %S+:%d+: in ", "")), text
end
local n, text = frames "option"
assert(n == 2 and not text:find("/accel/", 1, true), text)
n, text = frames "global"
assert(n == 1 and not text:find("strict.lua", 1, true), text)
_, text = frames "layer"
assert(text:find("linear.lua:", 1, true) and text:find("x: f32 (4, 5)", 1, true)
  and not text:find("nn/module.lua", 1, true) and text:find("frames.lua:5: in main chunk", 1, true), text)

-- Exit codes are the script's.
check("$R -e 'os.exit(7)'", 7)
check("$R -e 'os.exit(true)'", 0)
check("$R -e 'os.exit(false)'", 1)
check("$R -e 'io.write(\"out\") pcall(os.exit, 3)'", 3, "out")
check("$R -e 'print(1)' > /dev/full", 1, nil, "writing to stdout")

-- The environment.
local out = check("ACCEL_NUM_THREADS=1 $R env", 0, "ACCEL_NUM_THREADS")
assert(out:find("ACCEL_NUM_THREADS +1 +environment") and out:find("ACCEL_GC +auto +default")
  and out:find("devices +cpu"), out)
check("ACCEL_NUM_THREADZ=1 $R -e ''", 0, "",
  "ACCEL_NUM_THREADZ is set but means nothing (did you mean ACCEL_NUM_THREADS?)")
check("ACCEL_LOG=off ACCEL_NUM_THREADZ=1 $R -e ''", 0, "", "")
check("ACCEL_GC=sometimes $R -e ''", 2, "", "ACCEL_GC")

-- Ctrl-C: an error at the next step, which ends the process as the signal would; a script may save first.
write("steps.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
accel.step() -- from here on a signal waits for the next one
print("ready")
local ok, err = pcall(function()
  for _ = 1, 2000 do
    accel.step()
    local t = accel.clock()
    while accel.clock() - t < 0.01 do end
  end
end)
print(ok, err.code, err.message:match("steps.lua:%d+") ~= nil)
accel.step() -- was served: goes on
if arg[1] == "exit" then os.exit(5) end
error(err, 0)
]])
local wait = "while ! grep -qs ready o; do sleep 0.02; done\n"
check("$R steps.lua > o & p=$!\n" .. wait .. "kill -INT $p; wait $p; s=$?; cat o; exit $s", 130,
  "ready\nfalse\tinterrupted\ttrue", "interrupted by signal 2")
check("$R steps.lua exit > o & p=$!\n" .. wait .. "kill -TERM $p; wait $p; s=$?; cat o; exit $s", 5,
  "false\tinterrupted\ttrue")
write("flag.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
accel.on_interrupt("flag")
local n = 0
while not accel.interrupted() do
  accel.step()
  n = n + 1
  if n == 3 then print("ready") end
end
print("saved", n > 0)
]])
check("$R flag.lua > o & p=$!\n" .. wait .. "kill -INT $p; wait $p; s=$?; cat o; exit $s", 0,
  "saved\ttrue")

-- A second one ends at once, also where errors are swallowed; so does the first in a script without steps.
write("loop.lua", [[
if arg[1] == "step" then require("accel").step() end
io.stdout:setvbuf("line")
local _ <close> = setmetatable({}, { __close = function() print("closed") end })
print("ready")
while true do end
]])
write("stubborn.lua", [[
io.stdout:setvbuf("line")
print("ready")
while true do pcall(function() while true do end end) end
]])
local int = "kill -INT $p; "
local finish = "wait $p; s=$?; cat o; exit $s"
check("$R loop.lua > o & p=$!\n" .. wait .. int .. finish, 130, "closed", "interrupted")
check("$R loop.lua step > o & p=$!\n" .. wait .. int .. "sleep 0.3; " .. int .. finish, 130,
  "closed", "interrupted")
check("$R stubborn.lua > o & p=$!\n" .. wait .. int .. finish, 130, "ready")

-- One is enough for a script that goes on without steps, and every signal that asks to stop is served alike.
local notice = "accel-run: stopping at the next step; press Ctrl-C again to stop now"
for name, code in pairs { INT = 130, TERM = 143, HUP = 129 } do
  check("$R loop.lua step > o & p=$!\n" .. wait .. ("kill -%s $p; "):format(name) .. finish, code,
    "ready\nclosed", notice)
  check("$R steps.lua exit > o & p=$!\n" .. wait .. ("kill -%s $p; "):format(name) .. finish, 5,
    "false\tinterrupted\ttrue", notice)
end
check("(trap '' HUP; exec $R loop.lua step > o) & p=$!\n" .. wait -- as under nohup
  .. "kill -HUP $p; sleep 0.2; kill -TERM $p; " .. finish, 143, "closed", notice)

-- Inside os.execute: a terminal's Ctrl-C ends the command and then the script, at its next step or at once; a command
-- that ends in its own way is waited for; the second one ends the script at once.
write("command.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
if arg[1] == "step" then accel.step() end
print(os.execute(arg[2]))
accel.step()
print("went on")
]])
check("$R -e 'print(os.execute()) print(os.execute(\"exit 3\")) print(os.execute(\"kill -9 $$\")) print(os.execute \"true\")'",
  0, "true\nnil\texit\t3\nnil\tsignal\t9\ntrue\texit\t0\n", "")
check("$R -e 'print(pcall(os.execute, {}))'", 0, "os.execute takes a command, a string")
for _, kind in ipairs { "step", "none" } do
  local begin = "setsid $R command.lua " .. kind .. " '%s' > o & p=$!\n" .. wait
  local group = "kill -INT -$p; "
  local o, e = check(begin:format("echo ready; exec sleep 60") .. group .. finish, 130, "ready\n")
  assert((o:find("nil\tsignal\t2", 1, true) ~= nil) == (kind == "step") and e:find("interrupted", 1, true), o .. e)
  o = check(begin:format("trap \"\" INT; echo ready; sleep 2; echo over") .. group .. finish, 130, "ready\nover\n")
  assert(not o:find("went on", 1, true), o)
  check(begin:format("trap \"\" INT; echo ready; sleep 60; echo over") .. group .. "sleep 0.2; " .. group
    .. "wait $p; s=$?; kill -9 -$p; cat o; exit $s", 130)
  assert(read "out" == "ready\n", read "out")
end
write("popen.lua", [[
require("accel").step()
local p = io.popen("echo ready; exec sleep 60")
io.write(p:read("l"), "\n") io.flush()
print(p:read("a"))
p:close()
require("accel").step()
]])
check("setsid $R popen.lua > o & p=$!\n" .. wait .. "kill -INT -$p; " .. finish, 130, "ready\n\n", "interrupted by signal 2")
check("setsid $R popen.lua > o & p=$!\n" .. wait .. int .. "sleep 0.1; " .. int .. "wait $p; s=$?; kill -9 -$p; exit $s", 130)

-- Scripts that noticed, and those whose steps are long, get their time.
write("slow.lua", [[
local accel = require "accel"
io.stdout:setvbuf("line")
local function busy(seconds)
  local t = accel.clock()
  while accel.clock() - t < seconds do end
end
accel.on_interrupt(arg[1] == "long" and "raise" or "flag")
accel.step()
if arg[1] == "long" then
  busy(0.9) accel.step() print("ready") busy(1.4)
  print(pcall(accel.step))
else
  print("ready")
  repeat busy(0.01) until accel.interrupted()
  busy(1.4)
  print("saved", accel.interrupted())
end
]])
-- How long that is was measured in the steps before: where the cores are not free it may be too short.
local function timely(...)
  for _ = 1, 9 do
    if pcall(check, ...) then return end
  end
  check(...)
end
timely("$R slow.lua > o & p=$!\n" .. wait .. "kill -TERM $p; " .. finish, 0, "saved\ttrue\t15", notice)
timely("$R slow.lua long > o & p=$!\n" .. wait .. int .. finish, 0, "interrupted by signal 2", notice)
