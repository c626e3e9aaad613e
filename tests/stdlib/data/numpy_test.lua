-- NumPy's files: what save, savez and savez_compressed write, load reads, whole, mapped and by row order; headers in every form that NumPy
-- allows; what is refused, by a message that names the file and the fault.
local accel = require "accel"
local np = accel.data.numpy
local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/numpy-"))
local function at(name) return dir .. "/" .. name end

local function put(name, bytes)
  local f = assert(io.open(at(name), "wb"))
  f:write(bytes)
  f:close()
  return at(name)
end

local function same(got, want)
  assert(got.dtype == want.dtype and got.shape == want.shape, tostring(got.dtype) .. tostring(got.shape))
  assert(got:contiguous():to_bytes() == want:contiguous():to_bytes())
end

local function refused(text, f, ...)
  local ok, e = pcall(f, ...)
  assert(not ok and tostring(e):find(text, 1, true), ("%s, not an error with '%s'"):format(tostring(e), text))
end

local function npy(descr, order, shape, data, version)
  local text = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n"):format(descr, order, shape)
  return "\x93NUMPY" .. string.char(version or 1, 0) .. string.pack((version or 1) == 1 and "<I2" or "<I4", #text) .. text .. data
end

-- every dtype, shapes from rank 0 to 5, an array without elements, a view
accel.manual_seed(3)
for _, dtype in ipairs { "bool", "u8", "i8", "i16", "i32", "i64", "f16", "f32", "f64" } do
  local x = (accel.rand(3, 4) * 100):to(dtype)
  assert(np.save(at "x.npy", x))
  same(np.load(at "x.npy"), x)
  same(np.load(at "x.npy", { mmap_mode = "r" }), x)
end
for _, shape in ipairs { {}, { 5 }, { 1, 1, 1, 1, 2 }, { 3, 0, 2 } } do
  local x = accel.arange(0, 10, 1, { dtype = "i32" }):narrow(1, 1, 1):expand(accel.zeros(shape):numel()):contiguous():view(shape)
  assert(np.save(at "s.npy", x))
  same(np.load(at "s.npy"), x)
end
local view = accel.arange(0, 12):view { 3, 4 }:transpose(1, 2)
assert(np.save(at "v.npy", view))
same(np.load(at "v.npy"), view:contiguous())
local head = io.open(at "v.npy", "rb"):read(128)
assert(head:sub(1, 10) == "\x93NUMPY\1\0" .. string.pack("<I2", 118) and head:find("'shape': (4, 3), }", 1, true) and head:sub(-1) == "\n")

-- a mapped array is the file: writes stay in memory
local mapped = np.load(at "v.npy", { mmap_mode = "c" })
mapped:add_(1)
same(mapped, view + 1)
same(np.load(at "v.npy"), view:contiguous())

-- the order and the byte order of others
same(np.load(put("f.npy", npy("'>i2'", "True", "(2, 3)", string.pack(">i2i2i2i2i2i2", 1, 4, 2, 5, 3, 6)))),
  accel.tensor({ { 1, 2, 3 }, { 4, 5, 6 } }, { dtype = "i16" }))
same(np.load(put("d.npy", npy('"<f8"', "False", "(2L,)", string.pack("<dd", 1, -2), 2))), accel.tensor({ 1.0, -2.0 }, { dtype = "f64" }))
same(np.load(put("u.npy", npy("'<u8'", "False", "()", string.pack("<I8", 7), 3))), accel.tensor(7, { dtype = "i64" }))
local text = np.load(put("t.npy", npy("'<U2'", "True", "(2, 2)", string.pack("<I4I4I4I4I4I4I4I4", 97, 0, 98, 99, 100, 0, 0, 0))))
assert(text.dtype == "<U2" and table.concat(text.values, ",") == "a,d,bc,")
assert(np.load(put("m.npy", npy("'<M8[s]'", "False", "(1,)", string.pack("<i8", -5)))).values[1] == -5)

-- archives
local w, y = accel.rand(7, 3), accel.tensor({ 1, 2, 3 }, { dtype = "i64" })
local has_zlib = pcall(np.savez_compressed, at "c.npz", { w = w, y = y }) and accel.data.numpy.savez_compressed(at "c.npz", { w = w, y = y })
for _, name in ipairs(has_zlib and { "savez", "savez_compressed" } or { "savez" }) do
  assert(np[name](at "a.npz", { w = w, y = y }))
  for _, mode in ipairs { false, "r" } do
    local all = np.load(at "a.npz", { mmap_mode = mode or nil })
    same(all.w, w)
    same(all.y, y)
  end
end
assert(np.savez(at "l.npz", { w, y }))
same(np.load(at "l.npz").arr_1, y)
local bytes = io.open(at "l.npz", "rb"):read "a"
local place = bytes:find(w:contiguous():to_bytes(), 1, true)
for _, size in ipairs { 2, 4 } do -- Fortran order of dtypes that no op moves
  local form, bytes = "<I" .. size, {}
  for i, v in ipairs { 1, 4, 2, 5, 3, 6 } do bytes[i] = string.pack(form, v + 250) end
  put("f.npy", npy(("'<u%d'"):format(size), "True", "(2, 3)", table.concat(bytes)))
  for _, mode in ipairs { false, "r" } do
    local x = np.load(at "f.npy", { mmap_mode = mode or nil })
    assert(x.dtype == "u" .. 8 * size and x:is_contiguous())
    same(x:to "i64", (accel.arange(6) + 251):view(2, 3))
  end
end
refused("elements (|S0) have no bytes", np.load, put("s0.npy", npy("'|S0'", "False", "(4611686018427387904,)", "")))
refused("l2.npz: entry 'arr_0.npy' does not match its checksum", np.load,
  put("l2.npz", bytes:sub(1, place - 1) .. "\1\2\3\4" .. bytes:sub(place + 4)))
refused("bytes stand before the archive", np.load, put("l3.npz", "PK\5\6" .. bytes))
refused("l4.npz: it is not a zip archive", np.load, put("l4.npz", bytes:sub(1, -4)))

-- refusals
refused("o.npy: an object array: its data is a pickle", np.load, put("o.npy", npy("'|O'", "False", "(1,)", "cos\nsystem\n")))
refused("a structured array", np.load, put("o.npy", npy("[('a', '<i4')]", "False", "(1,)", "1234")))
refused("its type '<f16' is not supported", np.load, put("o.npy", npy("'<f16'", "False", "(1,)", ("0"):rep(16))))
refused("its header promises 8 bytes of values, there are 4", np.load, put("o.npy", npy("'<i4'", "False", "(2,)", "1234")))
refused("the sizes of its shape overflow", np.load, put("o.npy", npy("'<i4'", "False", "(4611686018427387904, 4611686018427387904)", "")))
refused("its header has no valid shape", np.load, put("o.npy", npy("'<i4'", "False", "(-1,)", "")))
refused("its header has no valid shape", np.load, put("o.npy", npy("'<i4'", "False", "__import__('os')", "")))
refused("its header has no valid fortran_order", np.load, put("o.npy", npy("'<i4'", "'no'", "(1,)", "1234")))
refused("a value of uint64 is above 2^63 - 1", np.load, put("o.npy", npy("'<u8'", "False", "(1,)", ("\xff"):rep(8))))
refused("format 9.0 is not supported", np.load, put("o.npy", npy("'<i4'", "False", "(1,)", "1234", 9)))
refused("the array is bf16, which NumPy lacks", np.save, at "b.npy", accel.zeros(2, { dtype = "bf16" }))
refused("mmap_mode must be one of r, c", np.load, at "v.npy", { mmap_mode = "w+" })
local t, message, code = np.load(at "missing.npy")
assert(t == nil and message:find "missing.npy" and code == "not_found")
print "ok"
