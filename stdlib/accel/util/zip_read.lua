--- accel.util.zip_read: the entries of a zip archive that are stored or deflated, checked strictly: the archive begins at byte 0, names are
--- unique, sizes lie in the file and agree with the directory, checksums are right. Nothing is written anywhere. Used by accel.data.numpy.
---
---   local entries = zip_read.entries(file)             file: of accel.file.core.open_read
---   for _, e in ipairs(entries) do local bytes = zip_read.bytes(file, e) end
local core = require "accel.file.core"

local M = {}

local END <const>, END64 <const>, LOCATOR64 <const>, CENTRAL <const>, LOCAL <const> = "PK\5\6", "PK\6\6", "PK\6\7", "PK\1\2", "PK\3\4"
local MAX32 <const>, MAX16 <const> = 0xFFFFFFFF, 0xFFFF
local RATIO <const> = 1040 -- the most that deflate unpacks a byte to, and a little

local function read_at(file, at, n)
  file:seek("set", at)
  local bytes = n > 0 and file:read(n) or ""
  return bytes and #bytes == n and bytes or nil
end

--- The end record: number of entries, bytes and place of the directory, place of the record.
local function find_end(file, size)
  local n = math.min(size, 22 + MAX16)
  local tail = read_at(file, size - n, n)
  if not tail then return nil end
  for at = #tail - 21, 1, -1 do
    if tail:sub(at, at + 3) == END and #tail - at - 21 == string.unpack("<I2", tail, at + 20) then
      local count, bytes, begin = string.unpack("<I2I4I4", tail, at + 10)
      local place = size - n + at - 1
      if count == MAX16 or bytes == MAX32 or begin == MAX32 then
        local locator = place >= 20 and read_at(file, place - 20, 20)
        if not locator or locator:sub(1, 4) ~= LOCATOR64 then return nil end
        local at64 = string.unpack("<I8", locator, 9)
        local record = at64 >= 0 and at64 <= place - 56 and read_at(file, at64, 56)
        if not record or record:sub(1, 4) ~= END64 then return nil end
        count, bytes, begin = string.unpack("<I8I8I8", record, 33)
        place = at64
      end
      return count, bytes, begin, place
    end
  end
end

--- Sizes of 64 bits in an entry's extra field.
local function wide(extra, packed, unpacked, at)
  local i = 1
  while i + 3 <= #extra do
    local id, n = string.unpack("<I2I2", extra, i)
    if id == 1 and i + 3 + n <= #extra then
      local j, last = i + 4, i + 4 + n
      local function take(v)
        if v ~= MAX32 or j + 8 > last then return v end
        local big
        big, j = string.unpack("<I8", extra, j)
        return big
      end
      unpacked = take(unpacked)
      packed = take(packed)
      at = take(at)
    end
    i = i + 4 + n
  end
  return packed, unpacked, at
end

local function parse_directory(text, count)
  local entries, names, i = {}, {}, 1
  for _ = 1, count do
    if i + 45 > #text or text:sub(i, i + 3) ~= CENTRAL then return nil, "its directory is damaged" end
    local flags, method = string.unpack("<I2I2", text, i + 8)
    local crc, packed, unpacked, n_name, n_extra, n_comment = string.unpack("<I4I4I4I2I2I2", text, i + 16)
    local at = string.unpack("<I4", text, i + 42)
    local name = text:sub(i + 46, i + 45 + n_name)
    if #name < n_name then return nil, "its directory is damaged" end
    packed, unpacked, at = wide(text:sub(i + 46 + n_name, i + 45 + n_name + n_extra), packed, unpacked, at)
    if flags & 1 ~= 0 then return nil, ("entry '%s' is encrypted"):format(name) end
    if names[name] then return nil, ("entry '%s' is there twice"):format(name) end
    names[name] = true
    entries[#entries + 1] = { name = name, method = method, crc = crc, packed = packed, size = unpacked, at = at }
    i = i + 46 + n_name + n_extra + n_comment
  end
  if i ~= #text + 1 then return nil, "its directory has another size" end
  return entries
end

--- Where the bytes of an entry begin. The local header must agree with the directory.
local function place(file, e, begin)
  local head = e.at >= 0 and e.at <= begin - 30 and read_at(file, e.at, 30)
  if not head or head:sub(1, 4) ~= LOCAL then return nil, ("entry '%s' has no local header"):format(e.name) end
  local method = string.unpack("<I2", head, 9)
  local n_name, n_extra = string.unpack("<I2I2", head, 27)
  local first = e.at + 30 + n_name + n_extra
  if method ~= e.method or read_at(file, e.at + 30, n_name) ~= e.name then
    return nil, ("entry '%s' differs from its local header"):format(e.name)
  end
  if e.packed < 0 or e.size < 0 or e.packed > begin - first then return nil, ("entry '%s' leaves the archive"):format(e.name) end
  if e.method == 0 and e.packed ~= e.size or e.method == 8 and e.size // RATIO > e.packed then
    return nil, ("entry '%s' has %d bytes, which cannot unpack to %d"):format(e.name, e.packed, e.size)
  end
  if e.method ~= 0 and e.method ~= 8 then return nil, ("entry '%s' uses compression method %d, which is not supported"):format(e.name, e.method) end
  e.data = first
  return e
end

--- The entries in the order of the directory, each with name, method (0 stored, 8 deflated), size, packed, crc, data (byte of its content).
--- Returns nil and a message for an archive that is not valid.
---@param file any
---@return table[]?
---@return string?
function M.entries(file)
  local size = file:seek "end"
  local count, bytes, begin, record = find_end(file, size)
  if not count then return nil, "it is not a zip archive, or its end is missing" end
  if begin < 0 or bytes < 0 or begin + bytes ~= record then return nil, "bytes stand before the archive, or its directory is damaged" end
  if count > bytes // 46 then return nil, "its directory is damaged" end
  local text = read_at(file, begin, bytes)
  if not text then return nil, "its directory is damaged" end
  local entries, message = parse_directory(text, count)
  if not entries then return nil, message end
  for _, e in ipairs(entries) do
    local ok, why = place(file, e, begin)
    if not ok then return nil, why end
  end
  return entries
end

--- The content of an entry, or nil and a message.
---@param file any
---@param e table
---@return string?
---@return string?
function M.bytes(file, e)
  local packed = read_at(file, e.data, e.packed)
  if not packed then return nil, ("entry '%s' could not be read"):format(e.name) end
  local bytes, message = packed, nil
  if e.method == 8 then bytes, message = core.inflate(packed, e.size) end
  if not bytes then return nil, ("entry '%s': %s"):format(e.name, message) end
  if core.crc32(bytes) ~= e.crc then return nil, ("entry '%s' does not match its checksum: the file is damaged"):format(e.name) end
  return bytes
end

return M
