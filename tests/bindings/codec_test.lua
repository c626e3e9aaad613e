-- accel.encode and accel.decode (bindings/base/codec.h has the format): round trips of plain data and tensors, sharing and
-- cycles, equal bytes for equal data, refusals by path, limits, and input that nobody encoded.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local encode, decode = accel.encode, accel.decode
local HEAD = "\x8dACD\1\0\0\0"

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
  assert(type(err) ~= "table" or not tostring(err):find("\n", 1, true), "one line")
end

local function refused(part, bytes, opts)
  local value, message, code = decode(bytes, opts)
  assert(value == nil and code == "parse" and message:find(part, 1, true), tostring(message))
end

local function back(v) return decode(encode(v)) end

-- ---- numbers, strings, booleans: kind and every bit ----
for _, i in ipairs { 0, 1, -1, 63, 64, -64, -65, 127, 128, 1 << 31, 1 << 62, math.maxinteger, math.mininteger } do
  local j = back(i)
  assert(j == i and math.type(j) == "integer")
end
for _, hex in ipairs { "0000000000000000", "8000000000000000", "7ff0000000000000", "fff0000000000000", "7ff8000000000000",
  "fff8000000000123", "7ff4000000000001", "0000000000000001", "3ff0000000000000", "4340000000000001" } do
  local f = string.unpack("<d", string.pack("<I8", math.tointeger("0x" .. hex)))
  local g = back(f)
  assert(math.type(g) == "float" and string.pack("<d", g) == string.pack("<d", f), hex)
end
for _, s in ipairs { "", "a", "abc", "abcd", "\0", "a\0b\0", "\xff\xfe", ("x"):rep(200000), ("%c"):rep(256, "%c") } do
  assert(back(s) == s)
end
assert(back(true) == true and back(false) == false and back(nil) == nil)
assert(select("#", decode(encode(nil))) == 1 and back(accel.json.null) == accel.json.null)
assert(encode(5) == HEAD .. "I\10" and encode(-1) == HEAD .. "I\1" and encode "abc" == HEAD .. "S\3abc")

-- ---- tables ----
local function same(a, b, seen) -- also in what is shared
  if rawequal(a, b) and type(a) ~= "table" then return true end
  if type(a) ~= type(b) or math.type(a) ~= math.type(b) then return false end
  if type(a) == "number" then return a == b or (a ~= a and b ~= b) end
  if accel.is_tensor(a) then
    return accel.is_tensor(b) and a.dtype == b.dtype and accel.equal(a, b) and #a.shape == #b.shape
  end
  if type(a) ~= "table" then return false end
  seen = seen or {}
  if seen[a] or seen[b] then return seen[a] == b and seen[b] == a end
  seen[a], seen[b] = b, a
  for k, v in next, a do
    if not same(v, rawget(b, k), seen) then return false end
  end
  for k in next, b do
    if rawget(a, k) == nil then return false end
  end
  return true
end

for _, t in ipairs { {}, { 1, 2, 3 }, { a = 1 }, { 1, 2, a = {}, [true] = 1, [false] = 2, [2.5] = 3, [-7] = 4 },
  { [1] = "a", [3] = "c" }, { nil, 2 }, { { { {} } } }, { [math.maxinteger] = 1, [math.mininteger] = 2, [2 ^ 63] = 3,
    [-2 ^ 63 * 2] = 4, [math.huge] = 5, [-math.huge] = 6, [1e300] = 7 }, { ["\0"] = "\0", [""] = "" } } do
  assert(same(t, back(t)))
end
local keys = {}
for k in accel.pairs(back { b = 1, a = 2, [3] = 3 }) do keys[#keys + 1] = tostring(k) end
assert(table.concat(keys, " ") == "3 a b")

local shared = { 1 }
local t = { shared, shared, x = shared, y = { 1 } }
local u = back(t)
assert(same(t, u) and u[1] == u[2] and u.x == u[1] and u.y ~= u[1])
local cycle = { name = "cycle" }
cycle.self, cycle.list = cycle, { cycle, { cycle } }
u = back(cycle)
assert(u.self == u and u.list[1] == u and u.list[2][1] == u and u.name == "cycle" and same(cycle, u))
local rows = {}
for i = 1, 100 do rows[i] = { learning_rate = i, accuracy = i / 2, split = "validation" } end
assert(#encode(rows) < 100 * 30, "names that repeat are written once") -- and not 100 * 58

-- Equal data gives equal bytes, however its tables came about.
local grown, straight = {}, { 1, 2, 3, alpha = 1, beta = 2, gamma = 3, [1.5] = 4, [true] = 5 }
for i = 1, 300 do grown["k" .. i], grown[i] = i, i end
for i = 300, 1, -1 do grown["k" .. i], grown[i] = nil, nil end
for _, k in ipairs { true, "gamma", 3, 1.5, "alpha", 2, "beta", 1 } do grown[k] = straight[k] end
assert(encode(grown) == encode(straight))
assert(encode { 1, 2, 3 } == HEAD .. "t\3\0I\2I\4I\6")
assert(encode { [false] = 1, [true] = 2, a = 3, b = 4, [0] = 5, [-1.5] = 6, [7] = 7 }
  == HEAD .. "t\0\7" .. "D" .. string.pack("<d", -1.5) .. "I\12" .. "I\0I\10" .. "I\14I\14" .. "S\1aI\6" .. "S\1bI\8"
  .. "FI\2" .. "TI\4")

-- Values of accel.json and ordered tables keep what they are.
local doc = accel.json.decode '{"a": [1, null, []], "b": {}, "c": 2.0}'
assert(accel.json.encode(back(doc)) == accel.json.encode(doc) and accel.json.encode(back(doc)) == '{"a":[1,null,[]],"b":{},"c":2.0}')
local o = ordered()
for _, k in ipairs { "zeta", "alpha", "mid", "beta" } do o[k] = #k end
o.alpha = nil
u = back { o, o }
assert(u[1] == u[2] and ordered.is(u[1]))
keys = {}
for k, v in u[1] do keys[#keys + 1] = k .. v end
assert(table.concat(keys, " ") == "zeta4 mid3 beta4")
u[1].new = 1
keys = {}
for k in u[1] do keys[#keys + 1] = k end
assert(table.concat(keys, " ") == "zeta mid beta new", "and goes on as one")
local dict = accel.nn.Linear(3, 2):state_dict()
u = back(dict)
assert(ordered.is(u) and accel.equal(u.weight, dict.weight) and accel.equal(u.bias, dict.bias))

-- ---- tensors ----
for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8" } do
  local x = accel.arange(-3, 9):abs():to(dtype):view(3, 4)
  local y = back(x)
  assert(y.dtype == dtype and accel.equal(x, y) and y:is_contiguous())
end
local flags = accel.tensor { true, false, true }
assert(same(back(flags), flags))
local x = accel.arange(24):view(2, 3, 4)
for _, v in ipairs { x:transpose(1, 3), x[2], x:narrow(2, 2, 2), x[1][1]:expand(5, 4), accel.tensor(2.5), accel.zeros(0, 3),
  accel.zeros(2, 0, 5), accel.full({}, 3) } do
  local y = back(v)
  assert(accel.equal(y, v) and y.dtype == v.dtype and #y.shape == #v.shape and y:is_contiguous())
end
u = back { x, x, { x }, y = x:clone() }
assert(u[1] == u[2] and u[3][1] == u[1] and u.y ~= u[1])
local w = accel.nn.Linear(2, 2).weight
u = back { w, (w * 2) }
assert(not u[1].requires_grad and not u[2].requires_grad and accel.equal(u[1], w:detach()))
assert(w.requires_grad and accel.is_grad_enabled())
local nothing = back(accel.zeros(3, 4, { device = "meta", dtype = "bf16" }))
assert(nothing.device == "meta" and nothing.dtype == "bf16" and nothing.shape[2] == 4)
local elsewhere = decode(encode(accel.ones(3)), { device = "meta" })
assert(elsewhere.device == "meta" and elsewhere.shape[1] == 3)

-- As a tensor of bytes and back, without a string in between.
local bytes = encode({ x, "text" }, { tensor = true })
assert(bytes.dtype == "u8" and #bytes.shape == 1 and bytes.shape[1] == #encode { x, "text" })
assert(same(decode(bytes), { x, "text" }))
fails("expected string or contiguous u8 tensor", decode, x)
fails("expected string or contiguous u8 tensor", decode, bytes:narrow(1, 1, 8):view(2, 4))
assert(decode(bytes:narrow(1, 1, bytes.shape[1] - 1)) == nil)

-- ---- what does not travel, by path ----
fails("cannot encode function at .a.b[3]; ", encode, { a = { b = { 1, 2, print } } })
fails("encode: cannot encode function; ", encode, print)
fails("codec_test.lua:", encode, print)
fails("cannot encode thread at [1]", encode, { coroutine.create(print) })
fails("cannot encode accel.Generator at .g", encode, { g = accel.Generator() })
fails("cannot encode FILE* at [\"a b\"]", encode, { ["a b"] = io.stdout })
fails("cannot encode function at [-2][2.5][true].x1", encode, { [-2] = { [2.5] = { [true] = { x1 = print } } } })
fails("cannot encode table as a key at .t; keys are numbers", encode, { t = { [{}] = 1 } })
fails("cannot encode f32 tensor as a key", encode, { [accel.ones(1)] = 1 })
fails("cannot encode table with a metatable at .m; only tables without", encode, { m = setmetatable({}, {}) })
fails("cannot encode accel.nn.Linear at .model[1]; give its state_dict()", encode, { model = { accel.nn.Linear(1, 1) } })
local gone = accel.ones(2)
gone:release()
fails("cannot encode released tensor at [2]", encode, { 1, gone })
local long = print
for i = 1, 150 do long = { ["name" .. i] = long } end
fails("at ...", encode, long)
fails(".name2.name1;", encode, long)
fails("no such option; did you mean 'tensor'?", encode, 1, { tensors = true })
fails("bad argument #1", encode)
fails("bad argument #1 'bytes' to 'decode' (expected string or u8 tensor, got table)", decode, {})

-- ---- limits ----
local deep = {}
for _ = 1, 199 do deep = { deep } end
assert(same(back(deep), deep))
fails("nest more than 200 deep at ...[1]", encode, { deep })
local endless = {}
for _ = 1, 100000 do endless = { endless } end
fails("nest more than 200 deep", encode, endless)
refused("nest more than 200 deep", HEAD .. ("t\1\0"):rep(201) .. "N")
refused("nest more than 200 deep", HEAD .. ("t\1\0"):rep(1000000))
refused("nest more than 200 deep", HEAD .. ("o\1S\1k"):rep(300) .. "N" .. ("N"):rep(600))
local size = #encode(rows)
assert(encode(rows, { max_bytes = size }) and decode(encode(rows), { max_bytes = size }))
fails("more than " .. size - 1 .. " bytes at [100]", encode, rows, { max_bytes = size - 1 })
refused("more than the option max_bytes", encode(rows), { max_bytes = size - 1 })
for _, v in ipairs { "x", ("x"):rep(100), accel.zeros(100), { 1 }, 1.5, true } do
  for n = 0, #encode(v) - 1, 7 do fails("bytes", encode, v, { max_bytes = n }) end
end
fails("must not be negative", encode, 1, { max_bytes = -1 })
collectgarbage()
local before, live = collectgarbage "count", accel.live()
for _, claim in ipairs { "t\xff\xff\xff\xff\x0f\0", "t\0\xff\xff\xff\xff\x0f", "S\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
  "o\xff\xff\xff\xff\x0f", "R\5", "R\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", "X\3f32\1\1\xff\xff\xff\xff\x0f",
  "X\3f32\1\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
  "X\3f32\1\3\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\1", "X\3f32\0\2\xff\xff\xff\xff\xff\xff\xff\xff\x7f\2" } do
  local value, message, code = decode(HEAD .. claim)
  assert(value == nil and code == "parse" and message:find("byte", 1, true), message)
end
assert(collectgarbage "count" - before < 64 and accel.live() == live)

-- ---- bytes that encode does not write ----
refused("0 bytes that accel.encode did not write", "")
refused("did not write", "hello, this is text")
refused("format 2, this one reads 1", "\x8dACD\2\0\0\0N")
refused("byte 8: the data ends before a value", HEAD)
refused("byte 8: no value begins with 71", HEAD .. "q")
refused("byte 8: no value begins with 00", HEAD .. "\0")
refused("1 bytes after the value", HEAD .. "NN")
refused("longer than necessary", HEAD .. "I\x80\0")
refused("more than 64 bits", HEAD .. "I\xff\xff\xff\xff\xff\xff\xff\xff\xff\2")
refused("nil in a table", HEAD .. "t\1\0N")
refused("nil in a table", HEAD .. "t\0\1TN")
refused("not a number, string or boolean", HEAD .. "t\0\1NT")
refused("not a number, string or boolean", HEAD .. "t\0\1t\0\0T")
refused("not a number, string or boolean", HEAD .. "t\0\1X\3f32\1\0\0\0\0\0T")
refused("a table as a key", HEAD .. "t\0\1R\0T")
refused("which must be an integer", HEAD .. "t\0\1D" .. string.pack("<d", 2) .. "T")
refused("which must be an integer", HEAD .. "t\0\1D" .. string.pack("<d", -0.0) .. "T")
refused("which must be an integer", HEAD .. "t\0\1D" .. string.pack("<d", 0 / 0) .. "T")
refused("keys out of order", HEAD .. "t\0\2S\1bTS\1aT")
refused("keys out of order", HEAD .. "t\0\2S\1aTS\1aT")
refused("keys out of order", HEAD .. "t\0\2TTI\10T")
refused("key 3, which belongs into the list of 2", HEAD .. "t\2\1TTI\6T")
refused("a duplicate key", HEAD .. "o\2S\1aTS\1aT")
refused("an unknown dtype", HEAD .. "X\3f31\1\0\0\0\0\0")
refused("an unknown dtype", HEAD .. "X\7float32\1\0\0\0\0\0")
refused("an unknown dtype", HEAD .. "X\3f\0" .. "2\1\0\0\0\0\0")
refused("neither 0 nor 1", HEAD .. "X\3f32\2\0\0\0\0\0")
refused("17 dims", HEAD .. "X\3f32\1\17" .. ("\1"):rep(17) .. "\0\0\0\0")
refused("7 in a bool tensor", HEAD .. "X\4bool\1\1\2\1\7")
assert(decode(HEAD .. "X\2u8\1\1\2\1\7"):tolist()[2] == 7)

-- Any value cut short, or with a byte changed, is refused or is another value that travels.
local sample = encode { 1, -2.5, "text", "text", { a = x:narrow(1, 1, 1), b = { [true] = flags } }, o, doc, cycle }
for n = 0, #sample - 1 do refused("", sample:sub(1, n)) end
local taken = 0
for i = 1, #sample do
  for _, c in ipairs { 0, 1, 2, 0x7f, 0x80, 0xff, ("t"):byte(), ("R"):byte(), ("o"):byte(), sample:byte(i) ~ 1 } do
    local v, _, code = decode(sample:sub(1, i - 1) .. string.char(c) .. sample:sub(i + 1))
    if code == nil then
      taken = taken + 1
      local again = encode(v)
      assert(encode(decode(again)) == again)
    else
      assert(code == "parse", code)
    end
  end
end
assert(taken > 100)

-- ---- random graphs ----
math.randomseed(7)
local pick = math.random
local function random_value(depth, pool)
  local kind = pick(depth > 5 and 6 or 9)
  if kind == 1 then return pick(0) end
  if kind == 2 then return pick() * 2.0 ^ pick(-60, 60) end
  if kind == 3 then return pick(2) == 1 end
  if kind == 4 then return ("s"):rep(pick(0, 9)) .. string.char(pick(0, 255)) end
  if kind == 5 then return pick(-300, 300) end
  if kind == 6 then return #pool > 0 and pool[pick(#pool)] or 0 end
  if kind == 7 then
    local y = accel.rand(pick(0, 3), pick(0, 3)):to(({ "f32", "f16", "i8" })[pick(3)])
    pool[#pool + 1] = y
    return y
  end
  local v = {}
  pool[#pool + 1] = v
  for _ = 1, pick(0, 6) do
    local key = pick(3) == 1 and #v + 1 or random_value(6, {})
    if key ~= key then key = 1 end
    v[key] = random_value(depth + 1, pool)
  end
  return v
end
for _ = 1, 400 do
  local v = random_value(0, {})
  local text = encode(v)
  local got = decode(text)
  assert(same(v, got) and encode(got) == text)
end

-- ---- code that runs meanwhile may change what is being written: finalizers do; ordered tables call Lua for sure ----
local function meddled(value, change) -- change() runs while an ordered table inside value is written
  local first = true
  debug.sethook(function()
    if first and debug.getinfo(2, "S").source:find("util/ordered.lua", 1, true) then
      first = false
      change()
    end
  end, "c")
  local ok, result = pcall(encode, value)
  debug.sethook()
  assert(not first)
  return ok, tostring(result)
end
local prey, ok, result = { 1, o, { "one" }, { "two" } }, nil, nil
ok, result = meddled(prey, function() prey[4] = nil end)
assert(not ok and result:find("a table changed while it was read", 1, true), result)
prey = { a = o, b = { 1 }, c = { 2 } }
ok, result = meddled(prey, function() prey.c = nil collectgarbage() end)
assert(not ok and result:find("a table changed while it was read", 1, true), result)
prey = { accel.ones(2), o, accel.ones(2) }
ok, result = meddled(prey, function() prey[3]:release() end)
assert(not ok and result:find("cannot encode released tensor at [3]", 1, true), result)
prey = { accel.ones(3), o, 0 }
ok, result = meddled(prey, function()
  prey[1]:release() -- were it freed, the next one would take its address
  prey[3] = accel.full({ 3 }, 7)
end)
assert(ok and decode(result)[3]:tolist()[1] == 7)

local caught = 0
for round = 1, 20 do
  prey = { list = {}, tensors = {} }
  for i = 1, 500 do prey.list[i], prey.tensors["t" .. i] = { tostring(i) .. "_" .. round }, accel.ones(i % 5 + 1) end
  for _ = 1, 50 do
    setmetatable({}, { __gc = function()
      caught = caught + 1
      local name, y = next(prey.tensors)
      if name then prey.tensors[name] = nil end
      if y then y:release() end
    end })
  end
  collectgarbage("incremental", 100, 400)
  local before_run = caught
  ok, result = pcall(encode, prey)
  collectgarbage("generational", 20, 30)
  result = tostring(result)
  assert(ok or result:find("changed", 1, true) or result:find("released", 1, true), result)
  if not ok then assert(caught > before_run) end
end
assert(caught > 0)
prey = { tensors = {} }
accel.collect()
