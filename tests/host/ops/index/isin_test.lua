--- isin, mT and the new_ methods: values that the generated tests do not ask for.
local accel = require "accel"
local function list(t)
  local r = {}
  for i, v in ipairs(t:reshape(-1):tolist()) do r[i] = tostring(v) end
  return table.concat(r, " ")
end

assert(list(accel.isin(accel.tensor { 1.0, 0 / 0, math.huge }, accel.tensor { 0 / 0, math.huge })) == "false false true")
assert(list(accel.isin(accel.tensor { 1, 2, 3 }, accel.tensor { 2.5, 3.0 })) == "false false true") -- promoted
assert(list(accel.isin(accel.tensor({ 200, 3 }, { dtype = "u8" }), accel.tensor({ -56, 3 }, { dtype = "i8" }))) == "false true")
assert(accel.isin(2, accel.tensor { 1, 2 }):item() == true)
assert(list(accel.isin(accel.tensor { 1, 2 }, accel.tensor {}, { invert = true })) == "true true")
assert(accel.isin(accel.ones(2, 3), accel.ones(1)).ndim == 2)

local x = accel.randn(2, 3, 4, { requires_grad = true })
assert(tostring(x:mT().shape) == "(2, 4, 3)" and not pcall(accel.mT, accel.ones(3)))
x:mT():sum():backward()
assert(x.grad:sum():item() == 24)

local like = accel.zeros(2, { dtype = "bf16" })
for name, make in pairs { new_zeros = function(...) return like:new_zeros(...) end, new_ones = function(...) return like:new_ones(...) end,
  new_empty = function(...) return like:new_empty(...) end } do
  local t = make(2, 3)
  assert(t.dtype == "bf16" and tostring(t.shape) == "(2, 3)", name)
  t = make({ 3 }, { dtype = "f64", requires_grad = true })
  assert(t.dtype == "f64" and t.requires_grad and #t == 3, name)
  assert(not pcall(make, 2, { dtypo = "f64" }), name .. " takes an unknown option")
end
assert(list(like:new_full({ 2 }, 7)) == "7.0 7.0" and like:new_full({ 1 }, 7, { dtype = "i64" }).dtype == "i64")
local t = like:new_tensor({ { 1, 2 } }, { requires_grad = true })
assert(t.dtype == "bf16" and t.requires_grad and tostring(t.shape) == "(1, 2)")
assert(like:new_tensor(accel.ones(2)).dtype == "bf16" and like:new_tensor({ 1 }, { dtype = "i8" }).dtype == "i8")
assert(not pcall(function() return like:new_tensor({ 1 }, { dtypo = "i8" }) end))
