-- coroutine.resume and coroutine.wrap of a host that listens (attach_coroutines.c): they do what Lua's own do.
local function pack(...) return table.pack(...) end
local function is(got, ...)
  local want = table.pack(...)
  assert(got.n == want.n, ("%d results, not %d"):format(got.n, want.n))
  for i = 1, want.n do assert(got[i] == want[i], ("result %d is %s, not %s"):format(i, got[i], want[i])) end
end

-- values in, out, between
local co = coroutine.create(function(a, b)
  local c = coroutine.yield(a + b)
  return c, nil, 7
end)
is(pack(coroutine.resume(co, 1, 2)), true, 3)
is(pack(coroutine.resume(co, 5)), true, 5, nil, 7)
is(pack(coroutine.resume(co)), false, "cannot resume dead coroutine")
is(pack(coroutine.resume(coroutine.create(function(...) return select("#", ...) end), nil, nil)), true, 2)

-- errors: as values from resume, with the caller's line before a text from wrap, as they are otherwise
local thing = {}
is(pack(coroutine.resume(coroutine.create(function() error(thing) end))), false, thing)
local ok, err = pcall(coroutine.wrap(function() error(thing) end))
assert(not ok and err == thing)
ok, err = pcall(function() coroutine.wrap(function() error("boom", 0) end)() end)
assert(not ok and err:find "attach_coroutines_test.lua:%d+: boom$", err)
ok, err = pcall(coroutine.resume, 5)
assert(not ok and err:find "bad argument #1 to '[%w.]+' %(%w+ expected, got number%)", err)
assert(not pcall(coroutine.wrap, 5))

-- what is to be closed is closed when a wrapped function fails, once, and may change the error
local closed = 0
local failing = coroutine.wrap(function()
  local _ <close> = setmetatable({}, { __close = function()
    closed = closed + 1
    error(thing)
  end })
  error "first"
end)
ok, err = pcall(failing)
assert(not ok and err == thing and closed == 1)
ok, err = pcall(failing)
assert(not ok and err:find "cannot resume dead coroutine", err)

-- itself, the main thread, one in another, deep ones
local own
own = coroutine.create(function() return coroutine.resume(own) end)
is(pack(coroutine.resume(own)), true, false, "cannot resume non-suspended coroutine")
is(pack(coroutine.resume(coroutine.running())), false, "cannot resume non-suspended coroutine")
local function depth(n) return n == 0 and 0 or 1 + coroutine.wrap(depth)(n - 1) end
assert(depth(100) == 100)
ok, err = pcall(depth, 1000)
assert(not ok and err:find "C stack overflow", err)
local list = {}
for a, b in coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i, i * i) end end) do list[#list + 1] = a + b end
assert(table.concat(list, " ") == "2 6 12")
assert(coroutine.wrap(function() return coroutine.isyieldable() end)())

-- more values than a stack has room for
ok, err = coroutine.resume(coroutine.create(function() return table.unpack({}, 1, 1e6 - 100) end))
assert(ok or tostring(err):find "too many results", err)
