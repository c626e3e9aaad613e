-- DLPack in scripts: the same bytes, capsules that are good for one taker, and what is refused.
local accel = require "accel"
local live = accel.live()

local x = accel.arange(12):view(3, 4)
local y = accel.from_dlpack(x:to_dlpack())
assert(y:data_ptr() == x:data_ptr() and y.shape == x.shape and y.dtype == "i64")
y[1][1] = 100
assert(x[1][1]:item() == 100)

-- strides are kept: turned, a column, expanded, empty, of rank 0
for _, t in ipairs { x:t(), x:select(2, 3), accel.ones(1, 3):expand(2, 3), accel.zeros(0, 3), accel.tensor(2.5), x:narrow(2, 2, 2) } do
  local u = accel.from_dlpack(t:to_dlpack())
  assert(u:equal(t) and u.shape == t.shape and (#t.shape == 0 or u.dtype == t.dtype))
  for d, s in ipairs(t:stride()) do assert(u:stride()[d] == s) end
end
for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool" } do
  assert(accel.from_dlpack(accel.ones(3, { dtype = dtype }):to_dlpack()).dtype == dtype)
end

-- the memory lives as long as somebody needs it, with the capsule or the tensor
local capsule = accel.full({ 1000 }, 7.0):to_dlpack()
accel.collect()
local seven = accel.from_dlpack(capsule)
capsule = nil -- luacheck: ignore
accel.collect()
assert(seven:sum():item() == 7000)

local function refused(code, part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code and tostring(err):find(part, 1, true), tostring(err))
end
local once = x:to_dlpack()
assert(tostring(once) == "dlpack capsule (rank 2)")
accel.from_dlpack(once)
assert(tostring(once) == "dlpack capsule (taken)")
refused("released", "used before", accel.from_dlpack, once)
refused("invalid_argument", "what to_dlpack made, got i64 tensor", accel.from_dlpack, x)
refused("invalid_argument", "got nil", accel.from_dlpack, nil)
refused("autograd", "detach", function() return accel.ones(2, { requires_grad = true }):to_dlpack() end)
refused("unsupported", "move it to the CPU", function() return accel.ones(2, { device = "meta" }):to_dlpack() end)
do -- one that nobody takes gives its memory back when it is closed
  local unused <close> = accel.ones(10):to_dlpack()
  assert(unused)
end

-- gradients flow on from a tensor that came in
local w = accel.from_dlpack(accel.tensor { 2.0, 3.0 }:to_dlpack()):requires_grad_()
local square = w * w
square:sum():backward()
assert(w.grad:tolist()[2] == 6)

x, y, w, square, seven, once = nil, nil, nil, nil, nil, nil -- luacheck: ignore
accel.collect()
accel.collect()
assert(accel.live() == live, accel.live())
