-- A pass over files that is stopped anywhere and resumed gives the samples of an uninterrupted one, in order: formats x 1, 2, 4 ranks
-- before and after x 0 and 2 workers x stop points that are drawn by a seed. The ranks of a world run one after the other here, since a
-- rank reads without asking the others.
--   ACCEL_TEST_SEED=N repeats a run
local accel = require "accel"
local data = accel.data
local folder = (os.getenv "ACCEL_TEST_SRC" or ".") .. "/tests/reference/formats/"
local seed = tonumber(os.getenv "ACCEL_TEST_SEED") or os.time()
print("seed " .. seed)
local random = accel.util.Random(seed)
local GLOBAL <const> = 4 -- samples of a global batch

local function id_of(sample) return math.tointeger(sample.cls) or type(sample.id) == "table" and sample.id[1] or sample.id end

local formats = {
  jsonl = { data.JSONL(folder .. "part-*.jsonl") },
  jsonl_stream = { data.JSONL.stream(folder .. "part-*.jsonl", { shuffle_shards = true }):shuffle(9) },
  arrow = { data.Arrow(folder .. "part-*.arrow") },
  arrow_stream = { data.Arrow.stream(folder .. "part-*.arrow"):shuffle(16) },
  tfrecord = { data.TFRecord(folder .. "part-*.tfrecord", { shuffle_shards = true }):shuffle(5) },
}
for _, l in ipairs(accel.libraries()) do
  if l.version and l.name == "zstd" then
    formats.parquet = { data.Parquet(folder .. "part-*.parquet") }
    formats.parquet_stream = { data.Parquet.stream(folder .. "part-*.parquet"):shuffle(12) }
    formats.jsonl_zst = { data.JSONL.stream(folder .. "part-*.jsonl.zst"):shuffle(7) }
  elseif l.version and l.name == "zlib" then
    formats.webdataset = { data.WebDataset(folder .. "part-*.tar.gz", { decode = true, shuffle_shards = true }):shuffle(8) }
  end
end

local function collate(samples)
  local ids = {}
  for i, sample in ipairs(samples) do ids[i] = id_of(sample) end
  return accel.tensor(ids, { dtype = "i64" })
end

-- The loaders of all ranks, at the place of `state`.
local function world(set, ranks, workers, state)
  local loaders = {}
  for r = 0, ranks - 1 do
    local loader = data.DataLoader(set, {
      batch_size = GLOBAL // ranks, drop_last = true, num_workers = workers, seed = 3, shuffle = not set.iterate and true or nil,
      collate_fn = workers == 0 and collate or "accel.data.collate:default_collate",
    })
    loaders[r + 1] = accel.accelerator.prepare_data_loader(loader, { num_processes = ranks, process_index = r })
    if state then loaders[r + 1]:load_state_dict(state) end
  end
  return loaders
end

-- Ids of up to `most` global batches, in the order of the ranks, and the state after them.
local function read(set, ranks, workers, state, most)
  local loaders, parts, after = world(set, ranks, workers, state), {}, nil
  for r, loader in ipairs(loaders) do
    local g = 0
    for batch in loader() do
      g = g + 1
      local ids = type(batch) == "table" and (batch.id or batch.cls) or batch
      if not accel.is_tensor(ids) then ids = ids[1] end -- a list of one id in each sample
      parts[g] = parts[g] or {}
      for _, id in ipairs(ids:tolist()) do table.insert(parts[g], id) end
      if g == most then
        after = after or loader:state_dict()
        break
      end
    end
    if r == 1 and g < (most or 0) then most = g end
  end
  local out = {}
  for _, ids in ipairs(parts) do table.move(ids, 1, #ids, #out + 1, out) end
  return out, after
end

local cases = 0
for name, entry in accel.pairs(formats) do
  local set = entry[1]
  for _, workers in ipairs { 0, 2 } do
    if workers > 0 then -- lists of several lengths do not collate
      set = set:select_columns(name == "webdataset" and { "cls" } or { "id" })
    end
    local whole = read(set, 1, workers)
    assert(#whole >= 36, name) -- the last batches of both workers may be short, and are dropped
    local seen = {}
    for _, id in ipairs(whole) do
      assert(not seen[id], name)
      seen[id] = true
    end
    for _, before in ipairs { 1, 2, 4 } do
      local after = ({ 1, 2, 4 })[random:below(3) + 1]
      local stop = random:below(#whole // GLOBAL - 1) + 1 -- not after the last one, where the next epoch begins
      local head, state = read(set, before, workers, nil, stop)
      local tail = read(set, after, workers, state)
      local got = table.move(tail, 1, #tail, #head + 1, head)
      local what = ("%s, %d workers, %d ranks, then %d after %d batches (seed %d)"):format(name, workers, before, after, stop, seed)
      assert(#got == #whole, what)
      for i = 1, #whole do
        assert(got[i] == whole[i], ("%s: sample %d is %s, not %s"):format(what, i, tostring(got[i]), tostring(whole[i])))
      end
      cases = cases + 1
    end
  end
end
print(("%d resumed passes equal the uninterrupted ones"):format(cases))

-- A state from the middle of a pass over other data is refused: other files, another order, other steps. The folder does not matter.
do
  local tmp, lfs = os.getenv "ACCEL_TEST_TMP" or "/tmp", require "lfs"
  local function write(dir, name, first, n)
    lfs.mkdir(dir)
    local f <close> = assert(io.open(dir .. "/" .. name, "w"))
    for i = first, first + n - 1 do f:write(('{"id": %d}\n'):format(i)) end
  end
  local a, b = tmp .. "/same-a", tmp .. "/same-b"
  for _, dir in ipairs { a, b } do
    write(dir, "0.jsonl", 0, 10)
    write(dir, "1.jsonl", 10, 10)
  end
  write(b, "2.jsonl", 20, 10)
  local function loader(set, prepared)
    local l = data.DataLoader(set, { batch_size = 4, collate_fn = collate })
    return prepared and accel.accelerator.prepare_data_loader(l, { num_processes = 2, process_index = 0 }) or l
  end
  local function state_of(set, prepared)
    local l = loader(set, prepared)
    for _ in l() do return l:state_dict() end
  end
  local function refused(set, state, prepared)
    local ok, err = pcall(function() loader(set, prepared):load_state_dict(state) end)
    assert(not ok and tostring(err):find("over other data", 1, true), tostring(err))
  end
  local stream, rows = data.JSONL.stream, data.JSONL
  for _, prepared in ipairs { false, true } do
    local state = state_of(stream(a .. "/*.jsonl"):shuffle(5), prepared)
    local l = loader(stream(b .. "/{0,1}.jsonl"):shuffle(5), prepared)
    l:load_state_dict(state) -- the same files in another folder
    refused(stream(b .. "/*.jsonl"):shuffle(5), state, prepared)
    refused(stream(a .. "/{1,0}.jsonl"):shuffle(5), state, prepared)
    refused(stream(a .. "/*.jsonl"):shuffle(6), state, prepared)
    refused(stream(a .. "/*.jsonl"):take(12), state, prepared)
    refused(stream(a .. "/*.jsonl"):concat(stream(b .. "/2.jsonl")), state, prepared)
    refused(stream(a .. "/*.jsonl"):interleave { stream(b .. "/2.jsonl") }, state, prepared)
    state.data = nil -- an older state
    loader(stream(b .. "/*.jsonl"), prepared):load_state_dict(state)
    state = loader(stream(a .. "/*.jsonl"), prepared):state_dict() -- at the start of a pass
    loader(stream(b .. "/*.jsonl"), prepared):load_state_dict(state)
    state = state_of(rows(a .. "/*.jsonl"), prepared)
    loader(rows(b .. "/{0,1}.jsonl"), prepared):load_state_dict(state)
    refused(rows(b .. "/{1,2}.jsonl"), state, prepared) -- as many rows
    refused(rows(a .. "/{1,0}.jsonl"):map(print), state, prepared)
    refused(rows(a .. "/*.jsonl"):shuffle(1), state, prepared)
  end
  write(a, "1.jsonl", 9, 11) -- the same name with another size
  refused(stream(a .. "/*.jsonl"), state_of(stream(b .. "/{0,1}.jsonl")))
  refused(data.ListDataset { 1, 2, 3, 4, 5, 6 }, state_of(data.ListDataset({ 1, 2, 3, 4, 5 }):map(function(x) return { id = x } end)))
  do -- a stream of the script's own, which does not tell what it reads
    local own = { iterate = function() return stream(b .. "/*.jsonl"):iterate() end }
    local ok, err = pcall(function() loader(own):load_state_dict(state_of(stream(b .. "/{0,1}.jsonl"))) end)
    assert(not ok and tostring(err):find("does not tell what it reads (a method fingerprint()", 1, true), tostring(err))
    loader(own):load_state_dict(state_of(own)) -- neither state nor data set tells
  end
end

do -- data in memory counts by a sample of its text, integers and shapes; a set of the script's own by its length, with one warning
  local function loader(set) return data.DataLoader(set, { batch_size = 2, collate_fn = function(list) return list end }) end
  local function state_of(set)
    local l = loader(set)
    for _ in l() do return l:state_dict() end
  end
  local function refused(set, state)
    local ok, err = pcall(function() loader(set):load_state_dict(state) end)
    assert(not ok and tostring(err):find("over other data", 1, true), tostring(err))
  end
  local function texts(last)
    local list = {}
    for i = 1, 200 do list[i] = { text = "t" .. i, n = i, x = i / 7 } end
    list[200].text = last
    return data.ListDataset(list)
  end
  local state, other = state_of(texts "t200"), texts "t200"
  for i = 1, 200 do other.list[i].x = other.list[i].x + 1e-9 end -- another machine's fractions
  loader(other):load_state_dict(state)
  refused(texts "other", state)
  refused(texts("t200"):shuffle(2), state)
  local function tokens(first) -- tensors in records, and dtypes that are only stored
    local list = {}
    for i = 1, 6 do list[i] = { input_ids = accel.arange(first + i, first + i + 4), u = accel.tensor({ first }, { dtype = "u32" }) } end
    return data.ListDataset(list)
  end
  loader(tokens(0)):load_state_dict(state_of(tokens(0)))
  refused(tokens(1), state_of(tokens(0)))
  for _, dtype in ipairs { "u16", "u32", "i8", "bool", "f16", "c64" } do
    local function stored(n) return data.TensorDataset(accel.zeros({ n, 2 }):to(dtype)) end
    loader(stored(6)):load_state_dict(state_of(stored(6)))
    refused(stored(7), state_of(stored(6)))
  end
  local function rows(first, width) return data.TensorDataset(accel.rand(50, width), accel.arange(first, first + 50)) end
  state = state_of(rows(0, 3))
  loader(rows(0, 3)):load_state_dict(state)
  refused(rows(1, 3), state)
  refused(rows(0, 4), state)
  state.data = "50 samples" -- of the first version
  loader(rows(1, 3)):load_state_dict(state)
  local labels = accel.arange(6):to "u8"
  local function pictures(value) return data.IDX(accel.full({ 6, 2, 2 }, value):to "u8", labels) end
  refused(pictures(9), state_of(pictures(8)))
  loader(pictures(8)):load_state_dict(state_of(pictures(8)))
  local prefix = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/indexed-") .. "/text"
  for i, n in ipairs { 20, 21 } do
    local b = data.IndexedDatasetBuilder(prefix .. i)
    for k = 1, n do
      b:add_item { k, k, k, k, k, k }
      b:end_document()
    end
    b:finalize()
  end
  local function gpt(i, seed) return data.GPTDataset(prefix .. i, { sequence_length = 4, split = "1", num_samples = 20, seed = seed }) end
  state = state_of(gpt(1, 1))
  loader(gpt(1, 1)):load_state_dict(state)
  refused(gpt(1, 2), state)
  refused(gpt(2, 1), state)

  local told, was = {}, warn
  warn = function(...) told[#told + 1] = table.concat { ... } end -- luacheck: ignore 121
  local function own(n) return { len = function() return n end, get = function(_, i) return i end } end
  for _ = 1, 2 do loader(own(8)):load_state_dict(state_of(own(8))) end
  refused(own(9), state_of(own(8)))
  warn = was -- luacheck: ignore 121
  assert(#told == 1 and told[1]:find("known by its length alone (8 samples)", 1, true) and told[1]:find("fingerprint()", 1, true), told[1])
end
