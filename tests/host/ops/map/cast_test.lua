--- Casts of floats to integers give the same on every CPU where the integer exists: they truncate, and negative floats wrap around in
--- unsigned types, as in PyTorch. Rows of every length, so that vectors and single elements agree.
local accel = require "accel"

local values = { -0.9, -1.0, -1.5, -2.0, -127.9, -128.0, -200.7, 0.0, 0.9, 1.5, 127.0, 255.0, 255.9, 300.0, -300.5, 65535.0, 1e6, -1e6 }
local bits = { u8 = 8, u16 = 16, u32 = 32, i8 = 8, i16 = 16, i32 = 32, i64 = 64 }
for dtype, n in accel.pairs(bits) do
  for _, from in ipairs { "f64", "f32" } do
    for _, length in ipairs { 1, 3, 16, 100 } do
      local x, want = {}, {}
      for i = 1, length do
        local v = values[(i - 1) % #values + 1]
        local whole = v < 0 and math.ceil(v) or math.floor(v)
        if n < 64 then
          whole = whole & (1 << n) - 1
          if dtype:sub(1, 1) == "i" and whole >= 1 << n - 1 then whole = whole - (1 << n) end
        end
        x[i], want[i] = v, whole
      end
      local got = accel.tensor(x, { dtype = from }):to(dtype):tolist()
      for i = 1, length do
        assert(got[i] == want[i], ("%s of %g as %s, %d of %d: %s, not %d"):format(from, x[i], dtype, i, length, got[i], want[i]))
      end
    end
  end
end
