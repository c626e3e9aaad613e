-- Sorted pairs: lua/pairs.lua, the global of the host.
local accel = require "accel"

local function order(t, each)
  local keys = {}
  for key in (each or pairs)(t) do keys[#keys + 1] = tostring(key) end
  return table.concat(keys, " ")
end

local t = { b = 1, a = 2, [3] = 3, [1] = 4, [2.5] = 5, [true] = 6, [false] = 7, [-1] = 8 }
assert(order(t) == "-1 1 2.5 3 a b false true")
assert(order(t, accel.pairs) == order(t))
assert(order({}) == "" and order { 5, 6, 7 } == "1 2 3")
local many = {}
for i = 1, 500 do many[("k%03d"):format((i * 7919) % 500)] = i end
local last
for key in pairs(many) do
  assert(not last or last < key)
  last = key
end

-- Values may change and go during the loop; what went is not visited.
t = { a = 1, b = 2, c = 3 }
local seen = {}
for key, value in pairs(t) do
  seen[#seen + 1] = key .. value
  t.b = nil
  t.c = 30
  t.d = 4
end
assert(table.concat(seen, " ") == "a1 c30")

-- __pairs decides for itself; others come in next's order, after the rest.
local custom = setmetatable({},
  { __pairs = function() return function(_, k) if not k then return "only", 1 end end, nil, nil end })
assert(order(custom) == "only")
local key = {}
t = { [key] = 1, x = 2 }
local list = {}
for k in pairs(t) do list[#list + 1] = k end
assert(list[1] == "x" and list[2] == key)
-- `nil` ends as everywhere; errors as everywhere
local f, s, k = pairs({ 10 })
local k1, v1 = f(s, k)
assert(k1 == 1 and v1 == 10 and f(s, k1) == nil)
assert(select(2, pcall(pairs)):find("table expected, got nil", 1, true))
assert(select(2, pcall(pairs, 3)):find("table expected, got number", 1, true))

-- What has no pairs is named.
local ok, err = pcall(pairs, require("accel").zeros(2))
assert(not ok and err:find("table expected, got accel.Tensor", 1, true), err)
