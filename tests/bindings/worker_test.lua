--- accel.worker: threads with a Lua state each. Values cross as they are and tensors without a copy; errors, endless
--- loops and closing at any point leave no thread, file or memory behind; draws keep random numbers apart.
local accel = require "accel"
local worker = accel.worker
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../support/ranks.lua")
package.path = ranks.tests .. "support/?.lua;" .. package.path
local same, says = ranks.same, ranks.fails

local function count(folder) return #accel.listdir("/proc/self/" .. folder) end
local function settled(folder, most) -- the kernel takes a moment to forget a thread that was joined
  local ends = accel.clock() + 30
  while count(folder) > most and accel.clock() < ends do end
  return count(folder) <= most
end
assert(accel.ones(1 << 20):sum():item() == 1 << 20) -- the team of kernels starts
local threads, files = count "task", count "fd"

local function start(value, opts)
  local w = worker.start("worker_echo", value or {}, opts)
  local ok, hello = w:receive(10)
  assert(ok and hello.hello, tostring(hello))
  return w, hello.hello
end

do -- plain data and tensors, both ways; what is shared stays shared
  local x = accel.arange(6):view(2, 3)
  local w <close>, hello = start { x = x, list = { 1, 2.5, "three", true }, nested = { a = { b = x } } }
  same(hello.list, { 1, 2.5, "three", true }, "list")
  assert(hello.x:data_ptr() == x:data_ptr() and rawequal(hello.x, hello.nested.a.b), "one tensor, not copied")
  local view = x:select(2, 2)
  assert(not view:is_contiguous())
  for _, value in ipairs { 1, -1.5, "text", false, { 1, { 2 } }, x, view } do
    assert(w:send(value))
    local ok, back = w:receive(10)
    assert(ok)
    same(back, value, "value")
  end
  w:send(view)
  local _, back = w:receive(10)
  assert(back:data_ptr() == view:data_ptr() and not back:is_contiguous(), "a view stays one")
  back:fill_(9)
  assert(x[2][2]:item() == 9 and x[1][1]:item() == 0, "the same memory")
  local leaf = accel.ones(2, { requires_grad = true })
  local ok, err = pcall(w.send, w, { a = leaf * 2 })
  assert(not ok and err.code == "autograd", tostring(err))
  assert(tostring(err):find("a tensor that has a history at .a; detach() it", 1, true), tostring(err))
  w:send((leaf * 2):detach())
  _, back = w:receive(10)
  assert(not back.requires_grad and back:sum():item() == 4, "detached")
  says("cannot encode function at .f", w.send, w, { f = print })
  w:send { act = "fill" }
  _, back = w:receive(10)
  local live = accel.mem_stats().live_bytes
  assert(live >= 4 << 20 and back:mean():item() == 3)
  back:release()
  assert(w:send { act = "collect" } and w:receive(10))
  assert(accel.mem_stats().live_bytes < live - (3 << 20), "the one pool")
end

do -- tensors outlive the worker that made them
  local kept
  do
    local w <close> = start()
    w:send { act = "fill" }
    kept = select(2, w:receive(10))
  end
  kept:add_(1)
  assert(kept:mean():item() == 4)
  accel.collect()
end

do -- order, waiting, limits
  local w <close> = start({}, { most = 4, name = "order" })
  for i = 1, 3 do w:send { i } end
  for i = 1, 3 do assert(select(2, w:receive(10))[1] == i) end
  assert(w:receive(0) == false and w:receive(0.02) == false, "nothing there")
  w:send { act = "many", n = 30 } -- waits while there are four
  for i = 1, 30 do assert(select(2, w:receive(10)) == i) end
  w:send { act = "many", n = 30 }
  w:receive(10)
  for _ = 1, 3 do w:clear() end
  w:send { act = "loop" }
  local ok, err = pcall(function() for _ = 1, 20 do w:send(1) end end)
  assert(not ok and tostring(err):find "4 jobs are already waiting")
  says("expected 1 or more", worker.start, "worker_echo", {}, { most = 0 })
  says("bad option 'mots'", worker.start, "worker_echo", {}, { mots = 1 })
end

do -- how a worker ends: by itself, by errors of all kinds
  local w = start()
  w:send { act = "end" }
  local ok, why = w:receive(10)
  assert(ok == nil and why == nil)
  assert(w:send(1) == false, "nobody is there")
  w:close()
  says("the worker was closed", w.send, w, 1)
  w:close()
  for act, text in accel.pairs { fail = "worker_echo.lua:9: asked to fail", raise = "error object { code = \"shape\" }",
    exit = "os.exit(4) was called", rank = "a data worker is not a rank", global = "undeclared",
    binary = "load a binary chunk",
    closure = "cannot encode function at .f" } do
    local v <close> = start()
    v:send { act = act }
    ok, why = v:receive(10)
    assert(ok == nil and why and why:find(text, 1, true), act .. ": " .. tostring(why))
    assert(select(2, v:receive(10)) == why, "told again")
  end
  local none <close> = worker.start("no_such_module", {})
  ok, why = none:receive(10)
  assert(ok == nil and why:find("module 'no_such_module' not found", 1, true))
  says("cannot encode", worker.start, "worker_echo", { f = print })
end

do -- the worker's state is like this one: paths, one thread, the same pool
  package.path = "/nowhere/?.lua;" .. package.path
  local w <close> = start()
  w:send { act = "state" }
  local _, state = w:receive(10)
  assert(state.path == package.path and state.threads == 1 and state.live == accel.mem_stats().live_bytes)
  package.path = package.path:gsub("^[^;]*;", "")
end

do -- endless loops are interrupted, all workers at once
  local list = {}
  for i = 1, 4 do
    list[i] = start()
    list[i]:send { act = i % 2 == 0 and "loop" or "catch" }
  end
  assert(list[1]:receive(0.05) == false)
  local before = accel.clock()
  worker.close(list)
  assert(accel.clock() - before < 30, "closing takes " .. accel.clock() - before)
  says("was closed", list[1].receive, list[1])
end

do -- closing at any point, a thousand times
  for i = 1, 1000 do
    local w = worker.start("worker_echo", { accel.ones(4), i })
    if i % 2 == 0 then w:receive(10) end
    if i % 3 == 0 then w:send { accel.ones(8) } end
    if i % 5 == 0 then w:receive(0) end
    if i % 7 ~= 0 then w:close() end -- else the collector does
  end
  accel.collect()
end

do -- draws: numbers of their own, the script's untouched
  accel.manual_seed(3)
  math.randomseed(3)
  local want = { accel.rand(2):tolist(), math.random() }
  accel.manual_seed(3)
  math.randomseed(3)
  local d = worker.draws(7, 0)
  local function at(place)
    local _ <close> = d:enter(place)
    return { accel.rand(2):tolist(), math.random(), math.random(1 << 40) }
  end
  local first, second = at(0), at(1)
  same({ accel.rand(2):tolist(), math.random() }, want, "the script's numbers")
  same(at(0), first, "again")
  assert(first[2] ~= second[2] and first[1][1] ~= second[1][1])
  for _, other in ipairs { { 7, 1 }, { 8, 0 }, { -1, 0 } } do
    local e <close> = worker.draws(other[1], other[2]):enter(0)
    assert(math.random() ~= first[2])
    e:at(0)
    local again = math.random()
    e:at(0)
    assert(math.random() == again)
  end
  local ok = pcall(function()
    local _ <close> = d:enter(5)
    error "inside"
  end)
  assert(not ok)
  d:at(9)
  local list = {}
  for i = 1, 4 do
    local _ <close> = d:enter() -- goes on
    list[i] = math.random()
  end
  local _ <close> = d:enter(9)
  for i = 1, 4 do assert(math.random() == list[i]) end
  says("entered twice", d.enter, d)
end

accel.collect()
assert(settled("task", threads), ("%d threads, before %d"):format(count "task", threads))
assert(settled("fd", files), ("%d files, before %d"):format(count "fd", files))
local stays = worker.start("worker_echo", {}) -- luacheck: ignore
stays:send { act = "loop" } -- the end of the state ends it, too
print "worker: ok"
