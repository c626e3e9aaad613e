-- Folders of MosaicML's streaming format for data_files.lua. Pictures stay bytes here: only their sample and column are compared.
local accel = require "accel"
local values = require "data_values"

local M = {}

local NAMES <const> = { f32 = "float32", f64 = "float64", i32 = "int32", i64 = "int64", u8 = "uint8", i16 = "int16", u16 = "uint16" }

local function hex(bytes) return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end

function M.read(path)
  local set, out = accel.data.MDS(path), {}
  for i = 1, #set do out[i] = set:get(i) end
  return { samples = out }
end

--- A value in the form of the expected one, which tells what it is.
local function form(v, want)
  if accel.is_tensor(v) then
    local shape = {}
    for i, n in ipairs(v.shape) do shape[i] = n end
    return { dtype = NAMES[v.dtype], shape = shape, values = v:contiguous():view { -1 }:tolist() }
  end
  if type(want) == "table" and want.size and want.sha256 then return type(v) == "string" and want or v end
  if type(want) == "table" and want.dtype and type(v) == "number" then return { dtype = want.dtype, shape = {}, values = { v } } end
  if type(v) == "string" and v ~= want then return hex(v) end
  return v
end

function M.compare(got, _, report, want)
  for i, sample in ipairs(want.samples) do
    for name, w in pairs(sample) do values.tree(report, ("sample %d/%s"):format(i, name), form((got.samples[i] or {})[name], w), w) end
  end
  if #got.samples ~= #want.samples then report("samples", #got.samples, #want.samples) end
end

return M
