-- What the runners pt.lua and dcp.lua share: files as bytes, so that results are compared bit by bit without the readers
-- under test.
local accel = require "accel"
local M = {}

function M.read(path)
  local f, why = io.open(path, "rb")
  if not f then return nil, why end
  local bytes = f:read "a"
  f:close()
  return bytes
end

--- A JSON file, or nil and why not.
function M.json(path)
  local text, why = M.read(path)
  if not text then return nil, why end
  local ok, value = pcall(accel.json.decode, text)
  if not ok or type(value) ~= "table" then return nil, ("%s: %s"):format(path, tostring(value)) end
  return value
end

--- name -> {dtype, shape, bytes} of a safetensors file.
function M.tensors(path)
  local bytes, why = M.read(path)
  if not bytes then return nil, why end
  local n = string.unpack("<I8", bytes)
  local list = {}
  for name, t in pairs(accel.json.decode(bytes:sub(9, 8 + n))) do
    if name ~= "__metadata__" then
      list[name] = { dtype = t.dtype, shape = t.shape,
        bytes = bytes:sub(9 + n + t.data_offsets[1], 8 + n + t.data_offsets[2]) }
    end
  end
  return list
end

function M.same_list(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

--- Our name of a dtype of PyTorch's; uint64 tensors are read as i64.
function M.dtype(name)
  if name == "uint64" then return "i64" end
  local ok, t = pcall(accel.empty, 0, { dtype = name, device = "meta" })
  return ok and t.dtype or name
end

return M
