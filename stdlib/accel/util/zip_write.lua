--- accel.util.zip_write: writes a zip archive. Entries are stored as they are, each at a multiple of 64 bytes, as torch.save lays its files
--- out, or deflated. The checksum and size of an entry follow its bytes, so that nothing is read twice. Used by torch_file and
--- accel.data.numpy.
---
---   local zip = zip_write(file)              file: of accel.util.writer
---   zip:entry("archive/version", "3\n")       a short entry
---   zip:begin "archive/data/0"                a long one, in pieces
---   zip:storage(t, first, bytes) ...          bytes of a tensor's storage
---   zip:deflated("a.npy", bytes)              a compressed one, which needs zlib
---   zip:finish()                              the directory. Then file:commit()
--- The methods return true, or nil, message, code.
local core = require "accel.file.core"

local ALIGNMENT <const> = 64
local FLAGS <const> = 0x0808 -- the checksum follows the bytes, names are UTF-8
local WAITING <const> = 1 << 16 -- bytes of short entries that are written at once
local MAX32 <const>, MAX16 <const> = 0xffffffff, 0xffff

---@class accel.util.Zip
---@field file accel.util.writer.File
---@field at integer bytes of the archive so far
---@field entries table[]
local Zip = {}
Zip.__index = Zip

--- Writes the bytes that are waiting.
function Zip:flush()
  local bytes = table.concat(self.waiting)
  self.waiting, self.n_waiting = {}, 0
  return self.file:write(bytes)
end

function Zip:write(...)
  for _, bytes in ipairs { ... } do
    self.waiting[#self.waiting + 1] = bytes
    self.at, self.n_waiting = self.at + #bytes, self.n_waiting + #bytes
  end
  if self.n_waiting < WAITING then return true end
  return self:flush()
end

--- The size and checksum of the current entry, after its bytes.
function Zip:close_entry()
  local e = self.current
  if not e then return true end
  self.current = nil
  e.bytes = self.at - e.data_at
  e.size = e.size or e.bytes
  return self:write(string.pack(math.max(e.bytes, e.size) >= MAX32 and "<c4I4I8I8" or "<c4I4I4I4", "PK\7\8", e.crc, e.bytes, e.size))
end

--- Begins an entry.
---@param name string
---@param method? integer 0 stored, 8 deflated
function Zip:begin(name, method)
  local done, message, code = self:close_entry()
  if not done then return nil, message, code end
  local pad = -(self.at + 30 + #name + 4) % ALIGNMENT
  local e = { name = name, at = self.at, crc = 0, method = method or 0 }
  self.entries[#self.entries + 1], self.current = e, e
  done, message, code = self:write(string.pack("<c4I2I2I2I4I4I4I4I2I2", "PK\3\4", 20, FLAGS, e.method, 0, 0, 0, 0, #name, pad + 4), name,
    string.pack("<c2I2", "FB", pad), ("Z"):rep(pad))
  e.data_at = self.at
  return done, message, code
end

--- Adds bytes to the entry.
---@param bytes string
function Zip:bytes(bytes)
  self.current.crc = core.crc32(bytes, self.current.crc)
  return self:write(bytes)
end

--- Adds bytes of a tensor's storage to the entry.
---@param t accel.Tensor
---@param first integer byte of its storage
---@param bytes integer
function Zip:storage(t, first, bytes)
  local done, why, kind = self:flush()
  if not done then return nil, why, kind end
  local crc, message, code = core.write_storage(self.file, t, first, bytes, self.current.crc)
  if not crc then return nil, message, code end
  self.current.crc, self.at = crc, self.at + bytes
  return true
end

--- A whole entry.
---@param name string
---@param bytes string
function Zip:entry(name, bytes)
  local done, message, code = self:begin(name)
  if not done then return nil, message, code end
  return self:bytes(bytes)
end

--- A whole entry, deflated.
---@param name string
---@param bytes string
function Zip:deflated(name, bytes)
  local packed, message, code = core.deflate(bytes)
  if not packed then return nil, message, code end
  local done, why, kind = self:begin(name, 8)
  if not done then return nil, why, kind end
  self.current.crc, self.current.size = core.crc32(bytes), #bytes
  return self:write(packed)
end

--- Writes the directory.
function Zip:finish()
  local done, message, code = self:close_entry()
  if not done then return nil, message, code end
  local begin = self.at
  for _, e in ipairs(self.entries) do
    local wide = ""
    for _, n in ipairs { e.size, e.bytes, e.at } do wide = wide .. (n >= MAX32 and string.pack("<I8", n) or "") end
    local extra = wide ~= "" and string.pack("<I2s2", 1, wide) or ""
    done, message, code = self:write(string.pack("<c4I2I2I2I2I4I4I4I4I2I2I2I2I2I4I4", "PK\1\2", 20, 20, FLAGS, e.method, 0, e.crc,
      math.min(e.bytes, MAX32), math.min(e.size, MAX32), #e.name, #extra, 0, 0, 0, 0, math.min(e.at, MAX32)), e.name, extra)
    if not done then return nil, message, code end
  end
  local n, bytes, after = #self.entries, self.at - begin, self.at
  if n >= MAX16 or bytes >= MAX32 or begin >= MAX32 then
    done, message, code = self:write(string.pack("<c4I8I2I2I4I4I8I8I8I8", "PK\6\6", 44, 45, 45, 0, 0, n, n, bytes, begin),
      string.pack("<c4I4I8I4", "PK\6\7", 0, after, 1))
    if not done then return nil, message, code end
  end
  done, message, code = self:write(string.pack("<c4I2I2I2I2I4I4I2", "PK\5\6", 0, 0, math.min(n, MAX16), math.min(n, MAX16),
    math.min(bytes, MAX32), math.min(begin, MAX32), 0))
  if not done then return nil, message, code end
  return self:flush()
end

---@param file accel.util.writer.File
---@return accel.util.Zip
return function(file) return setmetatable({ file = file, at = 0, entries = {}, waiting = {}, n_waiting = 0 }, Zip) end
