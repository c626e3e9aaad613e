-- Data sets of more files than a process may open: each runs in a process that may have 256 open files.
local accel = require "accel"
local data = accel.data
local lfs = require "lfs"
local src = os.getenv "ACCEL_TEST_SRC" or "."
local folder, FILES <const> = src .. "/tests/reference/formats/", 400

if arg[1] ~= "limited" then
  local pipe = assert(io.popen(("ulimit -n 256; '%s' '%s' limited 2>&1"):format(accel.process.program(), arg[0])))
  local text = pipe:read "a"
  assert(pipe:close(), text)
  return
end

local tmp = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/open-files-")
if folder:sub(1, 1) ~= "/" then folder = lfs.currentdir() .. "/" .. folder end
local function links(name, extension)
  for i = 1, FILES do assert(lfs.link(folder .. name .. extension, ("%s/%03d%s"):format(tmp, i, extension), true)) end
  return tmp .. "/*" .. extension
end

local function text_of(rows)
  local out = {}
  for i, row in ipairs(rows) do out[i] = row.id .. " " .. row.text end
  return table.concat(out, "\n")
end

local random = accel.util.Random(7)
local whole = data.JSONL(folder .. "part-0.jsonl")
local function check(set, what)
  local n, rows, want = #whole, {}, {}
  assert(#set == FILES * n, what)
  for k = 1, FILES do -- every file, in a random order of its rows
    local i = random:below(n)
    rows[k], want[k] = set:get((k - 1) * n + i + 1), whole:get(i + 1)
  end
  assert(text_of(rows) == text_of(want), what)
  for _ = 1, 50 do
    local i = random:below(#set)
    assert(set:get(i + 1).id == whole:get(i % n + 1).id, what)
  end
end

local jsonl = data.JSONL(links("part-0", ".jsonl"))
local arrow = data.Arrow(links("part-0", ".arrow"))
check(jsonl, "JSONL")
check(arrow, "Arrow")
local ids = arrow:tensor "id"
assert(ids.shape[1] == FILES * 23 and ids:sum():item() == FILES * 253)
for _, l in ipairs(accel.libraries()) do
  if l.version and l.name == "zstd" then
    local parquet = data.Parquet(links("part-0", ".parquet"))
    check(parquet, "Parquet")
    assert(parquet:tensor "id":sum():item() == FILES * 253)
  end
end

local function read_json(path)
  local f <close> = assert(io.open(path))
  return accel.json.decode(f:read "a", { records = true, nulls = true })
end
local shards = {}
for i = 1, FILES do
  local shard = read_json(folder .. "mds/index.json").shards[1]
  shard.raw_data.basename = ("shard.%03d.mds"):format(i)
  shards[i] = shard
  assert(lfs.link(folder .. "mds/shard.00000.mds", tmp .. "/" .. shard.raw_data.basename, true))
end
accel.write_file(tmp .. "/index.json", accel.json.encode { version = 2, shards = shards })
check(data.MDS(tmp), "MDS")

local builder, sets = data.IndexedDatasetBuilder(tmp .. "/tokens", { dtype = "u16" }), {}
builder:add_item { 5, 6 }
builder:end_document()
builder:finalize()
for i = 1, FILES do
  for _, e in ipairs { ".bin", ".idx" } do assert(lfs.link(tmp .. "/tokens" .. e, ("%s/t%03d%s"):format(tmp, i, e), true)) end
  sets[i] = data.IndexedDataset(("%s/t%03d"):format(tmp, i))
end
for i = 1, FILES do assert(sets[i]:get(1):sum():item() == 11) end

-- all of them at once, also in workers
local n = 0
local loader = data.DataLoader(jsonl:select_columns { "id" }, { batch_size = 100, num_workers = 2, shuffle = true })
for batch in loader() do n = n + batch.id:sum():item() end
assert(n == FILES * 253)
