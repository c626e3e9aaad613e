--- The header of NumPy's .npy files, format 1.0 to 3.0: a dict of Python in text, which is parsed by its grammar and never executed. Used
--- by accel.data.numpy.
local M = {}

M.MAGIC = "\x93NUMPY"
local MOST <const> = 1 << 20 -- bytes of a header. NumPy writes a few hundred

--- NumPy's letter and size -> dtype, bytes that are swapped together.
local DTYPES <const> = {
  b1 = { "bool", 1 }, i1 = { "i8", 1 }, u1 = { "u8", 1 }, i2 = { "i16", 2 }, u2 = { "u16", 2 }, i4 = { "i32", 4 }, u4 = { "u32", 4 },
  i8 = { "i64", 8 }, u8 = { "i64", 8, "uint64" }, f2 = { "f16", 2 }, f4 = { "f32", 4 }, f8 = { "f64", 8 }, c8 = { "c64", 4 }, c16 = { "c128", 8 },
}
local NAMES <const> = { bool = "|b1", i8 = "|i1", u8 = "|u1", i16 = "<i2", u16 = "<u2", i32 = "<i4", u32 = "<u4", i64 = "<i8", f16 = "<f2",
  f32 = "<f4", f64 = "<f8", c64 = "<c8", c128 = "<c16" }

--- A reader of the few forms of Python's literals that headers have. Each method returns nil and a message, or advances `at`.
local Parser = {}
Parser.__index = Parser

function Parser:take(pattern)
  local from, to, capture = self.text:find("^%s*(" .. pattern .. ")", self.at)
  if not from then return nil end
  self.at = to + 1
  return capture
end

function Parser:string()
  local quoted = self:take "'[^'\\\n]*'" or self:take '"[^"\\\n]*"'
  return quoted and quoted:sub(2, -2)
end

function Parser:tuple()
  if not self:take "%(" then return nil end
  local list = {}
  while not self:take "%)" do
    local digits = self:take "%d+L?"
    local n = digits and #digits <= 19 and math.tointeger(tonumber((digits:gsub("L", ""))))
    if not n then return nil end
    list[#list + 1] = n
    if not self:take "," then
      if #list == 1 or not self:take "%)" then return nil end -- (3) is a number of Python
      break
    end
  end
  return list
end

function Parser:value(key)
  if key == "shape" then return self:tuple() end
  if key == "fortran_order" then
    local word = self:take "%a+"
    if word == "True" or word == "False" then return word == "True" end
    return nil
  end
  if self.text:find("^%s*[%[%(]", self.at) then return nil, "a structured array: its elements have several fields; save one array a field" end
  return self:string()
end

--- The fields of a header's text: descr, fortran_order, shape.
local function parse(text)
  local p, fields = setmetatable({ text = text, at = 1 }, Parser), {}
  if not p:take "{" then return nil, "its header is not a dict" end
  while not p:take "}" do
    local key = p:string()
    if key ~= "descr" and key ~= "fortran_order" and key ~= "shape" then
      return nil, key and ("its header has an unknown key '%s'"):format(key:sub(1, 40)) or ("its header is malformed at byte %d"):format(p.at)
    end
    if fields[key] ~= nil then return nil, ("its header has '%s' twice"):format(key) end
    if not p:take ":" then return nil, ("its header is malformed at byte %d"):format(p.at) end
    local value, message = p:value(key)
    if value == nil then return nil, message or ("its header has no valid %s"):format(key) end
    fields[key] = value
    if not p:take "," then
      if not p:take "}" then return nil, ("its header is malformed at byte %d"):format(p.at) end
      break
    end
  end
  if p.text:find("%S", p.at) then return nil, "bytes after the dict of its header" end
  for _, key in ipairs { "descr", "fortran_order", "shape" } do
    if fields[key] == nil then return nil, ("its header has no %s"):format(key) end
  end
  return fields
end

--- The type of a descr: dtype (nil for text and times, which are read as values), bytes of an element, bytes to swap, letter.
local function type_of(descr)
  local order, letter, size, unit = descr:match "^([<>|=]?)(%a)(%d*)(.*)$"
  if letter == "O" then return nil, "an object array: its data is a pickle, which may hold code and is never executed" end
  local n = tonumber(size)
  if letter == "S" or letter == "U" and unit == "" then
    return n and n <= 1 << 24 and { descr = descr, letter = letter, bytes = letter == "U" and 4 * n or n, big = order == ">" }
      or nil, ("its type '%s' is not supported"):format(descr:sub(1, 40))
  end
  if (letter == "M" or letter == "m") and n == 8 and unit:find "^%[%w+%]$" then
    return { descr = descr, letter = letter, bytes = 8, big = order == ">", dtype = "i64", swap = order == ">" and 8 or 0 }
  end
  local known = unit == "" and letter and DTYPES[letter .. size]
  if not known then return nil, ("its type '%s' is not supported"):format(descr:sub(1, 40)) end
  return { descr = descr, letter = letter, dtype = known[1], bytes = n, swap = order == ">" and known[2] > 1 and known[2] or 0,
    unsigned = known[3] }
end

--- Parses the beginning of a file. read(n) returns the next n bytes, or fewer at the end. Returns the type, with shape, fortran, count and
--- size (bytes of the header), or nil and a message.
---@param read fun(n: integer): string?
---@return table?
---@return string?
function M.read(read)
  local head = read(8)
  if not head or #head < 8 then return nil, "it ends in its header" end
  if head:sub(1, 6) ~= M.MAGIC then return nil, "it does not begin with NumPy's magic bytes" end
  local major, minor = head:byte(7, 8)
  if major < 1 or major > 3 or minor ~= 0 then return nil, ("format %d.%d is not supported"):format(major, minor) end
  local width = major == 1 and 2 or 4
  local length = read(width)
  if not length or #length < width then return nil, "it ends in its header" end
  local n = string.unpack(width == 2 and "<I2" or "<I4", length)
  if n > MOST then return nil, ("its header has %d bytes, more than %d"):format(n, MOST) end
  local text = read(n)
  if not text or #text < n then return nil, "it ends in its header" end
  local fields, message = parse(text)
  if not fields then return nil, message end
  local kind, why = type_of(fields.descr)
  if not kind then return nil, why end
  if kind.bytes == 0 then return nil, ("its elements (%s) have no bytes"):format(fields.descr) end
  local count, empty = 1, false
  for _, extent in ipairs(fields.shape) do empty = empty or extent == 0 end
  for _, extent in ipairs(fields.shape) do
    if extent > 0 and count > (1 << 62) // kind.bytes // extent then return nil, "the sizes of its shape overflow" end
    count = count * math.max(extent, 1)
  end
  kind.shape, kind.fortran, kind.count, kind.size = fields.shape, fields.fortran_order, empty and 0 or count, 8 + width + n
  return kind
end

--- The header of an array in C order, at a multiple of 64 bytes, as NumPy writes it.
---@param dtype string
---@param shape integer[]
---@return string?
function M.write(dtype, shape)
  local name = NAMES[dtype]
  if not name then return nil end
  local dims = table.concat(shape, ", ")
  local text = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }"):format(name, dims, #shape == 1 and "," or "")
  local pad = -(10 + #text + 1) % 64
  return M.MAGIC .. "\1\0" .. string.pack("<I2", #text + pad + 1) .. text .. (" "):rep(pad) .. "\n"
end

return M
