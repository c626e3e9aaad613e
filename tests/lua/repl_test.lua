-- What a prompt is made of, without a terminal: lua/repl.
local accel = require "accel"
local Session = accel.host_chunk "repl/session"
local Frames = accel.host_chunk "repl/frames"
local commands = accel.host_chunk "repl/commands"
local complete = accel.host_chunk "repl/complete"
local show = accel.host_chunk "repl/show"

local function list_has(list, ...)
  for _, want in ipairs { ... } do
    local found = false
    for _, x in ipairs(list) do found = found or x == want end
    assert(found, ("'%s' is not in %s"):format(want, accel.inspect(list)))
  end
end

-- Whole or not.
for _, text in ipairs { "1 +", "f(", "if x then", "x = {", "local function f()", "[[text", "for i = 1, 2 do print(i)", "x =",
  "function f(a) return a", "local t = {", "f{", "a.b =" } do
  assert(Session.incomplete(text), text)
end
for _, text in ipairs { "1 + 1", "x", "end", "f(", "= 1", "x y", "\"text", "local x", "return 1", "f()", "-- comment", "" } do
  if text ~= "f(" then assert(not Session.incomplete(text), text) end
end

do
  local session <close> = Session.new()
  local function value(text, line)
    local r = session:evaluate(text, line or 1)
    assert(r.ok, r.message)
    return table.unpack(r, 1, r.n)
  end
  -- Values, _, names that stay.
  assert(value "1 + 1" == 2 and value "_ + 1" == 3)
  assert(select("#", value "x1 = 5") == 0 and value "x1" == 5 and rawget(_G, "x1") == 5)
  value "local kept = 3"
  assert(value "kept" == 3 and rawget(_G, "kept") == nil)
  value "local kept, more = 4"
  assert(value "kept" == 4 and value "more == nil")
  value "local function twice(n) return n * 2 end"
  assert(value "twice(kept)" == 8)
  value "kept = kept + 1; function bump() kept = kept + 1 end"
  value "bump()"
  assert(value "kept" == 6)
  value "local print = print"
  assert(value "print == _G.print")
  local a, b, c = value "1, nil, 3"
  assert(a == 1 and b == nil and c == 3)
  assert(value "do local hidden = 1 end return 7" == 7)
  -- Errors: their line, their traceback, and what follows.
  local r = session:evaluate("local function bad() error('wrong') end bad()", 12)
  assert(not r.ok and r.message == "stdin:12: wrong" and r.deep and r.trace:find "stdin:12: in main chunk", r.trace)
  assert(not r.trace:find "lua/repl", r.trace)
  r = session:evaluate("nowhere", 3)
  assert(not r.ok and r.message:find("stdin:3: undeclared global 'nowhere'", 1, true), r.message)
  r = session:evaluate("x y", 4)
  assert(not r.ok and not r.incomplete and r.message:find "^stdin:4: ", r.message)
  r = session:evaluate("f(", 4)
  assert(r.incomplete)
  r = session:evaluate("error({ code = 3 })", 5)
  assert(not r.ok and r.message == "error object { code = 3 }", r.message)
  -- What an error left behind stays until the next one.
  value "1"
  assert(commands.run(session, "bt", "", 6, 80).lines[1] == "error object { code = 3 }")
  r = session:evaluate("error(setmetatable({}, { __tostring = function() error 'no' end }))", 5)
  assert(not r.ok and r.message)
  assert(select(2, value "pcall(error, 'x')") == "x")
  -- Coroutines still are what they were.
  assert(value "coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end)(1)" == 2)
  local ok, why = value "pcall(coroutine.wrap(function() error('inside', 0) end))"
  assert(not ok and why == "inside")
  assert(value "coroutine.isyieldable()" == coroutine.isyieldable())
  assert(value "select('#', coroutine.resume(coroutine.create(function() return 1, 2 end)))" == 3)
  -- Commands.
  local answer = commands.run(session, "type", "1, string, 'x'", 1, 80)
  assert(answer.ok and answer.lines[1] == "integer" and answer.lines[3] == "string", accel.inspect(answer))
  answer = commands.run(session, "time", "1 + 1", 1, 80)
  assert(answer.ok and answer.lines[1] == "2" and answer.lines[2]:find "s$", accel.inspect(answer))
  answer = commands.run(session, "time", "for i = 1, 9 do end", 1, 80)
  assert(answer.ok and #answer.lines == 1 and answer.lines[1]:find "^[%d.]+ .?s$", accel.inspect(answer))
  rawset(session.kept, "accel", accel)
  answer = commands.run(session, "time", "accel.ones(1000)", 1, 80)
  assert(answer.ok and answer.lines[#answer.lines]:find "s, tensors up to [%d.]+ KiB more$", accel.inspect(answer))
  assert(commands.unknown("tpye", 7) == "stdin:7: no command :tpye; did you mean :type?")
  -- Own names before the library's.
  session.kept.linear = accel.nn.Linear(1, 1)
  session.predefined.accel = true
  local kind, own = commands.kind(session, "linear")
  assert(kind == "linear: accel.nn.Linear" and own, kind)
  kind, own = commands.kind(session, "accel")
  assert(kind == "accel: module accel" and not own, kind)
  kind, own = commands.kind(session, "string")
  assert(kind:find "^string: table of" and not own, kind)
  assert(commands.kind(session, "matmul") == nil)
  value "made_here = 1"
  assert(select(2, commands.kind(session, "made_here")))
  local said
  local function say(lines) said = table.concat(lines, "\n") end
  assert(commands.explain("linear", "linear: x", true, 80, say) and said == "linear: x")
  assert(commands.explain("no_such_1", "no_such_1: x", false, 80, say) and said == "no_such_1: x")
  local found, none = commands.explain("no_such_1", nil, false, 80, say)
  assert(not found and none:find "no_such_1" and not none:find "accel%-run", none)
  rawset(_G, "linear", nil)
  -- Whom an input is for.
  for text, want in accel.pairs { ["@0,2 x = 1"] = "0,2", ["@all x = 1"] = "all", [" @0-1 x = 1"] = "0-1",
    [":on 0,2 x = 1"] = "0,2", [":all x = 1"] = "all", ["@x x = 1"] = "x" } do
    local list, code = commands.addressed(text)
    assert(list == want and code == "x = 1", text)
  end
  assert(select(2, commands.addressed "@0") == "" and commands.addressed "x = 1" == nil
    and commands.addressed ":allx 1" == nil)
  assert(not commands.run(session, "type", "", 1, 80).ok and commands.run(session, "nothing", "", 1, 80) == nil)
  assert(not commands.run(session, "up", "", 1, 80).ok)
  assert(commands.split ":time f(x) " == "time" and select(2, commands.split ":time f(x) ") == "f(x)")
  assert(commands.split "matmul?" == "doc" and commands.split "1 + 1" == nil)
  for _, what in ipairs { {}, { ranks = true, paused = true } } do
    for _, line in ipairs(commands.help_lines(what)) do assert(#line <= 80, line) end
  end
  -- Completion.
  session.kept.accel, session.kept.optim = accel, accel.optim
  session.kept.model = accel.nn.Linear(2, 3)
  session.kept.t = accel.ones(2)
  list_has(complete.words(session, "mod", "mod"), "model")
  list_has(complete.words(session, "accel.nn.Lin", "accel.nn.Lin"), "accel.nn.Linear")
  list_has(complete.words(session, "accel.opt", "accel.opt"), "accel.optim")
  list_has(complete.words(session, "x = t:s", "t:s"), "t:sum", "t:softmax")
  list_has(complete.words(session, "t.sh", "t.sh"), "t.shape")
  list_has(complete.words(session, "t.", "t."), "t.dtype", "t.requires_grad", "t.sum")
  list_has(complete.words(session, "model:par", "model:par"), "model:parameters")
  list_has(complete.words(session, "model.w", "model.w"), "model.weight")
  for _, word in ipairs(complete.words(session, "model:", "model:")) do -- what is called on a module, and no more
    assert(not word:find "alloc" and not word:find "is_module" and not word:find "not_a_" and word ~= "model:init", word)
  end
  list_has(complete.words(session, "x = t:sum({ keep", "keep"), "keepdim")
  list_has(complete.words(session, "accel.sum(t, { ke", "ke"), "keepdim")
  list_has(complete.words(session, "accel.cross_entropy(a, b, { ignore", "ignore"), "ignore_index")
  list_has(complete.words(session, "require \"accel.da", "accel.da"), "accel.data")
  list_has(complete.words(session, ":ti", ":ti"), ":time")
  list_has(complete.words(session, "whi", "whi"), "while")
  if accel.host_chunk("help").lines("optim.SGD") then
    list_has(complete.words(session, "optim.SGD(p, { l", "l"), "lr")
    list_has(complete.words(session, "optim.SGD(p, { lr = 1, mom", "mom"), "momentum")
    list_has(complete.words(session, "accel.tensor({1}, { dt", "dt"), "dtype")
    list_has(complete.words(session, "accel.ones(2, { requires", "requires"), "requires_grad")
  end
  list_has(complete.words(session, "string.fo", "string.fo"), "string.format")
  assert(#complete.words(session, "nothing.there", "nothing.there") == 0)
  assert(#complete.words(session, "print(\"acc", "acc") == 0, "not inside a text")
end

-- What is shown.
local function shown(...) return table.concat(show.values({ n = select("#", ...), ... }, 80), "\n") end
assert(shown(1, "a", nil) == '1  "a"  nil')
assert(shown(accel.tensor { 1.0, 2, 3 }):find("^f32 %(3%) cpu  min 1 max 3 mean 2 std 0.8165\ntensor"))
assert(shown(accel.tensor { 0.0, 1 / 0, 0 / 0 }):find "1 nan 1 inf")
assert(shown(accel.tensor { true, false }):find "1 true of 2")
assert(shown(accel.zeros(0, 2)):find "^f32 %(0, 2%) cpu")
assert(shown(accel.zeros(2, { device = "meta" })):find "^f32 %(2%) meta")
assert(shown(accel.ones(2, { requires_grad = true })):find "requires_grad, no grad")
assert(shown((accel.ones(2, { requires_grad = true }) * 2)):find "grad_fn")
assert(select(2, shown(accel.randn(500, 500)):gsub("\n", "")) < 20)
assert(shown(accel.tensor { 0 / 0, 1.0 }):find "mean nan std nan\n" and shown(-(0 / 0)) == shown(0 / 0))
assert(shown(accel.nn):find "^module accel.nn: %d+ names, TAB shows them; :help nn$", shown(accel.nn))
assert(shown(accel):find "^module accel: %d%d%d+ names", shown(accel))
assert(shown(accel.nn.Linear) == "class accel.nn.Linear" and shown(package.loaded["accel.util.class"]):find "^module ")
assert(shown({}) == "{}" and show.type(accel.optim) == "module accel.optim")
for what, guard in accel.pairs { no_grad = accel.no_grad(), scope = accel.scope(), guard = accel.util.guard(print) } do
  assert(shown(guard) == what .. ", open; :close() ends it", shown(guard))
  guard:close()
  assert(shown(guard) == what .. ", closed", shown(guard))
end
assert(accel.is_grad_enabled())
assert(show.is_nothing { n = 0 } and show.is_nothing { n = 1 } and show.is_nothing { n = 1, io.stdout })
assert(not show.is_nothing { n = 2 } and not show.is_nothing { n = 1, false })
local released = accel.ones(1)
released:release()
assert(shown(released):find "released")
local many = {}
for i = 1, 5000 do many[i] = { i } end
assert(select(2, shown(many):gsub("\n", "")) <= 61)

-- Locals of a function that stands, also from inside a coroutine, in recursion, after its callees have come and
-- gone.
local up = "upvalue"
local function probe(n, ...)
  local x, y = n * 10, nil
  do
    local x = "inner" -- luacheck: ignore
    if n > 0 then return (probe(n - 1, ...)) end
    local frames = Frames.capture(1)
    local function deeper(k) return k == 0 and frames:get "x" and select(2, frames:get "x") or deeper(k - 1) end
    assert(select(2, frames:get "x") == "inner" and deeper(5) == "inner")
    assert(select(2, frames:get "up") == "upvalue" and not frames:get "nothing" and frames:get "y")
    assert(frames:set("y", 7) and y == 7 and frames:set("up", "changed") and up == "changed")
    assert(coroutine.wrap(function() return select(2, frames:get "n") end)() == 0)
    assert(coroutine.wrap(function() return frames:set("y", 8) end)() and y == 8)
    local varargs = frames:varargs()
    assert(varargs.n == 2 and varargs[1] == "v" and varargs[2] == nil)
    assert(frames:move(1) and select(2, frames:get "n") == 1 and select(2, frames:get "x") == "inner")
    assert(frames:move(-1) and not frames:move(-1))
    local names = {}
    for _, v in ipairs(frames:variables()) do names[v.name] = v.kind end
    assert(names.n == "local" and names.up == "upvalue" and names.frames == "local")
    assert(frames:lines()[1]:find "^%* " and #frames:lines() >= 2)
    return x
  end
end
assert(probe(2, "v", nil) == "inner")
up = "upvalue"
assert(coroutine.wrap(probe)(1, "v", nil) == "inner")

do -- callers: their locals where they are selected, and where they are told of
  local function inner(x)
    local a = x + 1
    local session <close> = Session.new(Frames.capture(1))
    local function value(text)
      local r = session:evaluate(text, 1)
      assert(r.ok, r.message)
      return r[1]
    end
    assert(value "a" == 9 and value "x" == 8)
    local r = session:evaluate("b", 1)
    assert(not r.ok and r.message:find("undeclared global 'b'; a local of that name is at :up (", 1, true), r.message)
    r = session:evaluate("outermost", 1)
    assert(not r.ok and r.message:find("at :up 2 (", 1, true), r.message)
    assert(commands.run(session, "up", "", 1, 80).ok and value "b" == 8)
    assert(commands.run(session, "bt", "", 1, 80).lines[#session.frames.list] ~= nil)
    local lines = session.frames:lines()
    assert(lines[1]:find "^  " and lines[2]:find "^%* " and lines[3]:find "^  ", accel.inspect(lines))
    value "b = 80"
    r = session:evaluate("a", 1)
    assert(not r.ok and r.message:find("at :down (", 1, true), r.message)
    assert(commands.run(session, "down", "", 1, 80).ok and value "a" == 9)
    assert(commands.run(session, "up", "2", 1, 80).ok and value "outermost" == 4)
    assert(not commands.run(session, "up", "100", 1, 80).ok and value "outermost" == 4)
    assert(not commands.run(session, "down", "3", 1, 80).ok and commands.run(session, "down", "2", 1, 80).ok)
    assert(commands.run(session, "up", "x", 1, 80).message:find "'x' is not a number")
    return a
  end
  local function middle(y)
    local b = y * 2
    local r = inner(b)
    return r + b
  end
  local function outer()
    local outermost = 4
    local r = middle(outermost)
    return r
  end
  assert(outer() == 89)
end

-- One prompt has the terminal; its Ctrl-C handler goes with it.
do
  local a <close> = accel.console.session()
  local b <close> = accel.console.session()
  b:begin()
  assert(b:finish() == 0)
end
assert(not pcall(accel.repl, 3))
