--- data.GPTDataset(indexed, opts): samples of one length for language models, cut out of the documents of an IndexedDataset as Megatron-LM
--- does it: documents of so many epochs in a random order, laid end to end, cut at every sequence_length tokens, and the pieces in a random
--- order. The three indices are equal, number by number, to megatron-core's for the same files and seed, and are kept in a folder.
---
---   document index   sequences of the split, once for every epoch, shuffled
---   sample index     for each sample its start in the document index, and the offset in that document
---   shuffle index    the order of the samples
---
--- If the last epoch contributes less than 80 % of its samples, it is shuffled separately, after the others.
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local IndexedDataset = require("accel.data.indexed_dataset").IndexedDataset
local MT19937 = require "accel.data.mt19937"
local check = require "accel.util.check"
local class = require "accel.util.class"
local fingerprint = require "accel.data.fingerprint"
local index_cache = require "accel.data.index_cache"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local WHO <const> = "GPTDataset"

local M = {}

--- Parts of "969,30,1" as first and last share: { { 0, 0.969 }, { 0.969, 0.999 }, { 0.999, 1 } }. A part of 0 is false.
---@param text string
---@return (number[]|false)[]
function M.split(text)
  local parts, sum, out, at = {}, 0, {}, 0
  for word in tostring(text):gmatch "[^,/]+" do
    local n = tonumber(word)
    if not n or n < 0 then raise("%s: split '%s': '%s' is not a number of 0 or more", WHO, text, word) end
    parts[#parts + 1], sum = n, sum + n
  end
  while #parts < 3 do parts[#parts + 1] = 0 end
  if #parts > 3 or sum == 0 then raise("%s: split '%s' has to be up to three numbers, as \"969,30,1\"", WHO, text) end
  for i, n in ipairs(parts) do
    local share = n / sum
    out[i] = n > 0 and { at, i == 3 and 1 or at + share } or false
    at = at + share
  end
  return out
end

--- To the nearest integer, halves to the even one.
local function round(x)
  local n = math.floor(x)
  local rest = x - n
  if rest > 0.5 or rest == 0.5 and n % 2 == 1 then n = n + 1 end
  return n
end

--- Indices of a data set. All numbers count from 0, as in Megatron-LM.
---@param lengths integer[] tokens of every sequence
---@param first integer of the split, from 0
---@param count integer
---@param o {sequence_length: integer, num_samples: integer?, seed: integer, add_extra_token: boolean}
---@return {document_index: integer[], sample_index: integer[], shuffle_index: integer[]} sample_index: consecutive pairs
function M.build(lengths, first, count, o)
  local per_epoch, length, extra = 0, o.sequence_length, o.add_extra_token and 1 or 0
  for i = first + 1, first + count do per_epoch = per_epoch + lengths[i] end
  if per_epoch <= extra then raise("%s: the split has %d tokens, which make no sample of %d", WHO, per_epoch, length) end
  local epochs = 1
  if o.num_samples then epochs = math.max(1, -(-(o.num_samples * length + extra) // per_epoch)) end
  local separate, before = false, 0
  if epochs > 1 then
    before = ((epochs - 1) * per_epoch - extra) // length
    local last, each = o.num_samples - before, (per_epoch - extra) // length
    separate = last < math.floor(0.8 * each)
  end
  local random = MT19937(o.seed)
  local function documents(n)
    local list = {}
    for _ = 1, n do
      for i = first, first + count - 1 do list[#list + 1] = i end
    end
    return random:shuffle(list)
  end
  local document = documents(separate and epochs - 1 or epochs)
  if separate then table.move(documents(1), 1, count, #document + 1, document) end

  local samples = (epochs * per_epoch - extra) // length
  local sample, at, offset = { 0, 0 }, 1, 0
  for _ = 1, samples do
    local left = length + extra
    while left > 0 do
      local here = lengths[document[at] + 1] - offset
      if here >= left then
        offset, left = offset + left - extra, 0
      elseif at == #document then
        offset, left = lengths[document[at] + 1] - extra, 0
      else
        at, offset, left = at + 1, 0, left - here
      end
    end
    sample[#sample + 1], sample[#sample + 2] = at - 1, offset
  end

  local shuffle = {}
  local function order(from, to)
    local list = {}
    for i = from, to - 1 do list[#list + 1] = i end
    table.move(random:shuffle(list), 1, #list, #shuffle + 1, shuffle)
  end
  order(0, separate and before or samples)
  if separate then order(before, samples) end
  return { document_index = document, sample_index = sample, shuffle_index = shuffle }
end

--- Sequences of a part of a split, from 0, as the first and the one after the last. nil if the split has no such part.
---@param split string
---@param part integer
---@param sequences integer of the whole
---@return integer? first
---@return integer? last
function M.range(split, part, sequences)
  local share = M.split(split)[part]
  if share then return round(share[1] * sequences), round(share[2] * sequences) end
end

--- Values that restart after every eod: the positions, and the attention mask, bool [n, n], of tokens in one document. The model adds
--- causality.
local function restart(tokens, eod)
  local positions, documents, at, document = {}, {}, 0, 0
  for i, token in ipairs(tokens:tolist()) do
    positions[i], documents[i], at = at, document, at + 1
    if token == eod then at, document = 0, document + 1 end
  end
  documents = accel.tensor(documents, { dtype = "i64", device = "cpu" })
  return accel.tensor(positions, { dtype = "i64", device = "cpu" }), documents:unsqueeze(2):eq(documents:unsqueeze(1))
end

--- Samples of one length out of indexed documents: see the head of this file.
--- example: local prefix = accel.mkdtemp "/tmp/gpt-" .. "/text" local b = accel.data.IndexedDatasetBuilder(prefix)
---   b:add_item { 5, 6, 7, 8, 9 } b:end_document() b:finalize()
---   return accel.data.GPTDataset(prefix, { sequence_length = 4, split = "1" }):get(1).labels --> { 6, 7, 8, 9 }
---@class accel.data.GPTDataset : accel.data.Dataset
---@field indexed accel.data.IndexedDataset
---@field document_index accel.Tensor i64, sequences from 0
---@field sample_index accel.Tensor i64 [samples + 1, 2]
---@field shuffle_index accel.Tensor i64
local GPTDataset = Dataset:extend "accel.data.GPTDataset"

local declared = { sequence_length = options.none, num_samples = options.none, seed = 1234, split = "969,30,1", part = 1,
  path_to_cache = options.none, add_extra_token = true, eod = options.none, eod_mask_loss = false,
  reset_position_ids = false, reset_attention_mask = false }

---@param indexed accel.data.IndexedDataset|string the documents, or their prefix
---@param opts {sequence_length: integer, num_samples: integer?, seed: integer?, split: string?, part: integer?, path_to_cache: string?,
--- add_extra_token: boolean?, eod: integer?, eod_mask_loss: boolean?, reset_position_ids: boolean?, reset_attention_mask: boolean?}
--- num_samples: at least so many, by whole epochs (one epoch); part (1): which of the split's parts, of train, valid and test;
--- path_to_cache: folder of the indices; eod: the token that ends documents; eod_mask_loss: the loss mask is 0 where the input is eod;
--- reset_position_ids: positions count from 0 behind it; reset_attention_mask: samples have an attention_mask that keeps documents apart
function GPTDataset:init(indexed, opts)
  local o = options(WHO, opts, declared)
  check.positive(WHO, "sequence_length", o.sequence_length)
  self.indexed = class.isinstance(indexed, IndexedDataset) and indexed or IndexedDataset(indexed)
  for _, name in ipairs { "eod_mask_loss", "reset_position_ids", "reset_attention_mask" } do
    if o[name] and not o.eod then raise("%s: %s needs eod, the token that ends documents", WHO, name) end
  end
  local n = #self.indexed
  local first, last = M.range(o.split, o.part, n)
  if not first then raise("%s: part %s of split '%s' is empty", WHO, check.shown(o.part), o.split) end
  if first == last then raise("%s: part %d of split '%s' is empty: there are only %d sequences", WHO, o.part, o.split, n) end
  self.options = o
  local text = ("%d|%s|%s|%s|%s"):format(o.sequence_length, o.num_samples, o.seed, o.split .. "#" .. o.part, o.add_extra_token)
  self.what = text
  local known = index_cache(o.path_to_cache, self.indexed, WHO, text, function()
    local out, made = {}, M.build(self.indexed.sequence_lengths:tolist(), first, last - first, o)
    for name, list in next, made do out[name] = accel.tensor(list, { dtype = "i64", device = "cpu" }) end
    out.sample_index = out.sample_index:reshape(-1, 2)
    return out
  end)
  self.document_index, self.sample_index, self.shuffle_index = known.document_index, known.sample_index, known.shuffle_index
end

--- Number of samples.
function GPTDataset:len() return self.shuffle_index.shape[1] end

--- The files and how samples are drawn from them, for states of loaders: accel.data.fingerprint.
---@return string
function GPTDataset:fingerprint() return fingerprint.over(WHO .. " " .. self.what, self.indexed) end

--- For workers: the same files and options.
function GPTDataset:worker_spec()
  return { module = "accel.data.gpt_dataset:GPTDataset", args = { self.indexed.prefix, self.options } }
end

--- Sample i, from 1: tokens, labels, loss_mask (f32) and position_ids, each [sequence_length]. With reset_attention_mask also an
--- attention_mask, bool [sequence_length, sequence_length].
---@param i integer
---@return {tokens: accel.Tensor, labels: accel.Tensor, loss_mask: accel.Tensor, position_ids: accel.Tensor, attention_mask: accel.Tensor?}
function GPTDataset:get(i)
  self:check_position(i)
  local o = self.options
  local s = self.shuffle_index:select(1, i):item()
  local from, to = self.sample_index[s + 1]:tolist(), self.sample_index[s + 2]:tolist()
  local extra, parts = o.add_extra_token and 1 or 0, {}
  for d = from[1], to[1] do
    local offset = d == from[1] and from[2] or 0
    local sequence = self.document_index:select(1, d + 1):item() + 1
    local length = d == to[1] and to[2] - offset + extra or nil
    parts[#parts + 1] = self.indexed:get(sequence, { offset = offset, length = length })
  end
  local text = #parts == 1 and parts[1] or accel.cat(parts, 1)
  local n = o.sequence_length
  local tokens, labels = text:narrow(1, 1, n), text:narrow(1, 1 + extra, n)
  local mask = accel.ones(n, { device = "cpu" })
  if o.eod_mask_loss then mask = mask:masked_fill(tokens:eq(o.eod), 0) end
  local sample = { tokens = tokens:contiguous(), labels = labels:contiguous(), loss_mask = mask, position_ids = accel.arange(n, { device = "cpu" }) }
  if o.reset_position_ids or o.reset_attention_mask then
    local positions, visible = restart(tokens, o.eod)
    if o.reset_position_ids then sample.position_ids = positions end
    if o.reset_attention_mask then sample.attention_mask = visible end
  end
  return sample
end

-- Blends -----------------------------------------------------------------------------------------

--- For each of `size` samples its data set and its number there: at every step the set that is furthest below its weight.
---@param weights number[] of any sum
---@param size integer
---@return integer[] sets from 0
---@return integer[] samples from 0
function M.blend(weights, size)
  local sum, counts, sets, samples = 0, {}, {}, {}
  for i, w in ipairs(weights) do sum, counts[i] = sum + w, 0 end
  for k = 0, size - 1 do
    local most, best = -math.huge, 1
    for i, w in ipairs(weights) do
      local error_ = w / sum * math.max(k, 1) - counts[i]
      if error_ > most then most, best = error_, i end
    end
    sets[k + 1], samples[k + 1] = best - 1, counts[best]
    counts[best] = counts[best] + 1
  end
  return sets, samples
end

--- Several data sets by weights, as Megatron-LM blends them: sample k comes from the set that is furthest below its weight, and each
--- set's samples come in order.
--- example: local a, b = accel.data.TensorDataset(accel.zeros(9)), accel.data.TensorDataset(accel.ones(9))
---   return accel.data.BlendedDataset({ a, b }, { 2, 1 }, 6):len() --> 6
---@class accel.data.BlendedDataset : accel.data.Dataset
local Blended = Dataset:extend "accel.data.BlendedDataset"

---@param sets accel.data.Dataset[]
---@param weights number[]
---@param size integer samples in all. A set that is too small for its share is an error
function Blended:init(sets, weights, size)
  local who = "BlendedDataset"
  if #sets ~= #weights or #sets == 0 then raise("%s: %d data sets and %d weights", who, #sets, #weights) end
  for i, w in ipairs(weights) do
    if type(w) ~= "number" or w <= 0 then raise("%s: weight %d is %s, not a number above 0", who, i, check.shown(w)) end
  end
  check.positive(who, "size", size)
  self.sets, self.weights, self.size = sets, weights, size
  local numbers, samples = M.blend(weights, size)
  for k = size, 1, -1 do
    local set = sets[numbers[k] + 1]
    if samples[k] >= #set then
      raise("%s: %d samples by these weights need more than the %d of data set %d; raise its num_samples", who, size, #set, numbers[k] + 1)
    end
  end
  self.dataset_index = accel.tensor(numbers, { dtype = "i64", device = "cpu" })
  self.dataset_sample_index = accel.tensor(samples, { dtype = "i64", device = "cpu" })
end

--- Number of samples.
function Blended:len() return self.size end

--- The data sets and their weights, for states of loaders: accel.data.fingerprint.
---@return string?
function Blended:fingerprint()
  return fingerprint.over(("blend of %d, %s"):format(self.size, fingerprint.hash(self.weights)), table.unpack(self.sets))
end

--- For workers: the same sets, each by its own.
function Blended:worker_spec()
  return { module = "accel.data.gpt_dataset:BlendedDataset", args = { self.sets, self.weights, self.size } }
end

--- Sample i, from 1.
---@param i integer
function Blended:get(i)
  self:check_position(i)
  return self.sets[self.dataset_index:select(1, i):item() + 1]:get(self.dataset_sample_index:select(1, i):item() + 1)
end

M.GPTDataset, M.BlendedDataset = GPTDataset, Blended
return M
