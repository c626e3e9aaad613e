-- accel inside an interpreter that is not ours: it loads by require, computes, and leaves the interpreter as
-- it was.
local names = {}
for name, value in pairs(_G) do names[name] = value end
local next_before, pairs_before, meta_before = next, pairs, getmetatable(_G)

local accel = require "accel"

for name, value in pairs_before(_G) do
  assert(rawequal(names[name], value), "global '" .. name .. "' changed")
end
assert(next == next_before and pairs == pairs_before, "pairs is the interpreter's")
assert(getmetatable(_G) == meta_before, "globals are not strict here")
_G.undeclared = 1
assert(_G.undeclared == 1)

local x = accel.tensor({ 1.0, 2.0, 3.0 }, { requires_grad = true })
local y = (x * x):sum()
y:backward()
local g = x.grad:tolist()
assert(y:item() == 14 and g[1] == 2 and g[2] == 4 and g[3] == 6)

-- Errors are Lua errors of this interpreter, also inside a coroutine.
local co = coroutine.wrap(function()
  return pcall(function() return accel.zeros(2, 3):matmul(accel.zeros(2, 3)) end)
end)
local ok, message = co()
assert(not ok and tostring(message):find("matmul", 1, true), tostring(message))

-- Sorted pairs are a function here, not a change of the language.
local order = {}
for key in accel.pairs({ b = 1, a = 2, c = 3 }) do order[#order + 1] = key end
assert(table.concat(order) == "abc")

-- The library part is found beside the module.
local nn = require "accel.nn"
assert(nn.Linear(3, 2)(accel.ones(1, 3)).shape[2] == 2)
print("stock " .. _VERSION .. ": ok")
