--- accel.allclose and accel.equal: one Lua boolean for whole tensors.
local accel = require "accel"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("expected %q, got %s"):format(pattern, tostring(err)))
end

local a = accel.tensor { 1.0, 2, 3 }
assert(accel.allclose(a, a + 1e-6) == true and a:allclose(a + 1e-3) == false)
assert(a:allclose(a + 0.1, 0, 0.11) and not a:allclose(a + 0.1, 0, 0.09))
assert(a:allclose(a + 0.1, { atol = 0.11 }) and a:allclose(a * 1.01, { rtol = 0.02 }))
assert(a:allclose(accel.tensor(2.0), { atol = 1 })) -- shapes that broadcast
local odd = accel.tensor { math.huge, -math.huge, 0 / 0 }
assert(not odd:allclose(odd) and odd:allclose(odd, { equal_nan = true }))
assert(not accel.tensor({ math.huge }):allclose(accel.tensor { 1.0 }))
assert(accel.zeros(0):allclose(accel.zeros(0)))
fails("isclose", accel.allclose, a, accel.zeros(2))
fails("rtoll", accel.allclose, a, a, { rtoll = 1 })

assert(accel.equal(a, a:clone()) == true and a:equal(accel.tensor { 1, 2, 3 }))
assert(a:equal(accel.tensor { 1, 2, 4 }) == false)
assert(not a:equal(a:view(1, 3)) and not a:equal(accel.tensor(1.0)))
assert(not odd:equal(odd) and accel.zeros(0, 2):equal(accel.zeros(0, 2)))
assert(not accel.zeros(0, 2):equal(accel.zeros(0, 3)))
fails("equal: other must be a tensor, got 3", accel.equal, a, 3)
fails("equal: x must be a tensor, got nil", accel.equal)
