--- Reads messages of Protocol Buffers: the fields of a part of a string, one by one. Every length is checked against the part it lies in,
--- and nothing is read beyond it. Used by sentencepiece_file.lua.
local M = {}

--- Raises a fault of the file. Its reader turns it into nil, message.
local function fault(at, what) error({ protobuf = true, message = ("%s at byte %d"):format(what, at) }, 0) end

--- The unsigned integer at `at` as Lua's 64 bits, and the position after it.
local function varint(s, at, last)
  local value, shift = 0, 0
  while true do
    if at > last then fault(at, "the file ends within a number") end
    local byte = s:byte(at)
    value = value | (byte & 127) << shift
    at = at + 1
    if byte < 128 then return value, at end
    shift = shift + 7
    if shift > 63 then fault(at, "a number of more than 64 bits") end
  end
end

--- Iterates the fields of s[first..last]: number, value. Integers of any kind are integers (of fixed ones the bits), texts and messages are
--- two results: their first and last position.
---@param s string
---@param first integer
---@param last integer
---@return fun(): integer?, any, integer?
function M.fields(s, first, last)
  local at = first
  return function()
    if at > last then return nil end
    local begin, key, value = at, nil, nil
    key, at = varint(s, at, last)
    local number, kind = key >> 3, key & 7
    if number == 0 then fault(begin, "a field without a number") end
    if kind == 0 then
      value, at = varint(s, at, last)
      return number, value
    elseif kind == 2 then
      local n
      n, at = varint(s, at, last)
      if n < 0 or n > last - at + 1 then fault(begin, ("field %d has %d bytes, which is more than there are"):format(number, n)) end
      local from = at
      at = at + n
      return number, from, at - 1
    elseif kind == 1 or kind == 5 then
      local n = kind == 1 and 8 or 4
      if n > last - at + 1 then fault(begin, "the file ends within a number") end
      value = (kind == 1 and "<I8" or "<I4"):unpack(s, at)
      at = at + n
      return number, value
    end
    fault(begin, ("field %d has the unknown kind %d"):format(number, kind))
  end
end

--- A float of 32 bits from its bits.
---@param bits integer
---@return number
function M.float(bits) return (("<f"):unpack(("<I4"):pack(bits))) end

return M
