-- accel.json: bindings/base/lac_json.c (the format itself is tested with host/base/json.h).
local accel = require "accel"
local json = accel.json

local function fails(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end

local v = json.decode [=[{"a": [1, -2.5, "x\u00e9", true, null, []], "b": {"c": {}}, "n": null, "e": 1e3}]=]
assert(v.a[1] == 1 and math.type(v.a[1]) == "integer" and v.a[2] == -2.5 and v.a[3] == "x\xc3\xa9"
  and v.a[4] == true)
assert(v.a[5] == json.null and #v.a[6] == 0 and next(v.b.c) == nil and v.n == nil
  and math.type(v.e) == "float")
assert(json.encode(v) == '{"a":[1,-2.5,"x\xc3\xa9",true,null,[]],"b":{"c":{}},"e":1000.0}')
assert(json.decode("3") == 3 and json.decode('"s"') == "s" and json.decode("null") == json.null)

-- Keys in sorted order, whatever the table; arrays by contents or by mark.
assert(json.encode { z = 1, a = 2, m = { 1, 2 } } == '{"a":2,"m":[1,2],"z":1}')
assert(json.encode {} == "{}" and json.encode(json.array {}) == "[]" and json.encode(json.array()) == "[]")
assert(json.encode({ a = { 1 } }, { pretty = true }):find("\n  \"a\": ", 1, true))
assert(json.encode("q\"\\\n\0") == [=["q\"\\\n\u0000"]=])
local big = {}
for i = 1, 1000 do big[("k%04d"):format(i)] = { i, tostring(i) } end
local again = json.decode(json.encode(big))
for i = 1, 1000 do assert(again[("k%04d"):format(i)][2] == tostring(i)) end
for _, x in ipairs { 0.1, 1 / 3, 1e300, -0.0, math.maxinteger, math.mininteger } do
  local y = json.decode(json.encode(x))
  assert(y == x and math.type(y) == math.type(x))
end

-- The order of a text is kept on request, at every depth, also of members that are set later and of repeated writing.
do
  local ordered = require "accel.util.ordered"
  local text <const> = '{"z":1,"a":{"y":[{"q":null,"b":2}],"x":{}},"m":"t"}'
  local t = json.decode(text, { ordered = true, nulls = true })
  assert(ordered.is(t) and ordered.is(t.a.y[1]) and json.encode(t) == text)
  assert(json.encode(json.decode(text)) == '{"a":{"x":{},"y":[{"b":2}]},"m":"t","z":1}')
  assert(json.encode(json.decode(text, { ordered = true })) == '{"z":1,"a":{"y":[{"b":2}],"x":{}},"m":"t"}')
  t.new, t.z, t.m = 1, nil, "n"
  assert(json.encode(t) == '{"a":{"y":[{"q":null,"b":2}],"x":{}},"m":"n","new":1}')
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  assert(table.concat(keys, " ") == "a m new")
  assert(json.encode(t.a, { pretty = true }):find '"y".*"x"' and json.encode(ordered()) == "{}")
  fails("a key that is not a string", json.encode, setmetatable({}, { __pairs = function() return next, { 1 } end }))
  fails("line 1", json.decode, '{"a":', { ordered = true })
end

fails("line 1", json.decode, "[1,")
fails("", json.decode, '{"a":1,"a":2}')
fails("expected string", json.decode, 3)
fails("positions and names", json.encode, { 1, a = 2 })
fails("neither a string nor a position", json.encode, { [1.5] = 2 })
fails("cannot write function", json.encode, { print })
fails("cannot write NaN", json.encode, 0 / 0)
fails("cannot write infinity", json.encode, -1 / 0)
fails("text that is not UTF-8", json.encode, "\xff")
fails("cannot write NaN at history[2].loss", json.encode, { history = { { loss = 1 }, { loss = 0 / 0 } } })
fails("cannot write infinity at a.b[3]", json.encode, { a = { b = { 1, 2, 1 / 0 } } })
fails("not UTF-8 at names[1]", json.encode, { names = { "\xff" } })
fails("cannot write function at f", json.encode, { f = print })
fails("not UTF-8 at x", json.encode, { x = { ["\xff"] = 1 } })
local cycle = {}
cycle.x = cycle
fails("levels", json.encode, cycle)
