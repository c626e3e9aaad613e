--- Common code of Megatron-LM's masked data sets (bert_dataset.lua, t5_dataset.lua): samples of whole sentences of one document of an
--- IndexedDataset, whose sequences are sentences, and the choice of masked tokens. The sample index equals megatron-core's for the same
--- files and seed, number by number, and the random numbers of sample k are numpy.random.RandomState(seed + k)'s.
---
---   sample index   for each sample the first sentence, the one after the last, and the target number of tokens, epochs one after the
---                  other, then shuffled. A sample ends at the sentence that reaches its length, but never leaves a single
---                  one at the end of the document
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local IndexedDataset = require("accel.data.indexed_dataset").IndexedDataset
local MT19937 = require "accel.data.mt19937"
local MT19937_64 = require "accel.data.mt19937_64"
local check = require "accel.util.check"
local class = require "accel.util.class"
local fingerprint = require "accel.data.fingerprint"
local index_cache = require "accel.data.index_cache"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local range = require("accel.data.gpt_dataset").range

local M = {}

--- Documents with a longer sentence are left out, as megatron-core has it.
local LONGEST <const> = 512

--- Tokens of text that a sample has room for at least: target draws lengths from two on.
local SHORTEST <const> = 2

--- Tokens that the next sample is to have: now and then fewer, so that short ones are met as well.
local function target(random, ratio, most)
  if ratio == 0 then return most end
  local x = random:next()
  return x % ratio == 0 and SHORTEST + x % (most - 1) or most
end

--- Whether a document (sentences first + 1 .. last) gives samples.
local function suits(lengths, first, last, least)
  if last - first < least then return false end
  for i = first + 1, last - first > 1 and last or first do
    if lengths[i] > LONGEST then return false end
  end
  return true
end

--- The sample index: consecutive triples. Sentences count from 0.
---@param documents integer[] the start of each document, and the end of the last
---@param lengths integer[] of all sentences
---@param o {num_samples: integer?, length: integer, least: integer, short: number, seed: integer} least: sentences of a sample
---@return integer[]
function M.build(documents, lengths, o)
  local random, ratio = MT19937(o.seed), o.short > 0 and math.floor(1 / o.short + 0.5) or 0
  local map, n, most = {}, 0, o.num_samples or 1
  repeat
    local before = n
    for d = 1, #documents - 1 do
      local first, last = documents[d], documents[d + 1]
      if suits(lengths, first, last, o.least) then
        local want, tokens, from = target(random, ratio, o.length), 0, first
        for s = first, last - 1 do
          local left, count = last - s - 1, s + 1 - from
          tokens = tokens + lengths[s + 1]
          if left == 0 or tokens >= want and left > 1 and count >= o.least then
            map[3 * n + 1], map[3 * n + 2], map[3 * n + 3] = from, s + 1, want
            n, from, tokens = n + 1, s + 1, 0
            want = target(random, ratio, o.length)
          end
        end
      end
    end
    if n == before then return map end -- and would be for ever
  until n >= most
  random = MT19937_64(o.seed + 1)
  for i = n - 1, 1, -1 do
    local j = random:below(i + 1)
    for k = 1, 3 do map[3 * i + k], map[3 * j + k] = map[3 * j + k], map[3 * i + k] end
  end
  return map
end

-- Masked tokens ---------------------------------------------------------------------------------

--- Sum of reciprocals up to each n, over their sum: n-grams are the rarer the longer they are.
local function reciprocals(most, longer)
  local p, sum = {}, 0
  for n = 1, most do p[n] = 1 / n end
  for n = 1, most do sum = sum + p[n] end
  for n = 1, most do p[n] = p[n] / sum end
  if longer then
    for n = 1, most // 2 do p[n], p[most + 1 - n] = p[most + 1 - n], p[n] end
  end
  local total, cdf = 0, {}
  for n = 1, most do total = total + p[n] end
  for n = 1, most do cdf[n] = (cdf[n - 1] or 0) + p[n] / total end
  for n = 1, most do cdf[n] = cdf[n] / cdf[most] end
  return cdf
end

--- To the nearest integer, halves to the even one.
local function round(x)
  local n = math.floor(x)
  local rest = x - n
  return (rest > 0.5 or rest == 0.5 and n % 2 == 1) and n + 1 or n
end

--- The length of an n-gram.
local function draw(random, o, cdf)
  if o.geometric then -- SpanBERT (Joshi et al. 2020), clipped
    return math.min(math.max(1, math.ceil(math.log(1 - random:double()) / math.log(1 - 0.2))), o.max_ngram)
  end
  local u = random:double()
  for n = 1, o.max_ngram do
    if u < cdf[n] then return n end
  end
  return o.max_ngram
end

--- n words starting at a candidate, as positions of their tokens. Fewer at the end.
local function places_of(words, first, n)
  local out = {}
  for w = first, math.min(first + n - 1, #words) do table.move(words[w], 1, #words[w], #out + 1, out) end
  return out
end

--- Chooses tokens by words of 1 to max_ngram, at random, until `probability` of them are chosen, and puts another one in their place.
---@param tokens integer[] changed in place
---@param length integer that the sample was to have: no more than probability of it are chosen
---@param random accel.data.MT19937
---@param o {probability: number, max_ngram: integer, whole_words: boolean, longer: boolean, geometric: boolean, stops: table<integer, true>,
--- continuing: table<integer, true>} stops: never chosen (classes and separators). continuing: ids of tokens inside words
---@param another fun(random: accel.data.MT19937): integer? the replacement of a token. nil: it stays
---@return {at: integer[], labels: integer[]}[] spans of tokens by place
function M.mask(tokens, length, random, o, another)
  local words, order = {}, {}
  for i, id in ipairs(tokens) do
    if not o.stops[id] then
      if o.continuing[id] and o.whole_words and #words > 0 then table.insert(words[#words], i)
      else words[#words + 1] = { i } end
    end
  end
  for w = 1, #words do order[w] = w end
  random:shuffle(order)
  local most = math.min(o.probability * length, math.max(1, round(#tokens * o.probability)))
  local spans, taken, count, cdf = {}, {}, 0, not o.geometric and reciprocals(o.max_ngram, o.longer) or nil
  for _, first in ipairs(order) do
    if count >= most then break end
    local n, at = draw(random, o, cdf), nil
    repeat
      at, n = places_of(words, first, n), n - 1
    until count + #at <= most or n == 0
    local free = count + #at <= most
    for _, i in ipairs(at) do free = free and not taken[i] end
    if free then
      local labels = {}
      for k, i in ipairs(at) do
        local id = another(random)
        labels[k], taken[i] = tokens[i], true
        if id then tokens[i] = id end
      end
      count, spans[#spans + 1] = count + #at, { at = at, labels = labels }
    end
  end
  table.sort(spans, function(a, b) return a.at[1] < b.at[1] end)
  return spans
end

-- Data sets --------------------------------------------------------------------------------------

local none <const> = options.none

--- Options of both.
M.declared = {
  sequence_length = none, num_samples = none, seed = 1234, split = "969,30,1", part = 1, path_to_cache = none, tokenizer = none,
  vocab_size = none, cls = none, sep = none, mask = none, pad = none, bos = none, eos = none, sentinels = none, continuing = none,
  masking_probability = 0.15, short_sequence_probability = 0.1, masking_do_full_word = true, masking_use_longer_ngrams = false,
}

---@class accel.data.MaskedDataset : accel.data.Dataset
---@field indexed accel.data.IndexedDataset
---@field sample_index accel.Tensor i64 [samples, 3]
local Masked = Dataset:extend "accel.data.MaskedDataset"
M.MaskedDataset = Masked

--- A tokenizer's ids for options that are not given.
local function read_tokenizer(who, o)
  local path = o.tokenizer
  local tok = path:find "%.json$" and accel.text.Tokenizer.from_file(path) or accel.text.Tokenizer.from_pretrained(path)
  if not tok then raise("%s: no tokenizer in %s", who, path) end
  o.vocab_size = o.vocab_size or tok:get_vocab_size()
  for name, words in next, { cls = { "[CLS]", "<s>" }, sep = { "[SEP]", "</s>" }, mask = { "[MASK]", "<mask>", "<extra_id_0>" },
    pad = { "[PAD]", "<pad>" }, bos = { "<s>", "<pad>", "[CLS]" }, eos = { "</s>", "[SEP]" } } do
    for _, word in ipairs(words) do o[name] = o[name] or tok:token_to_id(word) end
  end
  if not o.sentinels then
    o.sentinels = {}
    for i = 0, 999 do
      local id = tok:token_to_id(("<extra_id_%d>"):format(i))
      if not id then break end
      o.sentinels[i + 1] = id
    end
  end
  if not o.continuing then
    o.continuing = {}
    for id = 0, o.vocab_size - 1 do
      local token = tok:id_to_token(id)
      if token and token:sub(1, 2) == "##" then table.insert(o.continuing, id) end
    end
  end
end

--- A list of token ids.
local function check_ids(who, key, list)
  if type(list) ~= "table" then raise("%s: %s must be a list of token ids, got %s", who, key, check.shown(list)) end
  for i, id in ipairs(list) do check.count(who, ("%s[%d]"):format(key, i), id) end
end

--- Raises for options that no sample could be made with.
local function check_options(who, o, around)
  o.sequence_length = check.positive(who, "sequence_length", o.sequence_length)
  if o.sequence_length < around + SHORTEST then
    raise("%s: sequence_length must be at least %d, %d tokens of text and %d around them, got %d", who, around + SHORTEST, SHORTEST, around,
      o.sequence_length)
  end
  for _, key in ipairs { "masking_probability", "short_sequence_probability" } do check.number(who, key, o[key], 0, 1) end
  o.masking_max_ngram = check.positive(who, "masking_max_ngram", o.masking_max_ngram)
  o.seed = check.integer(who, "seed", o.seed)
  for _, key in ipairs { "num_samples", "vocab_size" } do
    if o[key] ~= nil then o[key] = check.positive(who, key, o[key]) end
  end
  for _, key in ipairs { "cls", "sep", "mask", "pad", "bos", "eos" } do
    if o[key] ~= nil then o[key] = check.count(who, key, o[key]) end
  end
  for _, key in ipairs { "continuing", "sentinels" } do
    if o[key] ~= nil then check_ids(who, key, o[key]) end
  end
  if o.tokenizer ~= nil and type(o.tokenizer) ~= "string" then
    raise("%s: tokenizer must be a folder with tokenizer.json, or that file, got %s", who, check.shown(o.tokenizer))
  end
end

--- Opens files and makes, or reads, the sample index.
---@param who string
---@param indexed accel.data.IndexedDataset|string
---@param o table options
---@param needed string[] ids that have to be known
---@param around integer tokens added around the sentences' tokens
---@param least integer sentences of a sample
function Masked:open(who, indexed, o, needed, around, least)
  check_options(who, o, around)
  no_effect("accel.data." .. who, o)
  if o.masking_use_longer_ngrams and o.masking_use_geometric_distribution then
    warn(("%s: masking_use_longer_ngrams has no effect with masking_use_geometric_distribution = true, which draws the lengths"):format(who))
  end
  self.given = {}
  for key, value in next, o do self.given[key] = value end
  o.length, o.least = o.sequence_length - around, least
  if o.tokenizer then read_tokenizer(who, o) end
  for _, key in ipairs(needed) do
    if o[key] == nil then raise("%s: %s is missing; give it, or tokenizer, a folder with tokenizer.json", who, key) end
  end
  self.indexed = class.isinstance(indexed, IndexedDataset) and indexed or IndexedDataset(indexed)
  local documents = self.indexed.document_indices
  local n = documents.shape[1] - 1
  local first, last = range(o.split, o.part, n)
  if not first then raise("%s: part %s of split '%s' is empty", who, check.shown(o.part), o.split) end
  if first == last then raise("%s: part %d of split '%s' is empty: there are only %d documents", who, o.part, o.split, n) end
  self.options, self.who = o, who
  self.what = ("%s|%s|%s|%s|%s#%s|%s"):format(o.num_samples, o.length, o.least, o.seed, o.split, o.part, o.short_sequence_probability)
  self.sample_index = index_cache(o.path_to_cache, self.indexed, who, self.what, function()
    local map = M.build(documents:narrow(1, first + 1, last - first + 1):tolist(), self.indexed.sequence_lengths:tolist(), {
      num_samples = o.num_samples, length = o.length, least = o.least, short = o.short_sequence_probability, seed = o.seed })
    if #map == 0 then
      raise("%s: no document of %s gives a sample: each has fewer than %d sentences, or one of more than %d tokens; write one"
        .. " sequence for each sentence (accel-run preprocess --split-sentences)", who, self.indexed.prefix, o.least, LONGEST)
    end
    return { sample_index = accel.tensor(map, { dtype = "i64", device = "cpu" }):reshape(-1, 3) }
  end).sample_index
  self.stops, self.inside = {}, {}
  for _, id in ipairs(o.continuing or {}) do self.inside[id] = true end
end

--- The files and how samples are drawn from them, for states of loaders: accel.data.fingerprint.
---@return string
function Masked:fingerprint() return fingerprint.over(self.who .. " " .. self.what, self.indexed) end

--- Number of samples.
function Masked:len() return self.sample_index.shape[1] end

--- Sentences of sample i (from 1) as lists of ids, the tokens it is to have, and the draws that are its own.
---@param i integer
---@return integer[][] sentences
---@return integer length
---@return accel.data.MT19937 random
function Masked:read(i)
  self:check_position(i)
  local row = self.sample_index[i]:tolist()
  local sentences = {}
  for s = row[1] + 1, row[2] do sentences[#sentences + 1] = self.indexed:get(s):tolist() end
  return sentences, row[3], MT19937((self.options.seed + i - 1) & 0xffffffff)
end

--- A list as i64 [n], filled up with `with`.
---@param list integer[]
---@param n integer
---@param with integer
---@return accel.Tensor
function M.padded(list, n, with)
  local out = table.move(list, 1, #list, 1, {})
  for i = #list + 1, n do out[i] = with end
  return accel.tensor(out, { dtype = "i64", device = "cpu" })
end

return M
