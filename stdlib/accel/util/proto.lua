--- Protocol buffers: a field is its number and kind, then the value. Used by track and onnx.
local M = {}

local function varint(n)
  local out = {}
  while n < 0 or n > 127 do
    out[#out + 1], n = string.char(n & 127 | 128), n >> 7
  end
  return table.concat(out) .. string.char(n)
end

--- An integer, an enum or a bool (0, 1).
---@param field integer
---@param n integer
---@return string
function M.int(field, n) return varint(field << 3) .. varint(n) end

--- A double.
---@param field integer
---@param x number
---@return string
function M.double(field, x) return varint(field << 3 | 1) .. ("<d"):pack(x) end

--- A float of 4 bytes.
---@param field integer
---@param x number
---@return string
function M.float(field, x) return varint(field << 3 | 5) .. ("<f"):pack(x) end

--- A string, bytes, or a message.
---@param field integer
---@param s string
---@return string
function M.bytes(field, s) return varint(field << 3 | 2) .. varint(#s) .. s end

--- Repeated doubles.
---@param field integer
---@param list number[]
---@return string
function M.packed_doubles(field, list)
  local out = {}
  for i, x in ipairs(list) do out[i] = ("<d"):pack(x) end
  return M.bytes(field, table.concat(out))
end

return M
