-- Fuzzing of NumPy's files: any bytes are an array, arrays by name, or an error that names the file and is not a fault of the code. Memory
-- stays below the limit that load got. An array that was read is written and read again with the same bits. Files are those that accel
-- writes, and headers of other writers, cut, joined and changed byte by byte; entries of archives get right checksums half of the time, so
-- that the arrays in them are reached.
--   accel-run tests/fuzz/numpy.lua SECONDS [SEED [CHANGES]]
local accel = require "accel"
local core = require "accel.file.core"
local np = accel.data.numpy

local seconds, seed = tonumber(arg[1] or 5), math.tointeger(tonumber(arg[2] or os.getenv "ACCEL_TEST_SEED" or os.time()))
local most = math.tointeger(tonumber(arg[3])) or math.maxinteger
math.randomseed(seed)
local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/fuzz-numpy-"))
local LIMIT <const> = 1 << 20

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end
local function write(path, bytes)
  local f <close> = assert(io.open(path, "wb"))
  assert(f:write(bytes))
end

-- ---- the files ----

local arrays, archives = {}, {}

local function header(text, version)
  return "\x93NUMPY" .. string.char(version, 0) .. string.pack(version == 1 and "<I2" or "<I4", #text) .. text
end
local function foreign(descr, order, shape, bytes, version)
  arrays[#arrays + 1] = header(("{'descr': %s, 'fortran_order': %s, 'shape': %s, }   \n"):format(descr, order, shape), version or 1) .. bytes
end
foreign("'>f4'", "False", "(2, 3)", ("\x3f\x80\0\0"):rep(6))
foreign("'<f8'", "True", "(2, 2)", ("\0\0\0\0\0\0\xf0\x3f"):rep(4), 2)
foreign("'>c8'", "True", "(3,)", ("\x3f\x80\0\0\0\0\0\0"):rep(3), 3)
foreign("'<u8'", "False", "(2,)", ("\1\0\0\0\0\0\0\0"):rep(2))
foreign("'<U3'", "False", "(2,)", ("a\0\0\0\u{e9}\0\0\0\0\0\0"):rep(2))
foreign("'|S5'", "False", "(2, 1)", "abc\0\0defgh")
foreign("'<M8[ns]'", "True", "(1, 2)", ("\1\2\3\4\5\6\7\0"):rep(2))
foreign("'|O'", "False", "(1,)", "\x80\4N.")
foreign("[('a', '<i4'), ('b', '<f4')]", "False", "(1,)", "\0\0\0\0\0\0\0\0")
foreign("'<i2'", "False", "()", "\1\0")
foreign("'<i2'", "False", "(0, 7)", "")
for _, dtype in ipairs { "bool", "u8", "i16", "i64", "f16", "f32", "f64" } do
  assert(np.save(dir .. "/x.npy", (accel.arange(6) % 2):to(dtype):view(2, 3)))
  arrays[#arrays + 1] = read(dir .. "/x.npy")
end
local some = { a = accel.arange(5), ["b/c"] = accel.zeros(2, 3, 4), [1] = accel.ones(1) }
assert(np.savez(dir .. "/x.npz", some))
archives[1] = read(dir .. "/x.npz")
if pcall(core.deflate, "") then
  assert(np.savez_compressed(dir .. "/x.npz", some))
  archives[2] = read(dir .. "/x.npz")
end

--- An archive of these bytes as its entries, by the rules of zip, with one of its numbers wrong now and then.
local function archive(entries)
  local function wrong(v) return math.random(30) == 1 and math.random(0, 1 << math.random(1, 31)) or v end
  local body, directory, at = {}, {}, 0
  for i, bytes in ipairs(entries) do
    local name, packed, method = ("e%d.npy"):format(math.random(30) == 1 and 1 or i), bytes, 0
    if #archives > 1 and math.random(2) == 1 then packed, method = core.deflate(bytes), 8 end
    local head = string.pack("<I2I2I2I2I4I4I4I2", 0, wrong(method) & 0xFFFF, 0, 0, wrong(core.crc32(bytes)), wrong(#packed),
      wrong(#bytes), #name)
    body[i] = "PK\3\4" .. string.pack("<I2", 20) .. head .. "\0\0" .. name .. packed
    directory[i] = "PK\1\2" .. string.pack("<I2I2", 20, 20) .. head .. ("\0"):rep(12) .. string.pack("<I4", wrong(at)) .. name
    at = at + #body[i]
  end
  local list = table.concat(directory)
  return table.concat(body) .. list .. "PK\5\6"
    .. string.pack("<I2I2I2I2I4I4I2", 0, 0, #entries, wrong(#entries) & 0xFFFF, wrong(#list), wrong(at), 0)
end

-- ---- changes ----

local PIECES <const> = { "'", '"', "(", ")", ",", "[", "]", "{", "}", ": ", "True", "False", "None", "<f4", ">i8", "|O", "<U9", "|S0",
  "|V4", "L", "-1", "0", "9223372036854775807", "18446744073709551616", "4611686018427387904", "\\", "\n", "\0", "'shape': ", "'descr': ",
  "PK\1\2", "PK\3\4", "PK\5\6",
  "PK\6\6", "PK\6\7", "\xff\xff\xff\xff", "\x93NUMPY" }

local function pick(list) return list[math.random(#list)] end

local function change(bytes)
  for _ = 1, math.random(4) do
    local at, kind = math.random(0, #bytes), math.random(6)
    if kind == 1 then bytes = bytes:sub(1, at) .. pick(PIECES) .. bytes:sub(at + 1)
    elseif kind == 2 then bytes = bytes:sub(1, at) .. bytes:sub(at + math.random(20))
    elseif kind == 3 then bytes = bytes:sub(1, at) .. string.char(math.random(0, 255)) .. bytes:sub(at + 2)
    elseif kind == 4 then bytes = bytes:sub(1, at) .. pick(arrays):sub(math.random(200))
    elseif kind == 5 then
      bytes = bytes:gsub("%d+", function(n) return math.random(3) == 1 and tostring(math.random(0, 1 << math.random(62))) or n end, 3)
    else bytes = bytes:sub(1, at) .. string.char(math.random(0, 255)):rep(math.random(8)) .. bytes:sub(at + 1) end
  end
  return bytes:sub(1, 1 << 16)
end

local function input()
  local kind = math.random(4)
  if kind == 1 then return change(pick(archives)) end
  if kind == 2 then return change(pick(arrays)) end
  local entries = {}
  for i = 1, math.random(3) do entries[i] = math.random(2) == 1 and change(pick(arrays)) or pick(arrays) end
  return archive(entries)
end

-- ---- one file ----

local path, again = dir .. "/mixture.npz", dir .. "/again.npy"
local refused, taken, slowest = 0, 0, 0

local function touch(x)
  if accel.is_tensor(x) then
    local bytes = x:contiguous():to_bytes()
    if math.random(20) == 1 then
      assert(np.save(again, x))
      assert(np.load(again):to_bytes() == bytes, "other bits after save and load")
    end
    return #bytes
  end
  if x.descr or x.values then return #x.values end
  local n = 0
  for _, y in accel.pairs(x) do n = n + touch(y) end
  return n
end

local function one(bytes)
  write(path, bytes)
  local began = os.clock() -- of the processor: other programs do not count
  local map = math.random(2) == 1 and "r" or nil
  local ok, got, why = pcall(np.load, path, { limit = LIMIT, mmap_mode = map })
  slowest = math.max(slowest, os.clock() - began)
  if ok and got ~= nil then
    taken = taken + 1
    assert(touch(got) <= LIMIT + #bytes, "more than the limit")
    return
  end
  refused = refused + 1
  local message = tostring(not ok and got or why)
  assert(message:find(path, 1, true) and not message:find "attempt to " and not message:find "stack traceback" and not message:find "bad argument"
    and not message:find "out of memory" and #message < 1000, message)
end

for _, bytes in ipairs(arrays) do one(bytes) end
for _, bytes in ipairs(archives) do one(bytes) end
assert(taken > 10 and refused >= 2, "the files as they are")
local start, n = accel.clock(), 0
while accel.clock() - start < seconds and n < most do
  local bytes = input()
  local ok, message = pcall(one, bytes)
  if not ok then
    write("crash-input", bytes)
    error(("seed %d, change %d, kept as crash-input: %s"):format(seed, n, tostring(message)), 0)
  end
  n = n + 1
end
assert(slowest < 2, ("one file took %.1f s of the processor"):format(slowest))
assert(n < 5000 or taken > 30 and refused > 30, "the changes reach one side only")
print(("%d changes: %d read, %d refused, slowest %.3f s, seed %d"):format(n, taken, refused, slowest, seed))
