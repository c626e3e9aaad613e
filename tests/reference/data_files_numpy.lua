-- NumPy's arrays and IDX files for data_files.lua: dtype, shape, and the values in C order.
local accel = require "accel"
local values = require "data_values"

local M = {}

local NAMES <const> = {
  bool = "bool", u8 = "uint8", i8 = "int8", i16 = "int16", i32 = "int32", i64 = "int64",
  u16 = "uint16", u32 = "uint32", f16 = "float16", f32 = "float32", f64 = "float64",
}

--- A tensor in the form of the expected JSON.
local function described(t)
  local shape, flat = {}, t:contiguous():view { -1 }:tolist()
  for i, n in ipairs(t.shape) do shape[i] = n end
  for i, v in ipairs(flat) do
    if v ~= v then flat[i] = "nan"
    elseif v == math.huge or v == -math.huge then flat[i] = v > 0 and "inf" or "-inf"
    elseif math.type(v) == "integer" and math.abs(v) > 2 ^ 53 then flat[i] = tostring(v) end
  end
  return { dtype = NAMES[t.dtype] or t.dtype, shape = shape, values = flat }
end

function M.left_out(row)
  if (row.reader or row.format) ~= "idx" then return "no reader yet" end
end

function M.read(path) return accel.data.IDX.read(path) end

function M.compare(got, _, report, want) values.tree(report, "array", described(got), want) end

return M
