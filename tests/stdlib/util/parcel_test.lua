-- Functions for other processes: code and values through accel.encode and back, in one process. Shared tables, variables and functions stay
-- shared, copies are independent of the originals, and what cannot be sent is named.
local accel = require "accel"
local parcel = require "accel.util.parcel"

local function sent(f) return parcel.unpack(accel.decode(accel.encode(assert(parcel.pack(f))))) end

-- a counter and its reader share a variable, in the copy as well, and not with the original
local n, list = 1, { 5, { deep = true } }
list.self = list
local function add(k) n = n + k return n end
local function read() return n, list end
local pair = sent(function() return add, read end)
local add2, read2 = pair()
assert(add2(4) == 5 and read2() == 5 and n == 1)
local _, copy = read2()
assert(copy[1] == 5 and copy[2].deep and copy.self == copy and copy ~= list)

-- recursion, libraries by name, functions of the standard library, tensors, nil
local w, none = accel.tensor { 1.5, 2.5 }, nil
local insert, fmt, floor = table.insert, string.format, math.floor
local function fact(k) return k < 2 and 1 or k * fact(k - 1) end
local f = sent(function(k)
  local t = {}
  insert(t, fact(k))
  return fmt("%d %s %s", t[1], none, floor(w:sum():item())), accel.ones(2):sum():item()
end)
local text, two = f(5)
assert(text == "120 nil 4" and two == 2)

-- globals that the code names are sent, others are not
rawset(_G, "helper", function(x) return x + 1 end)
rawset(_G, "unrelated", coroutine.create(function() end))
local p = assert(parcel.pack(function() return helper(1) end)) -- luacheck: ignore 113
assert(p.globals.helper and p.globals.helper[1] and not p.globals.unrelated)
local helper = _G.helper
rawset(_G, "helper", nil)
local g = parcel.unpack(accel.decode(accel.encode(p)))
assert(rawget(_G, "helper") ~= nil and rawget(_G, "helper") ~= helper and g() == 2)

-- a global that cannot be sent raises where it is used
rawset(_G, "opened", io.stdout)
p = assert(parcel.pack(function(use) return use and opened:seek() or "unused" end)) -- luacheck: ignore 113
rawset(_G, "opened", nil)
g = parcel.unpack(accel.decode(accel.encode(p)))
assert(g(false) == "unused")
local ok, why = pcall(g, true)
assert(not ok and tostring(why):find("cannot receive 'opened', which is a FILE*", 1, true), tostring(why))

local function refused(fn, expected)
  local r, reason = parcel.pack(fn)
  assert(r == nil and reason:find(expected, 1, true), tostring(reason))
end
local co, out, net = coroutine.create(print), io.stderr, accel.nn.Linear(2, 2)
local x = accel.ones(2):requires_grad_() * 2
local nested = { a = { b = co } }
local function inner() return co end
refused(function() return co end, "uses 'co', which is a thread; create it inside the function")
refused(function() return out end, "uses 'out', which is a FILE*")
refused(function() return net end, "uses 'net', which is an object (")
refused(function() return x end, "uses 'x', which is a tensor with a history; detach() it")
refused(function() return nested end, "uses 'nested', which has the entry a, which has the entry b, which is a thread")
refused(function() return inner() end, "uses 'inner', which uses 'co', which is a thread")
refused(print, "it is a function of C")
assert(not pcall(accel.process.function_of, "\27Lua", "=x") and not pcall(accel.process.function_of, "return 1", "=x"))
print "functions for other processes: right"
