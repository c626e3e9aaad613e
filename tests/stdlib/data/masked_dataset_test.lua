-- BERTDataset and T5Dataset: sample indices and samples equal to those of megatron-core (tests/reference/make/masked_samples.py); how many
-- tokens are told and what stands in their place, against closed forms; the same draws again; the cache, workers, and what is wrong.
-- tier: every change
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local fails = dofile(here .. "/../../support/ranks.lua").fails

do -- std::mt19937_64: the 10000th output of the standard
  local random, x = require "accel.data.mt19937_64"(5489), nil
  for _ = 1, 10000 do x = random:next() end
  assert(x == math.tointeger(0x8a8592f5817ed872), ("%x"):format(x))
end

local f <close> = assert(io.open(here .. "/../../reference/indexed/masked_samples.json"))
local wanted = accel.json.decode(f:read "a")
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/masked")
local builder = accel.data.IndexedDatasetBuilder(folder .. "/text", { dtype = "u16" })
for _, sentences in ipairs(wanted.documents) do
  for _, ids in ipairs(sentences) do builder:add_item(ids) end
  builder:end_document()
end
builder:finalize()

local ids = { vocab_size = wanted.vocab_size, continuing = wanted.continuing, sentinels = wanted.sentinels, pad = 0, cls = 1, sep = 2, mask = 3,
  bos = 5, eos = 4, split = "1" }
local function with(options, more)
  local o = {}
  for _, t in ipairs { ids, options, more or {} } do
    for key, value in next, t do o[key] = value end
  end
  return o
end
local function same(got, want, what)
  got = accel.is_tensor(got) and got:tolist() or got
  if type(want) ~= "table" then return assert(got == want, ("%s: %s, expected %s"):format(what, got, want)) end
  assert(#got == #want, ("%s: %d numbers, expected %d"):format(what, #got, #want))
  for i, x in ipairs(want) do assert(got[i] == x, ("%s: number %d is %s, expected %s"):format(what, i, got[i], x)) end
end

for c, case in ipairs(wanted.cases) do
  local set = accel.data[case.kind .. "Dataset"](folder .. "/text", with(case.options))
  same(set.sample_index:reshape(-1), case.index, "index of case " .. c)
  for _, s in ipairs(case.samples) do
    local sample = set:get(s.i)
    for key, value in accel.pairs(s.sample) do same(sample[key], value, ("case %d, sample %d, %s"):format(c, s.i, key)) end
  end
end

local base = { sequence_length = 128, seed = 5, num_samples = 3000 }
do -- long documents of words of one token: what is told is 15 % of each sample; of it 80 % is the mask, 10 % another token, 10 % as it was
  local b = accel.data.IndexedDatasetBuilder(folder .. "/words", { dtype = "u16" })
  local random = accel.Generator(1)
  for _ = 1, 200 do
    for _ = 1, 8 do b:add_item(accel.randint(100, 1000, { 40 }, { generator = random })) end
    b:end_document()
  end
  b:finalize()
  local set = accel.data.BERTDataset(folder .. "/words", with(base, { vocab_size = 1000, continuing = {}, masking_max_ngram = 1 }))
  local told, masked, kept, swapped, short, n = 0, 0, 0, 0, 0, math.min(#set, 1500)
  for i = 1, n do
    local s = set:get(i)
    local text, labels, loss, present = s.text:tolist(), s.labels:tolist(), s.loss_mask:tolist(), s.padding_mask:tolist()
    local tokens, here_ = 0, 0
    for k = 1, 128 do
      tokens = tokens + present[k]
      assert((labels[k] >= 0) == (loss[k] == 1) and (present[k] == 1 or text[k] == 0 and loss[k] == 0))
      if loss[k] == 1 then
        here_, masked, kept = here_ + 1, masked + (text[k] == 3 and 1 or 0), kept + (text[k] == labels[k] and 1 or 0)
        assert(labels[k] >= 100, "no class and no separator is told")
      end
    end
    local want = set.sample_index[i][3]:item()
    assert(here_ <= 0.15 * want and here_ > 0.15 * want - 1.01 or here_ == math.max(1, math.floor(tokens * 0.15 + 0.5)) or tokens < want,
      ("%d of %d told"):format(here_, tokens))
    told, swapped, short = told + here_, swapped + s.is_random, short + (want < 125 and 1 or 0)
  end
  local function near(x, share, of, what) -- within five standard deviations
    assert(math.abs(x / of - share) < 5 * math.sqrt(share * (1 - share) / of), ("%s: %d of %d, expected %g"):format(what, x, of, share))
  end
  near(masked, 0.8, told, "masks")
  near(kept, 0.1 + 0.1 / 1000, told, "as they were")
  near(swapped, 0.5, n, "segments in the other order")
  near(short, 0.1 * 122 / 124, n, "short samples")
end

do -- T5: gaps and what fills them make the tokens again
  local set = accel.data.T5Dataset(folder .. "/words", with(base, { vocab_size = 1000, continuing = {}, sequence_length_decoder = 64,
    sentinels = { 99, 98, 97, 96, 95, 94, 93, 92, 91, 90, 89, 88, 87, 86, 85, 84, 83, 82, 81, 80 } }))
  for i = 1, 200 do
    local s = set:get(i)
    local fill, at, out = {}, nil, {}
    local dec, labels, mask = s.text_dec:tolist(), s.labels:tolist(), s.dec_mask:tolist()
    for k = 2, 64 do
      assert(mask[k] == 0 or labels[k - 1] == dec[k], "labels are one token on")
      if mask[k] == 1 and dec[k] < 100 then at, fill[dec[k]] = dec[k], {} elseif mask[k] == 1 then table.insert(fill[at], dec[k]) end
    end
    for k, id in ipairs(s.text_enc:tolist()) do
      if s.enc_mask:select(1, k):item() == 1 then table.move(id < 100 and fill[id] or { id }, 1, id < 100 and #fill[id] or 1, #out + 1, out) end
    end
    local row, want = set.sample_index[i]:tolist(), {}
    for k = row[1] + 1, row[2] do
      local ids_ = set.indexed:get(k):tolist()
      table.move(ids_, 1, #ids_, #want + 1, want)
    end
    same(out, table.move(want, 1, math.min(#want, row[3]), 1, {}), "sample " .. i)
  end
end

do -- other seeds draw otherwise, the same one the same, also from a cache and in workers
  local o = with({ sequence_length = 32, num_samples = 40 }, { path_to_cache = folder .. "/cache" })
  local function rows(seed, workers)
    o.seed = seed
    local loader, out = accel.data.DataLoader(accel.data.BERTDataset(folder .. "/text", o), { batch_size = 4, num_workers = workers }), {}
    for batch in loader() do out[#out + 1] = accel.json.encode(batch.text:tolist()) end
    return table.concat(out)
  end
  local one = rows(1, 0)
  assert(one == rows(1, 0) and one == rows(1, 2) and one ~= rows(2, 0))
end

local B, T = accel.data.BERTDataset, accel.data.T5Dataset
fails("mask is missing", B, folder .. "/text", { sequence_length = 16, vocab_size = 9, cls = 1, sep = 2 })
fails("did you mean 'masking_probability'", B, folder .. "/text", { masking_probabilty = 1 })
fails("masking_probability", B, folder .. "/text", with { sequence_length = 16, masking_probability = 1.5 })
fails("sequence_length_decoder", T, folder .. "/text", with { sequence_length = 16 })
local function bad(words, set, options)
  local o = with({ sequence_length = 16, sequence_length_decoder = set == T and 8 or nil }, options)
  fails(words, set, folder .. "/text", o)
end
for n = 1, 4 do bad("BERTDataset: sequence_length must be at least 5, 2 tokens of text and 3 around them, got " .. n, B, { sequence_length = n }) end
for n = 1, 3 do bad("T5Dataset: sequence_length must be at least 4, 2 tokens of text and 2 around them, got " .. n, T, { sequence_length = n }) end
for _, set in ipairs { B, T } do
  bad("sequence_length must be a positive integer, got 'long'", set, { sequence_length = "long" })
  bad("masking_max_ngram must be a positive integer, got 0", set, { masking_max_ngram = 0 })
  bad("tokenizer must be a folder with tokenizer.json, or that file, got 3", set, { tokenizer = 3 })
  bad("seed must be an integer, got 1.5", set, { seed = 1.5 })
  bad("pad must be an integer from 0 on, got -1", set, { pad = -1 })
  bad("vocab_size must be a positive integer, got 'many'", set, { vocab_size = "many" })
  bad("continuing must be a list of token ids, got 7", set, { continuing = 7 })
  bad("continuing[2] must be an integer from 0 on, got 'b'", set, { continuing = { 1, "b" } })
end
do -- the shortest: samples of just that length, which all are read
  for n, set in ipairs { B, T } do
    local s = set(folder .. "/text", with({ sequence_length = 6 - n, sequence_length_decoder = set == T and 8 or nil }))
    for i = 1, math.min(#s, 200) do
      local sample = s:get(i)
      assert((sample.text or sample.text_enc).shape[1] == 6 - n)
    end
  end
end
fails("there are 1 sentinels", function()
  local set = T(folder .. "/words", with({ sequence_length = 100, sequence_length_decoder = 90 }, { sentinels = { 99 } }))
  set:get(1)
end)
fails("--split-sentences", B, (function()
  local b = accel.data.IndexedDatasetBuilder(folder .. "/whole")
  b:add_item { 5, 6, 7 }
  b:end_document()
  b:finalize()
  return folder .. "/whole"
end)(), with { sequence_length = 16 })
