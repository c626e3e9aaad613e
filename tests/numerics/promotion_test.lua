-- What comes out of two dtypes: PyTorch's torch.result_type, for tensors with dims, a tensor of rank 0 as the
-- second, and a number as the second. The tables were written by PyTorch 2.15.
local accel = require "accel"

local names = { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool" }
local both = { -- rows: first, columns: second
  "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
  "f64 f32 f32 f32 f32 f32 f32 f32 f32 f32",
  "f64 f32 f16 f32 f16 f16 f16 f16 f16 f16",
  "f64 f32 f32 bf16 bf16 bf16 bf16 bf16 bf16 bf16",
  "f64 f32 f16 bf16 i64 i64 i64 i64 i64 i64",
  "f64 f32 f16 bf16 i64 i32 i32 i32 i32 i32",
  "f64 f32 f16 bf16 i64 i32 i16 i16 i16 i16",
  "f64 f32 f16 bf16 i64 i32 i16 i8 i16 i8",
  "f64 f32 f16 bf16 i64 i32 i16 i16 u8 u8",
  "f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool",
}
local rank0 = { -- the second has rank 0
  "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
  "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32",
  "f16 f16 f16 f16 f16 f16 f16 f16 f16 f16",
  "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16",
  "f64 f32 f16 bf16 i64 i64 i64 i64 i64 i64",
  "f64 f32 f16 bf16 i32 i32 i32 i32 i32 i32",
  "f64 f32 f16 bf16 i16 i16 i16 i16 i16 i16",
  "f64 f32 f16 bf16 i8 i8 i8 i8 i8 i8",
  "f64 f32 f16 bf16 u8 u8 u8 u8 u8 u8",
  "f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool",
}
local number = { -- the second is 2, 2.5, true
  "f64 f64 f64",
  "f32 f32 f32",
  "f16 f16 f16",
  "bf16 bf16 bf16",
  "i64 f32 i64",
  "i32 f32 i32",
  "i16 f32 i16",
  "i8 f32 i8",
  "u8 f32 u8",
  "i64 f32 bool",
}
local number0 = { -- and the first has rank 0
  "f64 f64 f64",
  "f32 f32 f32",
  "f16 f16 f16",
  "bf16 bf16 bf16",
  "i64 f32 i64",
  "i32 f32 i32",
  "i16 f32 i16",
  "i8 f32 i8",
  "u8 f32 u8",
  "i64 f32 bool",
}

local n, failed = 0, 0
local function check(what, want, ...)
  local ok, r = pcall(accel.maximum, ...) -- maximum is defined for every dtype
  n = n + 1
  if not ok or r.dtype ~= want then
    failed = failed + 1
    print(("FAIL %s gives %s instead of %s"):format(what, ok and r.dtype or tostring(r), want))
  end
end

local function words(s)
  local list = {}
  for w in s:gmatch("%S+") do list[#list + 1] = w end
  return list
end

local scalars = { 2, 2.5, true }
for i, a in ipairs(names) do
  local x, x0 = accel.zeros({ 2 }, { dtype = a }), accel.zeros({}, { dtype = a })
  for j, b in ipairs(names) do
    local y, y0 = accel.zeros({ 2 }, { dtype = b }), accel.zeros({}, { dtype = b })
    check(a .. " and " .. b, words(both[i])[j], x, y)
    check(a .. " and " .. b .. ", both of rank 0", words(both[i])[j], x0, y0)
    check(a .. " and rank 0 " .. b, words(rank0[i])[j], x, y0)
    check("rank 0 " .. b .. " and " .. a, words(rank0[i])[j], y0, x)
  end
  for j, s in ipairs(scalars) do
    check(a .. " and " .. tostring(s), words(number[i])[j], x, s)
    check(tostring(s) .. " and " .. a, words(number[i])[j], s, x)
    check("rank 0 " .. a .. " and " .. tostring(s), words(number0[i])[j], x0, s)
  end
end
print(("%d pairs, %d failed"):format(n, failed))
if failed > 0 then os.exit(1, true) end
