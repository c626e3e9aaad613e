-- Files that unpack to far more than they have: every reader that keeps content in memory stops at its limit, which is the option `limit`,
-- or 128 MiB and 64 times the size of the file. The error names the file, the limit and the option, memory grows by at most 2.5 times the
-- limit (a buffer that grows is copied), and a larger limit reads the file. Each file here has at most 2 MB. `-v` prints memory and times.
local accel = require "accel"
local core = require "accel.file.core"
local data = accel.data
local tmp = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/bombs-"))
local verbose = arg and arg[1] == "-v"
local MIB <const> = 1 << 20

local has = {}
for _, l in ipairs(accel.libraries()) do has[l.name] = l.version ~= nil end

local function write(name, ...)
  local f <close> = assert(io.open(tmp .. "/" .. name, "wb"))
  assert(f:write(...))
  return tmp .. "/" .. name
end

-- ---- content of n bytes, of one byte each, in every format ----

local pack = {}
function pack.gz(c, n) -- members of 16 MiB
  local piece = c:rep(16 * MIB)
  local member = "\x1f\x8b\8\0\0\0\0\0\0\3" .. assert(core.deflate(piece)) .. string.pack("<I4I4", core.crc32(piece), #piece)
  return member:rep(n // #piece)
end
function pack.zst(c, n) -- one frame of blocks that repeat a byte
  local full = string.pack("<I3", 128 * 1024 << 3 | 2) .. c
  local last = string.pack("<I3", 128 * 1024 << 3 | 3) .. c
  return "\x28\xb5\x2f\xfd\0\x38" .. full:rep(n // (128 * 1024) - 1) .. last
end
function pack.lz4(c, n) -- a literal, then it again and again, in blocks of 4 MiB
  local left = 4 * MIB - 1 - 19 - 5
  local block = "\x1f" .. c .. "\1\0" .. ("\xff"):rep(left // 255) .. string.char(left % 255) .. "\x50" .. c:rep(5)
  return "\x04\x22\x4d\x18\x60\x70\x73" .. (string.pack("<I4", #block) .. block):rep(n // (4 * MIB)) .. "\0\0\0\0"
end
-- ten million zeros by Python's bz2, and a million by its lzma, as often as they are needed
local function hex(text) return (text:gsub("%x%x", function(x) return string.char(tonumber(x, 16)) end)) end
local ZEROS_BZ2 <const> = "425a6839314159265359d3a5dc7c004c97c010c00000080008200030cc0529a6aa4451b014451e2ee48a70a121a74bb8f8"
local ZEROS_XZ <const> = "fd377a585a000004e6d6b446020021011c00000010cf58ccef423f00d15d00006ffdffffa3b7ff473e481572396151b89228e6a38607f9"
  .. "eee41e82d32fc53a3c014bb17ec98a8a4d2fa30dd97fa6e38c231153e05918c5758ae277f8b6947f0c6ac0de744964e2e95c53b204d8f7"
  .. "440cab5f0d6d46e9e5c37688b79657acb64de1691d6ffb4b88106c42cb883f5c008fd04eaf262894711f3d8f24e1709ea7235fec28cb85"
  .. "d195988a7e2a91f22775f719c006984d98fdd8afd5900fc42553f8f591363105a5b0ee6fc1704d470cd19111aaad601dbaceb127185c59"
  .. "86e9665258bee976ac59e4e55b0508f993c33f360000000032b35597eed2e1e30001ed01c0843d00d5e076aeb1c467fb02000000000459"
  .. "5a"
function pack.bz2(_, n) return hex(ZEROS_BZ2):rep(n // 10000000 + 1) end
function pack.xz(_, n) return hex(ZEROS_XZ):rep(n // 1000000 + 1) end

local library = { gz = "zlib", zst = "zstd", lz4 = "lz4", bz2 = "bzip2", xz = "lzma" }
for end_, name in pairs(library) do
  if not has[name] then pack[end_] = nil end
end

-- ---- measured refusals ----

local function status(key)
  local f <close> = io.open "/proc/self/status"
  return f and tonumber(f:read "a":match(key .. ":%s*(%d+)") or nil) or 0
end

--- f raises or returns nil, message: the message names the file and the limit. Memory and time are bounded.
local function stops(path, limit, f, ...)
  collectgarbage()
  collectgarbage()
  local clear <close> = io.open("/proc/self/clear_refs", "w") -- "5" sets the peak to the present size
  if clear then
    clear:write "5"
    clear:flush()
  end
  local before, start = status "VmRSS", accel.clock()
  local ok, got, message = pcall(f, path, ...)
  local seconds, kib = accel.clock() - start, status "VmHWM" - before
  message = tostring(not ok and got or message)
  local name = path:match "[^/]+$"
  assert((not ok or got == nil) and message:find(name, 1, true) and message:find(("limit of %d"):format(limit), 1, true)
    and message:find("option limit", 1, true), ("%s, limit %d: %s"):format(name, limit, message))
  assert(seconds < 20, ("%s: %.1f s"):format(name, seconds))
  if clear and not os.getenv "ACCEL_TEST_SANITIZE" then
    assert(kib < 2.5 * limit / 1024 + 32 * 1024, ("%s: %d MiB in memory, the limit is %d"):format(name, kib // 1024, limit // MIB))
  end
  if verbose then print(("%-14s limit %4d MiB   %5.0f MiB   %.2f s"):format(name, limit // MIB, kib / 1024, seconds)) end
end
local function rule(path) return 128 * MIB + 64 * assert(require "lfs".attributes(path, "size")) end
local function first(set) return set:iterate(0, 0)() end

-- ---- whole files, by every format ----
for end_ in accel.pairs(pack) do -- the rule for one format, and for all with -v: all are read by the same code
  local by_rule = end_ == "zst" or verbose
  local path = write("rows.csv." .. end_, pack[end_]("\0", by_rule and 384 * MIB or 32 * MIB))
  if by_rule then stops(path, rule(path), data.CSV) end
  stops(path, 20 * MIB, data.CSV, { limit = 20 * MIB })
  os.remove(path)
end
if not pack.zst then
  print "SKIP without libzstd, of which the other files here are"
  os.exit(77)
end

-- ---- every reader ----
local big = pack.zst("1", 384 * MIB)
local json = write("list.json.zst", big)
stops(json, rule(json), data.JSON)
stops(json, 20 * MIB, data.JSON, { limit = 20 * MIB })
local plain = write("plain.json", "[1,2,3]")
stops(plain, 6, data.JSON, { limit = 6 })
assert(#data.JSON(plain, { limit = 7 }) == 3)

local lines = write("lines.jsonl.zst", big)
stops(lines, rule(lines), data.JSONL) -- one line
stops(lines, 20 * MIB, function(p) return first(data.JSONL.stream(p, { limit = 20 * MIB })) end)
local short = write("short.jsonl.zst", pack.zst("\n", MIB), pack.zst(" ", 128 * 1024)) -- many short lines
stops(short, MIB, data.JSONL, { limit = MIB })
assert(#data.JSONL(short, { limit = 2 * MIB }) == 0 and first(data.JSONL.stream(short, { limit = MIB })) == nil)

for _, name in ipairs { "rows.arrow.zst", "rows.parquet.zst" } do
  local path = write(name, big)
  local class = name:find "arrow" and data.Arrow or data.Parquet
  stops(path, rule(path), class)
  stops(path, 20 * MIB, class, { limit = 20 * MIB })
end

local idx = write("idx.zst", big)
stops(idx, rule(idx), data.IDX.read)
stops(idx, 20 * MIB, data.IDX.read, { limit = 20 * MIB })
stops(idx, 20 * MIB, data.IDX, idx, { limit = 20 * MIB })

do -- a member of an archive, and an archive of many small ones, which is read
  local function member(name, size)
    local h = name .. ("\0"):rep(100 - #name) .. "0000644\0" .. ("0000000\0"):rep(2) .. ("%011o\0"):format(size) .. "00000000000\0"
    h = h .. (" "):rep(8) .. "0" .. ("\0"):rep(100) .. "ustar\00000"
    h = h .. ("\0"):rep(512 - #h)
    local sum = 0
    for i = 1, 512 do sum = sum + h:byte(i) end
    return h:sub(1, 148) .. ("%06o\0 "):format(sum) .. h:sub(157)
  end
  -- a Zstandard frame whose blocks hold bytes as they are
  local function raw(bytes) return "\x28\xb5\x2f\xfd\0\x38" .. string.pack("<I3", #bytes << 3 | 1) .. bytes end
  local tar = write("shard.tar.zst", raw(member("a.bin", 384 * MIB)), big, raw(("\0"):rep(1024)))
  stops(tar, rule(tar), function(p) return first(data.WebDataset(p)) end)
  stops(tar, 20 * MIB, function(p) return first(data.WebDataset(p, { limit = 20 * MIB })) end)
  local parts = {}
  for i = 1, 24 do parts[i] = raw(member(i .. ".bin", MIB)) .. pack.zst("\0", MIB) end
  local many, n = write("many.tar.zst", table.concat(parts), raw(("\0"):rep(1024))), 0
  for sample in data.WebDataset(many, { limit = MIB }):iterate(0, 0) do n = n + #sample.bin end
  assert(n == 24 * MIB)

  -- TFRecord: a length with a right checksum
  local function crc32c(bytes)
    local crc = 0xFFFFFFFF
    for i = 1, #bytes do
      crc = crc ~ bytes:byte(i)
      for _ = 1, 8 do crc = crc >> 1 ~ (crc & 1 == 1 and 0x82F63B78 or 0) end
    end
    crc = ~crc & 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
  end
  local length = string.pack("<I8", 384 * MIB)
  local records = write("a.tfrecord.zst", raw(length .. string.pack("<I4", crc32c(length))), big)
  stops(records, rule(records), function(p) return first(data.TFRecord(p)) end)
  stops(records, 20 * MIB, function(p) return first(data.TFRecord(p, { limit = 20 * MIB })) end)
end

do -- a shard of MosaicML's, whose index promises any size
  accel.makedirs(tmp .. "/mds")
  local path = write("mds/shard.mds.zstd", big)
  local function index(bytes)
    write("mds/index.json", accel.json.encode { version = 2, shards = { { format = "mds", version = 2, compression = "zstd", samples = 3,
      column_names = { "a" }, column_encodings = { "int" }, column_sizes = { 8 }, hashes = accel.json.array {}, size_limit = 1 << 40,
      raw_data = { basename = "shard.mds", bytes = bytes, hashes = {} },
      zip_data = { basename = "shard.mds.zstd", bytes = #big, hashes = {} } } } })
  end
  index(1 << 40)
  stops(path, rule(path), function() return data.MDS(tmp .. "/mds"):get(1) end)
  stops(path, 20 * MIB, function() return data.MDS(tmp .. "/mds", { limit = 20 * MIB }):get(1) end)
  write("mds/shard.mds.zstd", pack.zst("\0", MIB))
  index(MIB - 1)
  local ok, message = pcall(function() return data.MDS(tmp .. "/mds"):get(1) end)
  assert(not ok and tostring(message):find("1048576 bytes unpacked, index.json says 1048575", 1, true), message)
end

do -- arrays of an archive: entries that overlap count each
  local function u(...) return string.pack(...) end
  local packed = ("x"):rep(400 * 1024)
  local body, directory = {}, {}
  local at = 0
  for i = 1, 4 do
    local name = ("a%d.npy"):format(i)
    body[i] = "PK\3\4" .. u("<I2I2I2I4I4I4I4I2I2", 20, 0, 8, 0, 0, #packed, 400 * MIB, #name, 0) .. name .. packed
    directory[i] = "PK\1\2" .. u("<I2I2I2I2I4I4I4I4I2I2I2I2I2I4I4", 20, 20, 0, 8, 0, 0, #packed, 400 * MIB, #name, 0, 0, 0, 0, 0, at) .. name
    at = at + #body[i]
  end
  local names = table.concat(directory)
  local path = write("arrays.npz", table.concat(body), names, "PK\5\6", u("<I2I2I2I2I4I4I2", 0, 0, 4, 4, #names, at, 0))
  stops(path, rule(path), data.numpy.load)
  stops(path, 20 * MIB, data.numpy.load, { limit = 20 * MIB })
  local zeros = tmp .. "/zeros.npz"
  assert(data.numpy.savez_compressed(zeros, { a = accel.zeros(MIB) })) -- 4 MiB from 4 KB
  stops(zeros, 4 * MIB, data.numpy.load, { limit = 4 * MIB }) -- the header of the array counts
  assert(data.numpy.load(zeros, { limit = 4 * MIB + 128 }).a:numel() == MIB)
end

if has.png then -- a picture that claims its size, in 100 bytes
  local function chunk(kind, bytes) return string.pack(">I4", #bytes) .. kind .. bytes .. string.pack(">I4", core.crc32(kind .. bytes)) end
  local path = write("bomb.png", "\x89PNG\r\n\x1a\n", chunk("IHDR", string.pack(">I4I4", 60000, 60000) .. "\8\2\0\0\0"),
    chunk("IDAT", "x"), chunk("IEND", ""))
  local start = accel.clock()
  local ok, message = pcall(function() return assert(accel.vision.io.read_image(path)) end)
  assert(not ok and tostring(message):find("max_pixels", 1, true) and accel.clock() - start < 1, message)
end
print "ok"
