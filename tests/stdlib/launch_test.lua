-- accel.launch: results and arguments by the codec, errors named by rank, what cannot be launched, limits, signals, and
-- nothing left behind. The functions launched are in files that this test writes beside itself.
local accel = require "accel"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
  return err
end

local function write(name, text)
  local file = assert(io.open(tmp .. "/" .. name, "wb"))
  file:write(text)
  file:close()
  return tmp .. "/" .. name
end

package.path = tmp .. "/?.lua;" .. package.path
local echo = write("launch_echo.lua", [[
return function(...)
  local rank = math.tointeger(os.getenv "RANK")
  return { rank = rank, size = math.tointeger(os.getenv "WORLD_SIZE"), args = table.pack(...) }
end]])

-- ---- there and back ----
local shared = { "one" }
local results = accel.launch(echo, { 1, 2.5, "text\0", shared, shared, accel.arange(6):view(2, 3) },
  { num_processes = 2 })
assert(#results == 2 and results.n == 2)
for rank = 0, 1 do
  local r = results[rank + 1]
  assert(r.rank == rank and r.size == 2 and r.args.n == 6)
  assert(math.type(r.args[1]) == "integer" and r.args[2] == 2.5 and r.args[3] == "text\0")
  assert(r.args[4] == r.args[5] and r.args[4][1] == "one" and accel.equal(r.args[6], accel.arange(6):view(2, 3)))
end
assert(accel.launch("launch_echo", nil, { num_processes = 1 })[1].args.n == 0)
assert(accel.launch("launch_echo", table.pack(nil, 2, nil), { num_processes = 1 })[1].args.n == 3)
write("launch_table.lua", "return { main = function(a, b) return b, a, nil end, other = 1 }")
results = accel.launch("launch_table", { "a", "b" }, { num_processes = 2 })
for rank = 1, 2 do
  assert(results[rank].n == 3 and results[rank][1] == "b" and results[rank][2] == "a" and results[rank][3] == nil)
end
results = accel.launch(write("launch_none.lua", "return function() end"), {}, { num_processes = 2 })
assert(results.n == 2 and results[1].n == 0)
results = accel.launch(write("launch_nil.lua", "return function() return nil end"), {}, { num_processes = 2 })
assert(results.n == 2 and results[1] == nil)

-- What is big goes, too; the environment and accel-run's options arrive.
local big = accel.rand(300000)
local sums = accel.launch(write("launch_big.lua", "return function(x) return x:sum(), x * 2 end"), { big },
  { num_processes = 2, num_threads = 1 })
assert(accel.equal(sums[1][2], big * 2) and accel.equal(sums[2][1], sums[1][1]))
local env = write("launch_env.lua", [[
return function(...)
  local list = {}
  for i, name in ipairs { ... } do list[i] = os.getenv(name) or "unset" end
  return table.concat(list, " "), arg[0], io.read "a"
end]])
local got = accel.launch(env, { "LAUNCH_A", "LAUNCH_B", "HOME", "ACCEL_SEED" }, { num_processes = 1, seed = 7,
  env = { LAUNCH_A = "a=1", LAUNCH_B = 2, HOME = false, ACCEL_SEED = false } })[1]
assert(got[1] == "a=1 2 unset unset" and got[2] == env and got[3] == "", got[1])

-- ---- what cannot be launched ----
fails("cannot receive this function: it is a function of C, or put it into a file that returns it", accel.launch, print)
fails("launch_test.lua:", accel.launch, print)
fails("module must be a module's name, a file or a function, got 3", accel.launch, 3)
fails("cannot read " .. tmp .. "/nothing.lua", accel.launch, tmp .. "/nothing.lua")
fails("module 'launch_nothing' is not on package.path", accel.launch, "launch_nothing")
fails("args must be a list, got 5", accel.launch, echo, 5)
fails("launch: cannot encode function at args[2].f; ", accel.launch, echo, { 1, { f = print } })
fails("unknown option 'num_proceses'; did you mean 'num_processes'?", accel.launch, echo, {}, { num_proceses = 2 })
fails("num_processes must be a positive integer, got 0", accel.launch, echo, {}, { num_processes = 0 })
fails("num_processes must be at most 256, got 257", accel.launch, echo, {}, { num_processes = 257 })
fails("env.A must be a string", accel.launch, echo, {}, { num_processes = 1, env = { A = {} } })
fails("a name is a string without '='", accel.launch, echo, {}, { num_processes = 1, env = { ["A=B"] = "1" } })
fails("seed must be a number, got 'x'", accel.launch, echo, {}, { seed = "x" })
fails("time_limit must be at least 0", accel.launch, echo, {}, { time_limit = -1 })
local nested = write("launch_nested.lua", "return function() return require('accel').launch('launch_echo') end")
fails("this is already rank 0 of 1: call the function itself", accel.launch, nested, {}, { num_processes = 1 })

local as_ranks = ("'%s' --num_processes 2 -e '%s' 2>&1"):format(accel.process.program(),
  [[local ok, err = pcall(require("accel").launch, "x.lua") print(err)]])
os.execute("touch x.lua")
local said = io.popen(as_ranks):read "a"
assert(said:find("already rank 0 of 2: call the function itself", 1, true) and said:find("rank 1 of 2", 1, true), said)

-- ---- errors of ranks ----
local err = fails("launch: rank 1: ", accel.launch, write("launch_error.lua", [[
return function()
  if os.getenv "RANK" == "1" then error("told you") end
end]]), {}, { num_processes = 2 })
assert(err.rank == 1 and err.code == "callback" and tostring(err):find("launch_error.lua:2: told you", 1, true))
err = fails("matmul", accel.launch, write("launch_shape.lua", [[
local accel = require "accel"
return function() return accel.ones(2, 3):matmul(accel.ones(2, 3)) end]]), {}, { num_processes = 1 })
assert(err.code == "shape" and err.rank == 0 and tostring(err):find("launch_shape.lua:2", 1, true))
fails("launch_value.lua must return a function, or a table with one named main; it returned nil", accel.launch,
  write("launch_value.lua", "local x = 1"), {}, { num_processes = 1 })
fails("module 'launch_value' must return a function, or a table with one named main; it returned boolean", accel.launch,
  "launch_value", {}, { num_processes = 1 })
fails("launch_syntax.lua:1:", accel.launch, write("launch_syntax.lua", "return function( end"), {},
  { num_processes = 1 })
fails("the function's result cannot be returned: cannot encode function at result[1].f", accel.launch,
  write("launch_back.lua", "return function() return { f = print } end"), {}, { num_processes = 1 })
-- One ends when the other is gone: who is still there half a second after a failure leaves no result either.
local after_the_other = ([[
local path = %q
local function own_pid() return assert(io.open "/proc/self/stat"):read "n" end
local function say()
  local file <close> = assert(io.open(path .. "_", "w"))
  file:write(own_pid())
  file:close()
  os.rename(path .. "_", path)
end
local function wait()
  local file
  repeat
    os.execute "sleep 0.01"
    file = io.open(path)
  until file
  local process = ("/proc/%%d/stat"):format(file:read "n")
  file:close()
  os.remove(path)
  repeat
    os.execute "sleep 0.01"
    file = io.open(process)
    if file then file:close() end
  until not file
end
]]):format(tmp .. "/launch_pid")
os.remove(tmp .. "/launch_pid")
err = fails("launch: rank 1 returned no result; ", accel.launch, write("launch_exit.lua", after_the_other .. [[
return function()
  if os.getenv "RANK" == "0" then return say() end
  wait()
  os.exit(3)
end]]), {}, { num_processes = 2 })
assert(err.code == "peer" and err.rank == 1)
err = fails("launch: rank 0 returned no result; ", accel.launch, write("launch_kill.lua", after_the_other .. [[
return function()
  if os.getenv "RANK" == "1" then return say() end
  wait()
  os.execute("kill -9 $PPID; sleep 1")
end]]), {}, { num_processes = 2 })
assert(err.code == "peer" and err.rank == 0)

-- ---- nothing is left behind ----
local function own_pid()
  local file <close> = assert(io.open "/proc/self/stat")
  return file:read "n"
end
local function children() -- of this process, and what they started
  local list, pid = {}, own_pid()
  for line in io.popen("ps -eo pid,ppid,args --no-headers"):lines() do
    local id, parent, args = line:match "(%d+)%s+(%d+)%s+(.*)"
    if args:find(tmp .. "/launch_", 1, true) or args:find("/proc/" .. pid .. "/fd/", 1, true) then
      list[#list + 1] = ("%s %s %s"):format(id, parent, args)
    end
  end
  return list
end
local function settled(what)
  for _ = 1, 300 do
    if #children() == 0 then return end
    os.execute "sleep 0.1"
  end
  error(what .. ": still there: " .. table.concat(children(), "\n"))
end
local function fds() -- what is open, but for the pipe that tells
  accel.collect()
  local pipe <close> = io.popen("sleep 0.1; ls -l /proc/" .. own_pid() .. "/fd") -- once popen has closed its other end
  local list = {}
  for line in pipe:lines() do
    local what = line:match "-> (.*)"
    list[#list + 1] = what and what:gsub("%d+", "N")
  end
  table.sort(list)
  return table.concat(list, " ")
end
local before = fds()
local sleeper = write("launch_sleep.lua", [[
return function(path)
  if path then assert(io.open(path .. os.getenv "RANK", "w")):close() end
  local accel = require "accel"
  while true do accel.step() io.popen("sleep 0.05"):close() end -- os.execute would hold off Ctrl-C
end]])
local began = os.time()
err = fails("launch: not done after 0.7 s (time_limit)", accel.launch, sleeper, {},
  { num_processes = 2, time_limit = 0.7 })
assert(err.code == "timeout" and os.time() - began < 60)
settled "time limit"
local now = fds()
assert(now == before, now .. " instead of " .. before)

-- Errors of any kind come back in words; what is not a list is not a list of arguments.
err = fails("launch: rank 0: (error object is a nil value)", accel.launch,
  write("launch_no_error.lua", "return function() error() end"), {}, { num_processes = 1 })
assert(err.code == "callback" and err.rank == 0)
fails("launch: rank 0: error object { why = \"odd\" }", accel.launch,
  write("launch_object.lua", "return function() error({ why = 'odd' }) end"), {}, { num_processes = 1 })
fails("launch: rank 0: (error object that cannot be printed)", accel.launch, write("launch_unprintable.lua",
  "return function() error(setmetatable({}, { __tostring = error })) end"), {}, { num_processes = 1 })
err = fails("launch_syntax.lua:1: unexpected symbol", accel.launch, write("launch_syntax.lua", "return = 1"), {},
  { num_processes = 1 })
assert(not tostring(err):find "worker", tostring(err))
fails("pass options as the third argument", accel.launch, echo, { num_processes = 2 })

-- The caller is killed, interrupted, or drops the job: its ranks go.
local program = accel.process.program()
local stock -- the other interpreter, where one is to be used
local function run_apart(name, code, act)
  local mark = tmp .. "/" .. name .. "_"
  os.remove(mark .. "0")
  os.remove(mark .. "1")
  local values = { SLEEPER = ("%q"):format(sleeper), MARK = ("%q"):format(mark) }
  local paths = stock and stock.paths or ("package.path = %q\n"):format(package.path)
  local script = write(name .. ".lua", paths .. "local accel = require 'accel'\n" .. code:gsub("%u+", values))
  local runs = stock and stock.lua or program
  local p <close> = accel.process.spawn(runs, { runs, script })
  for _ = 1, 2000 do
    local a, b = io.open(mark .. "0"), io.open(mark .. "1")
    if a then a:close() end
    if b then b:close() end
    if a and b then break end
    assert(not p:wait(0.05), name .. " ended early")
  end
  act(p)
  local how, number = p:wait(60)
  assert(how, name .. " goes on")
  settled(name)
  return how, number
end
local call = "local ok, err = pcall(accel.launch, SLEEPER, { MARK }, { num_processes = 2 })\n"
local how, number = run_apart("launch_killed", call, function(p) p:signal(9) end)
assert(how == "signal" and number == 9)
how, number = run_apart("launch_interrupted", call .. "assert(not ok and err.code == 'interrupted', tostring(err))\n",
  function(p) p:signal(2) end)
assert(how == "exit" and number == 0, tostring(number))
how, number = run_apart("launch_dropped", [[
  local worker = package.searchpath("accel.dist.worker", package.path)
  local program = accel.process.program()
  local job = accel.process.blob(accel.encode { file = SLEEPER, path = package.path, cpath = package.cpath,
    results = { "/dev/null", "/dev/null" }, args = { MARK }, n = 1 })
  local p = accel.process.spawn(program, { program, "--num_processes", "2", worker, job:path() })
  repeat
    assert(not p:wait(0.05))
    local a <close> = io.open(MARK .. "0")
    local b <close> = io.open(MARK .. "1")
  until a and b
  p = nil
  collectgarbage() collectgarbage()
]], function() end)
assert(how == "exit" and number == 0, tostring(number))

-- The same from an interpreter that is not ours.
local build, lua = os.getenv "ACCEL_TEST_BUILD", io.popen("command -v lua5.4"):read "l"
local core = build and io.open(build .. "/lib/lua/5.4/accel/core.so", "rb")
if core and lua and (os.getenv "ACCEL_TEST_SANITIZE" or "") == "" then
  local paths = ("package.path, package.cpath = %q, %q\n"):format(package.path .. ";" .. build
    .. "/share/lua/5.4/?.lua;" .. build .. "/share/lua/5.4/?/init.lua", build .. "/lib/lua/5.4/?.so")
  stock = { lua = lua, paths = paths }
  how, number = run_apart("launch_stock", [[
    local echo = accel.launch("launch_echo", { accel.ones(3) }, { num_processes = 2 })
    assert(echo[2].rank == 1 and echo[1].args[1]:sum():item() == 3)
    local ok, err = pcall(accel.launch, SLEEPER, { MARK }, { num_processes = 2 })
    assert(not ok and tostring(err):find("interrupted!", 1, true), tostring(err))
  ]], function(p) p:signal(2) end)
  assert(how == "exit" and number == 0, tostring(number))
else
  print("not tried from lua5.4: " .. (core and lua and "sanitizers" or "it or its module is missing"))
end

-- ---- the parts ----
local process = accel.process
local blob = process.blob "some\0bytes"
assert(blob:read() == "some\0bytes" and assert(io.open(blob:path(), "rb")):read "a" == "some\0bytes")
assert(io.open(blob:path(), "wb"):write "other")
collectgarbage()
assert(blob:read() == "other")
blob:close()
blob:close()
fails("the blob is closed", blob.read, blob)
fails("cannot run /nowhere/x: No such file", process.spawn, "/nowhere/x", { "x" })
fails("entry 1: expected string", process.spawn, "/bin/true", { 1 })
local p = process.spawn("/bin/sh", { "sh", "-c", "exit 7" })
how, number = p:wait(60)
assert(how == "exit" and number == 7)
fails("the process has ended", p.wait, p, 1)
p:close()
p = process.spawn("/bin/sh", { "sh", "-c", "kill -USR1 $$" })
how, number = p:wait(60)
assert(how == "signal" and number == 10)
p = process.spawn("/bin/sleep", { "sleep", "30" })
assert(p:wait(0.05) == nil)
p:signal(15)
how, number = p:wait(60)
assert(how == "signal" and number == 15)
assert(process.cores() >= 1)
err = fails("what went wrong", process.raise, "shape", "what went wrong", 3)
assert(err.code == "shape" and err.rank == 3)
err = fails("no rank", process.raise, "timeout", "no rank")
assert(err.code == "timeout" and err.rank == nil)
