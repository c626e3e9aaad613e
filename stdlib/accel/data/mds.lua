--- data.MDS(folder, options): samples of a folder of MosaicML's streaming format: index.json and its shards. A sample has the columns by
--- name. Arrays are tensors, pictures and bytes stay bytes. Pickled columns are refused, because a pickle can run code. Shards are read
--- by position. Compressed shards (.zstd, .gz, .bz2) are unpacked into memory.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.file.core"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local lfs = require "lfs"
local open_files = require "accel.data.open_files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"

--- example: return (pcall(accel.data.MDS, "no such folder")) --> false
---@class accel.data.MDS : accel.data.Dataset
---@field folder string
---@field columns string[]
local MDS = Dataset:extend("accel.data.MDS")

-- ---- columns ----

local NUMBERS <const> = {
  int = "<i8", int8 = "<i1", int16 = "<i2", int32 = "<i4", int64 = "<i8", uint8 = "<I1", uint16 = "<I2", uint32 = "<I4",
  float32 = "<f", float64 = "<d",
}
local DTYPES <const> = {
  uint8 = "u8", int8 = "i8", uint16 = "u16", int16 = "i16", float16 = "f16", uint32 = "u32", int32 = "i32", float32 = "f32", int64 = "i64",
  float64 = "f64",
}
local CODES <const> = {
  [8] = "uint8", [9] = "int8", [16] = "uint16", [17] = "int16", [18] = "float16", [32] = "uint32", [33] = "int32", [34] = "float32",
  [65] = "int64", [66] = "float64",
}
local BYTES <const> = { bytes = true, png = true, jpeg = true, jpg = true, pil = true }

--- An array: its dtype (one byte, unless the column gives it), its shape (a byte with the number of dims and the size of an extent,
--- then the extents, unless the column gives it), its values. nil if the bytes are too few or too many.
local function array(bytes, dtype, shape)
  local at = 1
  if not dtype then
    dtype, at = CODES[bytes:byte(at)], at + 1
  end
  local kind = DTYPES[dtype]
  if not kind then return nil end
  if not shape then
    local head = bytes:byte(at)
    if not head then return nil end
    local ndim, width = head >> 2, 1 << (head & 3)
    at, shape = at + 1, {}
    if ndim > 16 or #bytes < at - 1 + ndim * width then return nil end
    for i = 1, ndim do shape[i], at = string.unpack("<I" .. width, bytes, at) end
  end
  local n = math.tointeger(dtype:match "%d+$") // 8
  for _, extent in ipairs(shape) do
    if extent < 0 or extent > #bytes then return nil end
    n = n * extent
  end
  if n ~= #bytes - at + 1 then return nil end
  return accel.from_bytes(bytes:sub(at), kind, shape)
end

--- The function from a column's bytes to its value.
local function decoder(who, name, encoding)
  if BYTES[encoding] then return function(bytes) return bytes end end
  if encoding == "str" then return function(bytes) return utf8.len(bytes) and bytes or nil end end
  if encoding == "json" then return function(bytes) return accel.json.decode(bytes, { records = true }) end end
  local form = NUMBERS[encoding]
  if form then
    return function(bytes) return #bytes == string.packsize(form) and (string.unpack(form, bytes)) or nil end
  end
  local kind, dtype, shape = encoding:match "^(ndarray):?([^:]*):?(.*)$"
  if kind then
    local extents
    if shape ~= "" then
      extents = {}
      for n in shape:gmatch "%d+" do extents[#extents + 1] = math.tointeger(n) end
    end
    return function(bytes) return array(bytes, dtype ~= "" and dtype or nil, extents) end
  end
  raise("%s: column '%s' has the encoding %s, which accel does not read%s", who, name, encoding,
    encoding == "pkl" and ": a pickle can run code" or "")
end

-- ---- shards ----

local function fault(path, fmt, ...) raise("MDS: %s: %s", path, fmt:format(...)) end

local function plain_name(folder, entry)
  local name = type(entry) == "table" and entry.basename
  if type(name) ~= "string" or name:find "/" or name == ".." or name == "" then
    fault(folder .. "/index.json", "a shard is not a file of this folder: %s", tostring(name))
  end
  return folder .. "/" .. name
end

--- What index.json says about a shard.
local function describe(folder, s)
  local zip = type(s.zip_data) == "table" and s.zip_data or nil
  local path = plain_name(folder, s.raw_data)
  if s.format ~= "mds" then fault(folder .. "/index.json", "the format %s; only mds is read", tostring(s.format)) end
  local names, encodings, sizes = s.column_names, s.column_encodings, s.column_sizes
  local bytes = s.raw_data.bytes
  if type(names) ~= "table" or type(encodings) ~= "table" or type(sizes) ~= "table" or #names ~= #encodings
    or math.type(s.samples) ~= "integer" or s.samples < 0 or math.type(bytes) ~= "integer" then
    fault(folder .. "/index.json", "a shard is not fully described")
  end
  local raw = lfs.attributes(path, "size")
  if not raw and zip then
    path = plain_name(folder, zip)
    if not lfs.attributes(path, "size") then fault(path, "the shard is missing") end
  elseif not raw then
    fault(path, "the shard is missing, which index.json names")
  elseif raw ~= bytes then
    fault(path, "%d bytes, index.json says %d; copy the shard again", raw, bytes)
  end
  local decoders = {}
  for i, name in ipairs(names) do decoders[i] = decoder("MDS: " .. folder, name, tostring(encodings[i])) end
  return { path = path, samples = s.samples, bytes = bytes, names = names, sizes = sizes, decoders = decoders }
end

local function integer(file, shard, at)
  local bytes = file:seek("set", at) and file:read(4)
  if not bytes or #bytes < 4 then fault(shard.path, "the shard is cut off; copy it again") end
  return (string.unpack("<I4", bytes))
end

local function open(shard)
  local file, message = core.open_unpacked(shard.path, { limit = shard.limit })
  if not file then raise("MDS: %s", message) end
  local bytes = file:seek "end"
  if bytes ~= shard.bytes then fault(shard.path, "%d bytes unpacked, index.json says %d; copy the shard again", bytes, shard.bytes) end
  local n = integer(file, shard, 0)
  if n ~= shard.samples then fault(shard.path, "%d samples, index.json says %d", n, shard.samples) end
  return file
end

--- The bytes of sample k, from 0.
local function record(shard, k)
  local file = open_files.get(shard, open)
  local from, to = integer(file, shard, 4 + 4 * k), integer(file, shard, 8 + 4 * k)
  if from < 8 + 4 * shard.samples or to < from or to > shard.bytes then
    fault(shard.path, "sample %d is at the bytes %d to %d, outside of the shard", k + 1, from, to)
  end
  if shard.limit > 0 and to - from > shard.limit then
    fault(shard.path, "sample %d has %d bytes, more than the limit of %d; set the option limit (bytes) if you trust the file", k + 1,
      to - from, shard.limit)
  end
  local bytes = file:seek("set", from) and (to == from and "" or file:read(to - from))
  if not bytes or #bytes ~= to - from then fault(shard.path, "the shard is cut off; copy it again") end
  return bytes
end

---@param folder string
---@param opts? table
---  columns string[]: the names that samples keep (default: all)
---  limit integer = 0: bytes that a sample may have, and a compressed shard when unpacked. 0: 128 MiB and 64 times the size of the file
function MDS:init(folder, opts)
  local o = options("MDS", opts, { columns = options.none, limit = 0 })
  if type(folder) ~= "string" then raise("MDS: folder must be a string, got %s", check.shown(folder)) end
  local index, message = read_json(folder .. "/index.json", { nulls = true })
  if not index then raise("MDS: %s", message) end
  if type(index.shards) ~= "table" then fault(folder .. "/index.json", "the list of shards is missing") end
  self.folder, self.given, self.shards, self.n = folder, opts, {}, 0
  for i, s in ipairs(index.shards) do
    local shard = describe(folder, s)
    shard.first, shard.limit = self.n, o.limit
    self.shards[i], self.n = shard, self.n + shard.samples
  end
  self.columns = self.shards[1] and self.shards[1].names or {}
  if o.columns then
    self.wanted = {}
    for _, name in ipairs(o.columns) do self.wanted[name] = true end
  end
end

function MDS:len() return self.n end

--- The shards and their order, for states of loaders: accel.data.fingerprint.
---@return string
function MDS:fingerprint()
  local paths = {}
  for i, shard in ipairs(self.shards) do paths[i] = shard.path end
  return fingerprint.files(paths)
end

function MDS:worker_spec() return { module = "accel.data.mds", args = { self.folder, self.given, n = 2 } } end

---@param i integer
function MDS:get(i)
  self:check_position(i)
  local low, high, shards = 1, #self.shards, self.shards
  while low < high do
    local middle = (low + high + 1) // 2
    if shards[middle].first < i then low = middle else high = middle - 1 end
  end
  local shard = shards[low]
  local k = i - shard.first
  local bytes, at, lengths = record(shard, k - 1), 1, {}
  for c = 1, #shard.names do -- sizes of the columns that vary come first
    local size = shard.sizes[c]
    if math.type(size) == "integer" then
      lengths[c] = size
    else
      if #bytes < at + 3 then fault(shard.path, "sample %d is cut off", k) end
      lengths[c], at = string.unpack("<I4", bytes, at)
    end
  end
  local sample = {}
  for c, name in ipairs(shard.names) do
    if lengths[c] > #bytes - at + 1 then fault(shard.path, "sample %d: column %s is cut off", k, name) end
    if not self.wanted or self.wanted[name] then
      local ok, value = pcall(shard.decoders[c], bytes:sub(at, at + lengths[c] - 1))
      if not ok or value == nil then fault(shard.path, "sample %d: column %s cannot be decoded", k, name) end
      sample[name] = value
    end
    at = at + lengths[c]
  end
  if at ~= #bytes + 1 then fault(shard.path, "sample %d has %d bytes too many", k, #bytes + 1 - at) end
  return sample
end

return MDS
