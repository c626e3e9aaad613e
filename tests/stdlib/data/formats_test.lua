-- Data sets of files: JSONL, Parquet, Arrow, WebDataset, TFRecord. The files of tests/reference/formats hold the samples 0 .. 40.
local accel = require "accel"
local data = accel.data
local src = os.getenv "ACCEL_TEST_SRC" or "."
local folder = src .. "/tests/reference/formats/"
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"

-- The libraries of compression that this machine has decide which files can be read.
local has = {}
for _, l in ipairs(accel.libraries()) do has[l.name] = l.version ~= nil end
local function can(path) -- by the name's end
  local needs = { gz = "zlib", zst = "zstd", xz = "lzma", bz2 = "bzip2", lz4 = "lz4", parquet = "zstd" }
  local library = needs[path:match "%w+$"]
  return library == nil or has[library]
end

local function raises(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
end
local function write(name, bytes)
  local f <close> = assert(io.open(tmp .. "/" .. name, "wb"))
  f:write(bytes)
  return tmp .. "/" .. name
end

local function check_row(row, i)
  assert(row.id == i and row.text == ("sample %d \u{e9}"):format(i) and #row.ids == i % 5)
  for k, v in ipairs(row.ids) do assert(v == k - 1) end
end

do -- rows by position
  local sets = { data.JSONL(folder .. "part-{0..1}.jsonl"), data.Arrow(folder .. "part-*.arrow") }
  if can "parquet" then sets[#sets + 1] = data.Parquet(folder .. "part-?.parquet") end
  for _, set in ipairs(sets) do
    assert(#set == 41)
    for _, i in ipairs { 1, 24, 23, 41, 7 } do check_row(set:get(i), i - 1) end
    raises("outside of 1 .. 41", set.get, set, 42)
    local ids = set:select_columns({ "id" }):shuffle(3):take(5)
    assert(#ids == 5 and ids:get(1).id and ids:get(1).text == nil)
  end
  for _, end_ in ipairs { "gz", "zst", "xz", "bz2", "lz4" } do
    if can(end_) then
      local set = data.JSONL(folder .. "part-{0,1}.jsonl." .. end_)
      assert(#set == 41)
      check_row(set:get(30), 29)
    end
  end
end

do -- optional structs with required columns below them: the rows that pyarrow reads
  local set, want = data.Parquet(folder .. "structs.parquet", { nulls = true }), data.JSONL(folder .. "structs.jsonl", { nulls = true })
  local function text(v)
    if type(v) ~= "table" then return tostring(v) end
    local out = {}
    for k, x in accel.pairs(v) do out[#out + 1] = tostring(k) .. "=" .. text(x) end
    return "{" .. table.concat(out, ",") .. "}"
  end
  assert(#set == #want)
  for i = 1, #want do assert(text(set:get(i)) == text(want:get(i)), i) end
end

if can "gz" then -- fields that no sample has
  local function read(fields)
    local n = 0
    for _ in data.WebDataset(folder .. "part-0.tar.gz", { fields = fields }):iterate(0, 0) do n = n + 1 end
    return n
  end
  assert(read { "cls" } == 23 and read { "CLS", "txt" } == 23)
  raises("sample s000 has none of the `fields`; its fields are cls, json, txt", read, { "jpg" })
  assert(read { "__key__" } == 23)
  local told, was = {}, warn
  warn = function(...) told[#told + 1] = table.concat { ... } end -- luacheck: ignore 121
  assert(read { "cls", "jpg" } == 23)
  warn = was -- luacheck: ignore 121
  assert(#told == 1 and told[1]:find("field 'jpg'", 1, true) and told[1]:find("cls, json, txt", 1, true), told[1])
end

do -- JSON files
  local path = write("list.json", '\u{feff}[\n {"a": 1, "b": null},\n {"a": 18446744073709551616}\n]\n')
  local set = data.JSON(path)
  assert(#set == 2 and set:get(1).b == nil and set:get(2).a == "18446744073709551616")
  assert(#data.JSON(write("field.json", '{"data": [1, 2, 3]}'), { field = "data" }) == 3)
  raises("not a list", data.JSON, tmp .. "/field.json")
  raises("no field 'x'", data.JSON, tmp .. "/field.json", { field = "x" })
  raises("bad.json: ", data.JSON, write("bad.json", "[1, 2"))
end

do -- MosaicML's shards
  local set = data.MDS(folder .. "mds")
  assert(#set == 41)
  for _, i in ipairs { 41, 1, 23, 24 } do
    local row = set:get(i)
    row.ids = row.ids:tolist()
    check_row(row, i - 1)
  end
  assert(data.MDS(folder .. "mds", { columns = { "id" } }):get(3).text == nil)
end

do -- a column as a tensor, in the memory of the map
  local set = data.Arrow(folder .. "part-0.arrow", { columns = { "id" } })
  local t = set:tensor "id"
  assert(t.dtype == "i64" and t.shape[1] == 23 and t:sum():item() == 253)
  assert(set:get(2).text == nil)
  assert(#set:column "text" == 23 and set.columns[3].type == "list<item: int32>")
  raises("no column 'none'", data.Arrow, folder .. "part-0.arrow", { columns = { "none" } })
end

do -- streams
  local function ids(stream)
    local out = {}
    for row in stream:iterate(0, 5) do out[#out + 1] = math.tointeger(row.id or row.cls) or row.id[1] end
    return out
  end
  local function text(list) return table.concat(list, ",") end
  local plain = {}
  for i = 0, 40 do plain[i + 1] = i end
  local makers = {
    function() return data.JSONL.stream(folder .. "part-*.jsonl") end,
    function() return data.Arrow.stream(folder .. "part-*.arrow") end,
    function() return data.TFRecord(folder .. "part-*.tfrecord") end,
  }
  if can "parquet" then makers[#makers + 1] = function() return data.Parquet.stream(folder .. "part-*.parquet") end end
  if can "gz" then
    makers[#makers + 1] = function() return data.WebDataset(folder .. "part-*.tar.gz", { decode = true }) end
  end
  for _, make in ipairs(makers) do
    local all = make()
    assert(text(ids(all)) == text(plain))
    local drawn = ids(all:shuffle(10, 2))
    assert(text(drawn) ~= text(plain) and text(drawn) == text(ids(make():shuffle(10, 2))))
    for k, v in ipairs(drawn) do assert(v <= k + 9) end -- no sample before it entered the buffer
    table.sort(drawn)
    assert(text(drawn) == text(plain))
    assert(text(ids(all:skip(3):take(2))) == "3,4")
    assert(#ids(all:interleave { make() }) == 81) -- ends with the last sample of the first one
    local cached = all:cache()
    assert(text(ids(cached)) == text(plain) and text(ids(cached)) == text(plain))
  end
  local one = data.JSONL.stream(folder .. "part-*.jsonl", { shuffle_shards = true })
  local orders = {}
  for epoch = 0, 5 do
    for row in one:iterate(epoch, 1) do
      orders[row.id] = true
      break
    end
  end
  assert(orders[0] and orders[23]) -- either file may come first
  local mixed = ids(data.JSONL.stream(folder .. "part-0.jsonl"):interleave({ data.JSONL.stream(folder .. "part-1.jsonl") },
    { probabilities = { 1, 0 }, seed = 1 }))
  assert(#mixed == 23 and mixed[23] == 22)
end

do -- workers share a stream: every sample once
  for _, paths in ipairs { "part-0.jsonl", "part-*.jsonl" } do
    for _, workers in ipairs { 1, 2, 3 } do
      local seen, n = {}, 0
      local loader = data.DataLoader(data.JSONL.stream(folder .. paths), { batch_size = false, num_workers = workers })
      for row in loader() do
        assert(not seen[row.id])
        seen[row.id], n = true, n + 1
      end
      assert(n == (paths == "part-0.jsonl" and 23 or 41))
      n = 0
      for _ in data.DataLoader(data.JSONL.stream(folder .. paths):take(7), { batch_size = false, num_workers = workers })() do n = n + 1 end
      assert(n == 7)
    end
  end
end

do -- what is refused, and where
  raises("b.jsonl:3:", function() data.JSONL(write("b.jsonl", '{"a": 1}\n\n{"a": }\n')):get(2) end)
  raises("Git LFS", function() data.JSONL(write("l.jsonl", "version https://git-lfs.github.com/spec/v1\n")):get(1) end)
  raises("no file matches", data.JSONL, tmp .. "/none-*.jsonl")
  raises("braces", data.JSONL, tmp .. "/{x}.jsonl")
  raises("format must be", data.ShardStream, "csv", "x")
  if can "gz" then raises("is not compressed", data.JSONL, write("t.gz", "text\n")) end
  raises("cut off", data.Arrow, write("a.arrow", "ARROW1\0\0........................"))
  local function first(set)
    for row in set:iterate(0, 0) do return row end
  end
  raises("checksum", first, data.WebDataset(write("bad.tar", ("x"):rep(1024))))
  raises("checksum", first, data.TFRecord(write("bad.tfrecord", ("x"):rep(64))))
  raises("save_to_disk", data.Arrow.load_from_disk, tmp)
  local long = data.JSONL(write("n.jsonl", '[9223372036854775808, 1e999, null]\n')):get(1)
  assert(long[1] == "9223372036854775808" and long[2] == math.huge and long[3] == accel.json.null)
end

do -- gzip and data sets that read through the file library of Lua
  if can "gz" then
    local gz = "\x1f\x8b\8\0\0\0\0\0\0\3" .. "\1\12\0\243\255" .. "a,b\n1,2\n3,4\n" .. string.pack("<I4I4", 0x0bc7c9a5, 12)
    raises("damaged", data.CSV, write("c.csv.gz", gz)) -- another checksum
  end
end
