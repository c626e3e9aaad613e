-- Options of accel.data: each one changes batches, their order or what is reported, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/data_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "data"
local data = accel.data
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/options_data")

local function numbers(n)
  local list = {}
  for i = 1, n do list[i] = i * 1.5 end
  return data.ListDataset(list)
end
local function batches(loader)
  local list = {}
  for batch in loader() do list[#list + 1] = batch end
  return list
end

-- ---- loaders ----
local WORKERS = "tests/stdlib/data/workers_test.lua"
s:recipe("accel.data.DataLoader", {
  run = function(call, given)
    local set = numbers(7)
    if given.num_workers or given.persistent_workers then set = data.worker_dataset("accel.data.list_dataset", { 1.5, 3.0, 4.5, 6.0, 7.5 }) end
    if given.worker then
      given.worker = nil
      set = { len = function() return 7 end, get = function() return accel.rand(1):item() end } -- draws
    end
    if given.dataset then return batches(call()) end
    local loader = call(set)
    return batches(loader), batches(loader), loader.num_workers
  end,
  values = {
    dataset = { numbers(3) }, batch_size = { 3, false }, sampler = { data.RandomSampler(7, { seed = 3 }) },
    batch_sampler = { data.BatchSampler(data.SequentialSampler(7), 2) }, drop_last = { true }, collate_fn = { function(list) return #list end },
    num_workers = { 1 }, prefetch_factor = { 3 }, persistent_workers = { true }, timeout = { 9 }, worker_init = { "accel.data.collate" },
    worker_init_fn = { "accel.data.collate" }, pin_memory = { true }, seed = { 5 }, shuffle = { true },
  },
  with = { drop_last = { batch_size = 3 }, seed = { shuffle = true } },
  raises = { worker_init = "worker_init", worker_init_fn = "worker_init" },
})
s:recipe("accel.data.DataLoader:order", { run = function(call)
  return call(data.DataLoader(numbers(9), { shuffle = true }))
end, values = { epoch = { 2 } } })
s:recipe({ "accel.data.BatchDataset", "accel.data.Dataset:batch", "accel.data.IterableDataset:batch" }, {
  base = function() return { batch_size = 3, n = 3 } end,
  run = function(call, given, entry)
    if entry.kind == "class" then given.n = nil else given[entry.order[1]], given.batch_size = 3, nil end
    if entry.order[1] ~= "n" then given.n = nil end
    if entry.kind == "class" then return batches(data.DataLoader(call(numbers(7)), { batch_size = false })) end
    local set = numbers(7)
    if entry.name:find "Iterable" then
      local Stream = data.IterableDataset:extend "Stream"
      function Stream:iterate() -- luacheck: ignore self
        local i = 0
        return function()
          i = i + 1
          return i <= 7 and i or nil
        end
      end
      set = Stream()
    end
    return batches(data.DataLoader(call(set), { batch_size = false }))
  end,
  values = { drop_last = { true }, collate_fn = { function(list) return { #list } end } },
})
s:leave({ "accel.data.Dataset:concat", "accel.data.IterableDataset:concat", "accel.data.TensorDataset", "accel.data.worker_dataset" },
  "their arguments are members")

-- ---- files: tests/reference/formats has the samples 0 .. 40 in two parts ----
local formats = (os.getenv "ACCEL_TEST_SRC" or here .. "/../..") .. "/tests/reference/formats/"
local function rows(set)
  local list = {}
  if set.iterate then
    for epoch = 0, 3 do
      for sample in set:iterate(epoch, 1) do list[#list + 1] = sample end
    end
  else
    for i = 1, #set do list[i] = set:get(i) end
  end
  return list, set.n_shards
end
local function file_recipe(name, path, values)
  s:recipe(name, { base = function() return { paths = path } end, run = function(call) return rows(call()) end, values = values,
    raises = values.limit and { limit = "limit of 1" } or nil })
end
local with_nulls = formats .. "../../fuzz/corpus/table/"
accel.write_file(folder .. "/nulls.jsonl", '{"b": 1, "id": null, "a": 2}\n')
file_recipe("accel.data.JSONL", folder .. "/nulls.jsonl", { columns = { { "b" } }, nulls = { true }, ordered = { true }, limit = { 1 } })
file_recipe("accel.data.Arrow", with_nulls .. "lists_stream.arrow", { columns = { { "a" } }, nulls = { true }, limit = { 1 } })
file_recipe("accel.data.Parquet", with_nulls .. "plain.parquet", { columns = { { "a" } }, nulls = { true }, limit = { 1 } })
file_recipe("accel.data.TFRecord", formats .. "part-*.tfrecord", { raw = { true }, limit = { 1 }, shuffle_shards = { true },
  native_shards = { true } })
file_recipe("accel.data.WebDataset", formats .. "part-*.tar.gz", { decode = { true }, fields = { { "cls" } }, limit = { 1 },
  shuffle_shards = { true }, native_shards = { true } })
accel.makedirs(folder .. "/hub")
accel.write_file(folder .. "/hub/train.jsonl", '{"a": 1}\n')
accel.write_file(folder .. "/hub/test.jsonl", '{"a": 2}\n')
accel.write_file(folder .. "/hub/README.md", "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: train.jsonl\n"
  .. "  - split: test\n    path: test.jsonl\n- config_name: other\n  data_files: test.jsonl\n---\n")
s:recipe("accel.data.load_dataset", { base = function() return { folder = folder .. "/hub" } end, run = function(call, given)
  local sets = call()
  return given.split and rows(sets) or rows(sets.train), sets.test ~= nil
end, values = { name = { "other" }, split = { "test" }, limit = { 1 } }, raises = { limit = "limit of 1" } })
accel.write_file(folder .. "/list.json", '[{"a": 1, "b": null}, {"a": 2}]')
accel.write_file(folder .. "/field.json", '{"data": [{"a": 1}], "more": [{"a": 2}, {"a": 3}]}')
s:recipe("accel.data.JSON", { base = function() return { path = folder .. "/list.json" } end, run = function(call) return rows(call()) end,
  values = { columns = { { "b" } }, nulls = { true }, field = { "more" }, limit = { 1 } }, raises = { limit = "limit of 1" },
  with = { field = { path = folder .. "/field.json", field = "data" } } })
s:recipe("accel.data.MDS", { base = function() return { folder = formats .. "mds" } end, run = function(call) return rows(call()) end,
  values = { columns = { { "id" } }, limit = { 1 } }, raises = { limit = "limit of 1" } })
for _, name in ipairs { "JSONL", "Arrow", "Parquet" } do
  s:leave("accel.data." .. name .. ":stream", "its options are those of data.ShardStream and the format")
end
s:leave("accel.data.Arrow:load_from_disk", "its options are those of data.Arrow")
s:recipe("accel.data.ShardStream", {
  base = function() return { format = "jsonl", paths = { formats .. "part-0.jsonl", folder .. "/nulls.jsonl" } } end,
  run = function(call)
    local list, shards = rows(call())
    return list, shards, getmetatable(list[1]) ~= nil
  end,
  values = { shuffle_shards = { true }, native_shards = { true }, columns = { { "id" } }, nulls = { true }, ordered = { true },
    limit = { 1 } }, raises = { limit = "limit of 1" },
})
local Counted = data.IterableDataset:extend "Counted"
function Counted:init(first) self.first = first end
function Counted:iterate()
  local i = self.first
  return function()
    i = i + 1
    return i <= 9 and i or nil
  end
end
s:recipe("accel.data.Dataset:shuffle", { run = function(call) return rows(call(numbers(9))) end, values = { seed = { 3 } } })
s:recipe("accel.data.IterableDataset:shuffle", { base = function() return { buffer_size = 4 } end, run = function(call)
  return rows(call(Counted(0)))
end, values = { seed = { 3 } } })
s:recipe("accel.data.IterableDataset:interleave", {
  base = function() return { others = { Counted(6) } } end,
  run = function(call) return rows(call(Counted(0))) end,
  values = { probabilities = { { 0.5, 0.5 } }, seed = { 5 }, stopping_strategy = { "all_exhausted" } },
  with = { seed = { probabilities = { 0.5, 0.5 } } },
})

-- ---- samplers ----
local function orders(call, given)
  given.source = given.source or 7
  local sampler = call()
  return sampler:len(), sampler:order(0, 0), sampler:order(1, 0)
end
s:recipe("accel.data.RandomSampler", { base = function() return { source = 7 } end, run = orders, values = { num_samples = { 3, 9 } } })
s:recipe("accel.data.SubsetRandomSampler", { base = function() return { positions = { 3, 5, 7, 8, 9 } } end, run = function(call)
  local sampler = call()
  return sampler:order(0, 0)
end })
s:recipe("accel.data.WeightedRandomSampler", { base = function() return { weights = { 1, 2, 3, 4, 5, 6 }, num_samples = 5 } end,
  run = function(call) return call():order(0, 0) end })
s:recipe("accel.data.LengthGroupedSampler", {
  base = function() return { batch_size = 2, source = { 5, 1, 4, 3, 9, 2, 8, 7, 6, 3 } } end,
  run = function(call, given)
    if given.model_input_name then
      given.source = data.ListDataset { { ids = { 1, 2 }, own = { 1 } }, { ids = { 1 }, own = { 1, 2, 3 } }, { ids = { 1, 2, 3 }, own = { 1, 2 } } }
    end
    return call():order(0, 0)
  end,
  values = { mega_batch_mult = { 2 }, model_input_name = { "own" } }, with = { model_input_name = { model_input_name = "ids" } },
})
s:recipe("accel.data.BatchSampler", { base = function() return { sampler = data.SequentialSampler(7), batch_size = 3 } end,
  run = function(call) return call():order(0, 0) end })
s:recipe("accel.data.Sampler:random", { run = function(call) return call(data.SequentialSampler(3)):below(1 << 40) end, values = { epoch = { 3 } } })
local function shard(call)
  local part = call()
  return part:len(), part:order(0, 0)
end
local function sampled() return data.BatchSampler(data.SequentialSampler(11), 2) end
s:recipe("accel.data.BatchSamplerShard", { base = function() return { batch_sampler = sampled(), num_processes = 2, process_index = 1 } end,
  run = shard, values = { num_processes = { 3 }, process_index = { 0 } } })
local Ragged = data.Sampler:extend "Ragged" -- its last batch depends on the pass
Ragged.batch_size = 2
function Ragged.len() return 2 end
function Ragged.order(_, epoch, seed) return (epoch + seed) % 2 == 0 and { { 1, 2 }, { 3 } } or { { 1, 2 }, { 3, 4 } } end
s:recipe({ "accel.data.BatchSamplerShard:len", "accel.data.BatchSamplerShard:plan" }, {
  base = function() return { epoch = 0, seed = 0 } end,
  run = function(call, given)
    local whole = data.BatchSamplerShard(sampled(), 2, 1)
    return call(given.start and whole or data.BatchSamplerShard(Ragged(), 2, 1, { split_batches = true, even_batches = false }))
  end,
  values = { start = { 8 }, epoch = { 1 }, seed = { 1 } }, with = { start = { start = 0 } },
})
s:recipe("accel.data.IterableDatasetShard", {
  base = function()
    local Stream = data.IterableDataset:extend "Stream"
    function Stream:iterate() -- luacheck: ignore self
      local i = 0
      return function()
        i = i + 1
        return i <= 11 and i or nil
      end
    end
    return { dataset = Stream(), batch_size = 2, num_processes = 2 }
  end,
  run = function(call)
    local list = {}
    for x in call():iterate(0, 0) do list[#list + 1] = x end
    return list
  end,
  values = { batch_size = { 4 }, num_processes = { 1 }, process_index = { 1 } },
})
s:recipe("accel.data.random_split", { base = function() return { dataset = numbers(9), lengths = { 5, 4 } } end, run = function(call)
  local parts = call()
  return batches(data.DataLoader(parts[1]))
end })

-- ---- files ----
local function file(name, text)
  local f <close> = assert(io.open(folder .. "/" .. name, "wb"))
  f:write(text)
  return folder .. "/" .. name
end
local table_file = file("rows.csv", "a,b;c\n1,2;3\n4,5;6\n")
s:recipe({ "accel.data.CSV", "accel.data.CSV:open" }, {
  base = function() return { path = table_file } end,
  run = function(call)
    local set, message = call()
    if not set then error(message) end -- open returns it
    local list = {}
    for i = 1, #set do list[i] = set:get(i) end
    return list
  end,
  values = { header = { false }, delimiter = { ";" }, columns = { { "x", "y" } }, types = { { a = "number" } }, limit = { 1 } },
  raises = { limit = "limit of 1" },
})
s:recipe("accel.data.IDX", {
  base = function()
    return { images = accel.arange(12):to("u8"):reshape(3, 2, 2), labels = accel.tensor({ 0, 1, 2 }, { dtype = "u8" }) }
  end,
  run = function(call)
    return call():get_batch { 1, 3 }
  end,
  values = { scale = { 2 }, channel = { false } }, elsewhere = { limit = "tests/stdlib/data/bombs_test.lua" },
})
s:leave("accel.data.IDX:read", "its option limit: tests/stdlib/data/bombs_test.lua")
s:leave("accel.data.IDX:open", "as the class, from files")
s:recipe("accel.data.TokenFile", {
  base = function() return { source = accel.arange(40), block = 4 } end,
  run = function(call, given)
    if given.dtype then given.source = file("tokens.bin", string.pack("<I2I2I2I2I2I2I2I2I2I2I2I2", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)) end
    local set = call()
    return #set, set:get(1), set:get(2)
  end,
  values = { block = { 5 }, stride = { 2 }, dtype = { "u8" } }, with = { dtype = { dtype = "u16" } },
  raises = { dtype = "dtype" },
})
s:recipe("accel.data.PadCollate", {
  run = function(call)
    local pad = call()
    return pad { { input_ids = { 1, 2, 3 }, own = { 4 } }, { input_ids = { 5 }, own = { 6, 7 } } }
  end,
  values = { padding_value = { 9 }, max_length = { 2 }, pad_to_multiple_of = { 4 }, padding_side = { "left" }, keys = { { "input_ids" } },
    attention_mask = { "own", false } },
  raises = { keys = "own" },
})

-- ---- Megatron's indexed data ----
local serial = 0
local function prefix()
  serial = serial + 1
  return ("%s/text%d"):format(folder, serial)
end
local function built(options)
  local at = prefix()
  local builder = data.IndexedDatasetBuilder(at, options)
  for i = 1, 6 do
    builder:add_item { i, i + 1, i + 2, 9 }
    if i % 2 == 0 then builder:end_document() end
  end
  builder:finalize()
  return at
end
s:recipe("accel.data.IndexedDatasetBuilder", {
  base = function() return { prefix = prefix() } end,
  run = function(call, given)
    local builder = call()
    local ok, why = pcall(builder.add_item, builder, { 1, 2, 3 }, given.multimodal and 1 or nil)
    if not ok then error(why, 0) end
    builder:end_document()
    builder:finalize()
    local f <close> = assert(io.open(given.prefix .. ".idx", "rb"))
    return f:read "a"
  end,
  values = { dtype = { "i64", "u16" } },
})
s:recipe("accel.data.IndexedDatasetBuilder:add_item", {
  base = function() return { items = { 1, 2 } } end,
  run = function(call)
    local at = prefix()
    local builder = data.IndexedDatasetBuilder(at, { multimodal = true })
    call(builder)
    builder:end_document()
    builder:finalize()
    local f <close> = assert(io.open(at .. ".idx", "rb"))
    return f:read "a"
  end,
  values = { mode = { 2 } },
})
s:recipe("accel.data.IndexedDataset", { base = function() return { prefix = built() } end, run = function(call)
  local set = call()
  return set:get(1)
end, raises = { multimodal = "%.idx" } })
s:recipe("accel.data.IndexedDataset:get", { base = function() return { i = 1 } end, run = function(call)
  return call(data.IndexedDataset(built()))
end, values = { offset = { 1 }, length = { 2 } } })
local MASKED = "tests/stdlib/data/masked_dataset_test.lua"
local sentences
local function masked()
  if sentences then return sentences end
  sentences = prefix()
  local builder = data.IndexedDatasetBuilder(sentences)
  for d = 1, 10 do
    for k = 1, 6 do
      local ids = {}
      for i = 1, 7 do ids[i] = 6 + (d * 31 + k * 17 + i * 7) % 20 end
      builder:add_item(ids)
    end
    builder:end_document()
  end
  builder:finalize()
  return sentences
end
s:recipe("accel.data.GPTDataset", {
  base = function() return { indexed = masked(), sequence_length = 4, split = "1" } end,
  run = function(call, given)
    local set, list = call(), {}
    for i = 1, math.min(#set, 12) do list[i] = set:get(i) end
    return #set, list, given.path_to_cache and #accel.listdir(given.path_to_cache)
  end,
  values = { sequence_length = { 5 }, num_samples = { 400 }, add_extra_token = { false }, seed = { 7 }, split = { "50,50" }, part = { 2 },
    eod = { 6 },
    eod_mask_loss = { true },
    reset_position_ids = { true }, reset_attention_mask = { true }, path_to_cache = function() return { prefix() } end },
  with = { part = { split = "50,50" }, eod = { eod = 0, eod_mask_loss = true }, eod_mask_loss = { eod = 6 }, reset_position_ids = { eod = 6 },
    reset_attention_mask = { eod = 6 } },
})
for kind, more in pairs {
  BERT = {}, T5 = { bos = 5, eos = 4, sentinels = { 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41 }, sequence_length_decoder = 32 },
} do
  s:recipe("accel.data." .. kind .. "Dataset", {
    base = function()
      local base = { indexed = masked(), sequence_length = 24, split = "1", vocab_size = 50, cls = 1, sep = 2, mask = 3, pad = 0,
        continuing = { 8, 9, 10, 11, 12 }, masking_probability = 0.3 }
      for key, value in pairs(more) do base[key] = value end
      return base
    end,
    run = function(call, given)
      local set = call()
      local list = {}
      for i = 1, math.min(#set, 14) do list[i] = set:get(i) end
      return #set, list, given.path_to_cache and #accel.listdir(given.path_to_cache)
    end,
    values = {
      path_to_cache = function() return { prefix() } end,
      sequence_length = { 20 }, num_samples = { 70 }, seed = { 7 }, split = { "50,50" }, part = { 2 }, masking_probability = { 0.6 },
      short_sequence_probability = { 0.9 }, masking_max_ngram = { 1 }, masking_do_full_word = { false }, masking_use_longer_ngrams = { true },
      classification_head = { false }, vocab_size = { 60 }, cls = { kind == "T5" and 9 or 28 }, sep = { kind == "T5" and 9 or 29 },
      masking_use_geometric_distribution = { true }, mask = { 27 }, pad = { 26 }, bos = { 28 }, eos = { 29 },
      continuing = { { 13, 14, 15 } }, sentinels = { { 42, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41 } }, sequence_length_decoder = { 30 },
    },
    with = {
      part = { split = "50,50" }, masking_use_geometric_distribution = { masking_use_geometric_distribution = false },
      masking_use_longer_ngrams = { masking_use_geometric_distribution = false }, pad = { sequence_length = 60 },
        cls = kind == "T5" and { cls = 1 } or nil,
      vocab_size = { masking_probability = 0.9 },
    },
    elsewhere = { tokenizer = MASKED },
  })
end

-- ---- files ----
local lfs = require "lfs"
for _, name in ipairs { "/a", "/b" } do assert(lfs.mkdir(folder .. name)) end
accel.write_file(folder .. "/a/1.txt", "x")
accel.write_file(folder .. "/b/2.dat", "x")
s:recipe("accel.data.DatasetFolder", { run = function(call)
  local set, list = call(folder), {}
  for i = 1, #set do list[i] = set:get(i) end
  return list
end, values = { extensions = { { "txt" } }, transform = { string.upper }, target_transform = { tostring } },
  with = { extensions = { allow_empty = true } }, elsewhere = { allow_empty = "tests/stdlib/vision/transforms_test.lua" } })
s:leave("accel.data.DatasetFolder:scan", "for subclasses: tests/stdlib/vision/transforms_test.lua")
s:leave("accel.data.ImageFolder", "swept as accel.vision.ImageFolder")
s:leave("accel.data.AudioFolder", "swept as accel.audio.AudioFolder")
s:recipe("accel.data.numpy.load", { run = function(call)
  data.numpy.save(folder .. "/x.npy", accel.arange(0, 4096))
  return call(folder .. "/x.npy"):sum():item()
end, elsewhere = { mmap_mode = "tests/stdlib/data/numpy_test.lua", limit = "tests/stdlib/data/bombs_test.lua" } })

s:finish()
