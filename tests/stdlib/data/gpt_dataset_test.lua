-- GPTDataset and BlendedDataset: indices equal to those of megatron-core's helpers and numpy (tests/reference/make/gpt_indices.py), samples
-- that are the tokens of the documents laid end to end, splits, the cache, and what is wrong.
-- tier: every change
local accel = require "accel"
local gpt = require "accel.data.gpt_dataset"
local here = arg[0]:match "^(.*)/[^/]*$"
local function same(a, b, what)
  assert(#a == #b, ("%s: %d numbers, expected %d"):format(what, #a, #b))
  for i, x in ipairs(b) do assert(a[i] == x, ("%s: number %d is %s, expected %s"):format(what, i, a[i], x)) end
end

do -- numpy.random.RandomState(5489): the first outputs of the published generator
  local random = require "accel.data.mt19937"(5489)
  same({ random:next(), random:next(), random:next() }, { 3499211612, 581869302, 3890346734 }, "MT19937")
end

local f <close> = assert(io.open(here .. "/../../reference/indexed/gpt_indices.json"))
local wanted = accel.json.decode(f:read "a")
for i, c in ipairs(wanted.indices) do
  local made = gpt.build(c.lengths, c.first, c.count, { sequence_length = c.sequence_length, seed = c.seed, add_extra_token = c.extra == 1,
    num_samples = type(c.num_samples) == "number" and c.num_samples or nil })
  same(made.document_index, c.document, "document index of case " .. i)
  same(made.sample_index, c.sample, "sample index of case " .. i)
  same(made.shuffle_index, c.shuffle, "shuffle index of case " .. i)
end
for i, b in ipairs(wanted.blends) do
  local sets, samples = gpt.blend(b.weights, b.size)
  same(sets, b.sets, "sets of blend " .. i)
  same(samples, b.samples, "samples of blend " .. i)
end

local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/gpt")
local builder = accel.data.IndexedDatasetBuilder(folder .. "/text", { dtype = "u16" })
local documents, at = {}, 0
for d = 1, 100 do
  local list = {}
  for i = 1, 3 + d % 7 do list[i], at = at, at + 1 end
  documents[d] = list
  builder:add_item(list)
  builder:end_document()
end
builder:finalize()

do -- samples: what lies behind one another in the document index, in the order of the shuffle index; labels one token on
  local set = accel.data.GPTDataset(folder .. "/text", { sequence_length = 8, split = "969,30,1", num_samples = 150, seed = 3 })
  local stream = {}
  for _, d in ipairs(set.document_index:tolist()) do
    assert(d < 97, "documents of the first part")
    table.move(documents[d + 1], 1, #documents[d + 1], #stream + 1, stream)
  end
  assert(#set >= 150)
  for i, s in ipairs(set.shuffle_index:tolist()) do
    local x = set:get(i)
    same(x.tokens:tolist(), table.move(stream, 8 * s + 1, 8 * s + 8, 1, {}), "tokens of sample " .. i)
    same(x.labels:tolist(), table.move(stream, 8 * s + 2, 8 * s + 9, 1, {}), "labels of sample " .. i)
  end
  local valid = accel.data.GPTDataset(folder .. "/text", { sequence_length = 8, part = 2 })
  for _, d in ipairs(valid.document_index:tolist()) do assert(d >= 97 and d < 100) end
  local masked = accel.data.GPTDataset(set.indexed, { sequence_length = 8, seed = 3, split = "1", eod = 5, eod_mask_loss = true })
  for i = 1, #masked do
    local x = masked:get(i)
    for k, token in ipairs(x.tokens:tolist()) do assert(x.loss_mask[k]:item() == (token == 5 and 0 or 1)) end
  end
end

do -- the same by workers, also of a blend; what starts anew behind an eod needs one
  local set = accel.data.GPTDataset(folder .. "/text", { sequence_length = 8, split = "1", eod = 12, reset_position_ids = true })
  local mix, k = accel.data.BlendedDataset({ set, set }, { 2, 1 }, 30), 0
  for batch in accel.data.DataLoader(mix, { batch_size = 5, num_workers = 2 })() do
    for row = 1, 5 do
      local x = mix:get(k + row)
      same(batch.tokens[row]:tolist(), x.tokens:tolist(), "tokens by workers")
      same(batch.position_ids[row]:tolist(), x.position_ids:tolist(), "positions by workers")
    end
    k = k + 5
  end
  assert(k == 30)
  local ok, why = pcall(accel.data.GPTDataset, folder .. "/text", { sequence_length = 8, reset_attention_mask = true })
  assert(not ok and tostring(why):find("reset_attention_mask needs eod", 1, true), tostring(why))
end

do -- the cache: the second one reads what the first one wrote
  local o = { sequence_length = 8, split = "1", path_to_cache = folder .. "/cache" }
  local first = accel.data.GPTDataset(folder .. "/text", o)
  local files = accel.listdir(folder .. "/cache")
  assert(#files == 1)
  local again = accel.data.GPTDataset(folder .. "/text", o)
  same(again.shuffle_index:tolist(), first.shuffle_index:tolist(), "cached")
  o.seed = 8
  accel.data.GPTDataset(folder .. "/text", o)
  assert(#accel.listdir(folder .. "/cache") == 2, "other options, other indices")
  -- other documents of the same name, as many and as long together
  for i, lengths in ipairs { { 3, 12 }, { 12, 3 } } do
    local prefix = ("%s/%d"):format(folder, i)
    assert(accel.makedirs(prefix))
    local b = accel.data.IndexedDatasetBuilder(prefix .. "/same")
    for _, n in ipairs(lengths) do
      local list = {}
      for k = 1, n do list[k] = k end
      b:add_item(list)
      b:end_document()
    end
    b:finalize()
    local got = accel.data.GPTDataset(prefix .. "/same", { sequence_length = 7, split = "1", path_to_cache = folder .. "/cache" })
    local want = accel.data.GPTDataset(prefix .. "/same", { sequence_length = 7, split = "1" })
    same(got.sample_index:reshape(-1):tolist(), want.sample_index:reshape(-1):tolist(), "sample index")
  end
end

do
  local a, b = accel.data.TensorDataset(accel.arange(60)), accel.data.TensorDataset(accel.arange(100, 160))
  local mix = accel.data.BlendedDataset({ a, b }, { 3, 1 }, 40)
  local from_b = 0
  for i = 1, 40 do from_b = from_b + (mix:get(i)[1]:item() >= 100 and 1 or 0) end
  assert(#mix == 40 and from_b == 10)
  for _, case in ipairs { { "need more than", { a, b }, { 3, 1 }, 400 }, { "not a number above 0", { a, b }, { 3, 0 }, 4 },
    { "2 data sets and 1 weights", { a, b }, { 3 }, 4 } } do
    local ok, why = pcall(accel.data.BlendedDataset, case[2], case[3], case[4])
    assert(not ok and tostring(why):find(case[1], 1, true), tostring(why))
  end
  for split, why in pairs { ["1,x"] = "is not a number", ["0,0"] = "up to three numbers", ["0,1"] = "is empty" } do
    local ok, said = pcall(accel.data.GPTDataset, folder .. "/text", { sequence_length = 8, split = split })
    assert(not ok and tostring(said):find(why, 1, true), tostring(said))
  end
end
