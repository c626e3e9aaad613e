-- NumPy's arrays and IDX files for data_files.lua: dtype, shape, and the values in C order.
local accel = require "accel"
local values = require "data_values"

local M = {}

local NAMES <const> = {
  bool = "bool", u8 = "uint8", i8 = "int8", i16 = "int16", i32 = "int32", i64 = "int64",
  u16 = "uint16", u32 = "uint32", c64 = "complex64", c128 = "complex128", f16 = "float16", f32 = "float32", f64 = "float64",
}

local function number(v)
  if v ~= v then return "nan" end
  if v == math.huge or v == -math.huge then return v > 0 and "inf" or "-inf" end
  if math.type(v) == "integer" and math.abs(v) > 2 ^ 53 then return tostring(v) end
  return v
end

--- A tensor in the form of the expected JSON, with its type's name there.
local function described(t, dtype)
  if type(t) == "table" and t.values then -- text, bytes, times
    local flat = {}
    for i, v in ipairs(t.values) do
      flat[i] = t.dtype:find "S" and v:gsub(".", function(c) return ("%02x"):format(c:byte()) end) or v
    end
    return { dtype = t.dtype, shape = t.shape, values = flat }
  end
  local shape, flat = {}, nil
  for i, n in ipairs(t.shape) do shape[i] = n end
  if t.dtype == "c64" or t.dtype == "c128" then
    flat = {}
    for i, pair in ipairs(accel.view_as_real(t):contiguous():view { -1, 2 }:tolist()) do flat[i] = { number(pair[1]), number(pair[2]) } end
  else
    flat = t:contiguous():view { -1 }:tolist()
    for i, v in ipairs(flat) do flat[i] = number(v) end
  end
  local name = NAMES[t.dtype] or t.dtype
  return { dtype = dtype == "uint64" and name == "int64" and dtype or name, shape = shape, values = flat }
end

function M.left_out(row)
  if row.must then return nil end
  local features = table.concat(row.features, " ")
  if features:find "u8" and not features:find "|u8" then return "uint64 above 2^63 - 1: no dtype of accel holds it" end
  if features:find "c8" or features:find "c16" then
    return not pcall(accel.from_bytes, ("\0"):rep(8), "c64", { 1 }) and "no complex dtypes yet" or nil
  end
end

function M.read(path, row)
  if row.reader == "idx" or row.format == "idx" then return accel.data.IDX.read(path) end
  return accel.data.numpy.load(path)
end

function M.compare(got, row, report, want)
  if row.reader ~= "npz" then return values.tree(report, "array", described(got, want.dtype), want) end
  local i = 0
  for name, t in pairs(got) do
    i = i + 1
    local pair = want.arrays[i] or {}
    if name ~= pair[1] then report("name " .. i, name, tostring(pair[1]))
    else values.tree(report, name, described(t, pair[2].dtype), pair[2]) end
  end
  if i ~= #want.arrays then report("arrays", i, #want.arrays) end
end

return M
