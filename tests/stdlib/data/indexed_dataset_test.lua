-- data.IndexedDataset: what is malformed is refused with its reason, every truncation too; through a loader's workers; the builder's
-- mistakes. That it reads and writes what megatron-core does is tests/reference/indexed.lua.
--   accel-run tests/stdlib/data/indexed_dataset_test.lua
local accel = require "accel"
local data = accel.data

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/indexed-"))
local prefix = root .. "/text"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "no error with " .. pattern)
  assert(tostring(err):find(pattern), ("%q has no %q"):format(tostring(err), pattern))
end

local b = data.IndexedDatasetBuilder(prefix, { dtype = "u16" })
assert(not io.open(prefix .. ".bin"), "nothing is there before the end")
for i = 1, 20 do
  local list = {}
  for k = 1, i % 5 do list[k] = 1000 * i + k end
  b:add_item(accel.tensor(list, { dtype = "i64" }))
  if i % 4 == 0 then b:end_document() end
end
b:end_document()
fails("holds values that u16 cannot", b.add_item, b, { 70000 })
fails("has one dimension", b.add_item, b, { { 1 } })
fails("modes need multimodal", b.add_item, b, { 1 }, 2)
b:finalize()
fails("it is finished", b.add_item, b, { 1 })
fails("invalid dtype 'f16'", data.IndexedDatasetBuilder, prefix, { dtype = "f16" })

do -- what was written, through the workers of a loader
  local set = data.IndexedDataset(prefix .. ".bin")
  assert(#set == 20 and accel.inspect(set.document_indices:tolist()) == accel.inspect { 0, 4, 8, 12, 16, 20, 20 })
  local seen = 0
  for batch in data.DataLoader(set, { batch_size = 1, num_workers = 2 })() do
    seen = seen + 1
    local n = seen % 5
    assert(batch.shape[#batch.shape] == n, accel.inspect(batch.shape))
    if n > 0 then assert(batch:reshape(-1)[n]:item() == 1000 * seen + n) end
  end
  assert(seen == 20)
  fails("position 21 is outside of 1 .. 20", set.get, set, 21)
  fails("3 elements from 3 on leave sequence 4, which has 4", set.get, set, 4, { offset = 3, length = 3 })
end

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end
local idx = read(prefix .. ".idx")

--- Opens a copy whose index is these bytes.
local function with(bytes, data_bytes)
  assert(accel.write_file(root .. "/bad.idx", bytes))
  assert(accel.write_file(root .. "/bad.bin", data_bytes or read(prefix .. ".bin")))
  return data.IndexedDataset(root .. "/bad")
end

for n = 0, #idx - 1 do fails("bad.idx: ", with, idx:sub(1, n)) end
fails("bytes after its header", with, idx .. "x")
fails("it has modes: give multimodal = true", with, idx .. ("\0"):rep(20))
fails("it has no modes: leave multimodal out", data.IndexedDataset, prefix, { multimodal = true })

local function patched(at, format, value)
  local bytes = string.pack(format, value)
  return idx:sub(1, at) .. bytes .. idx:sub(at + #bytes + 1)
end
fails("not an index of Megatron%-LM", with, patched(0, "<I4", 7))
fails("version 2 of the format", with, patched(9, "<I8", 2))
fails("dtype code 9", with, patched(17, "B", 9))
fails("18446744073709551615 sequences", with, patched(18, "<i8", -1))
fails("do not fit", with, patched(18, "<i8", 1 << 60))
fails("do not fit", with, patched(26, "<i8", 1 << 60))
fails("negative length", with, patched(34, "<i4", -5))
fails("ends outside of the data", with, patched(34, "<i4", 1 << 30))
fails("a pointer outside of the data", with, patched(34 + 80 + 8, "<i8", math.maxinteger))
fails("a pointer outside of the data", with, patched(34 + 80 + 8, "<i8", -2))
fails("a document index outside of the sequences", with, patched(34 + 240 + 8, "<i8", 21))
fails("do not ascend", with, patched(34 + 240 + 8, "<i8", 9))
fails("outside of the data", with, idx, "short")
fails("No such file", data.IndexedDataset, root .. "/none")
