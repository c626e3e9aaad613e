--- Floats of 8 bits as storage: rows of them become what single elements are, in both directions.
-- tier: memory
local accel = require "accel"

local codes = {}
for i = 0, 255 do codes[i + 1] = string.char(i) end
local all = table.concat(codes)

local function same(a, b, what)
  assert(a == b or (a ~= a and b ~= b), ("%s: %s, not %s"):format(what, a, b))
end

for _, dtype in ipairs { "f8_e4m3", "f8_e5m2" } do
  local t = accel.from_bytes(all, dtype)
  -- single elements are read by code of their own
  local single, rows = t:tolist(), t:to("f32"):tolist()
  for i = 1, 256 do same(rows[i], single[i], ("%s code %d"):format(dtype, i - 1)) end
  for _, other in ipairs { "f64", "bf16", "f16" } do
    local back = t:to(other):to(dtype):to_bytes()
    for i = 1, 256 do
      if single[i] == single[i] then assert(back:byte(i) == i - 1, ("%s by %s: code %d"):format(dtype, other, i - 1)) end
    end
  end

  -- values between the codes, at their middles, outside the range
  local values = { 0.0, -0.0, 1 / 0, -1 / 0, 448.0, 464.0, 465.0, 1e9, 57344.0, 61439.0, 61440.0, 65535.0, 2.0 ^ -16, 2.0 ^ -17, 3 * 2.0 ^ -18,
    2.0 ^ -9, 2.0 ^ -10, 3 * 2.0 ^ -11, 1e-30 }
  local sorted = {}
  for i = 1, 256 do if single[i] == single[i] and math.abs(single[i]) < 1e6 then sorted[#sorted + 1] = single[i] end end
  table.sort(sorted)
  for i = 2, #sorted do
    local middle = (sorted[i - 1] + sorted[i]) / 2
    for _, v in ipairs { middle, middle * (1 + 1e-6), middle * (1 - 1e-6), sorted[i] * 1.01 } do values[#values + 1] = v end
  end
  local got = accel.tensor(values, { dtype = "f32" }):to(dtype):tolist()
  for i, v in ipairs(values) do
    local one = accel.tensor({ v }, { dtype = dtype }) -- stored element by element
    same(got[i], one:item(), ("%s of %.9g"):format(dtype, v))
  end
  assert(accel.tensor({ 0 / 0 }, { dtype = "f32" }):to(dtype):item() ~= 0 and got[2] == 0)
end
