--- data.BERTDataset(indexed, opts): samples for masked language models, of whole sentences, as Megatron-LM makes them: two segments of one
--- document, swapped in half of the samples, with some masked tokens (Devlin et al. 2019).
local masked = require "accel.data.masked_dataset"
local options = require "accel.util.options"

local WHO <const> = "BERTDataset"

--- Samples of an IndexedDataset whose sequences are sentences (accel-run preprocess --split-sentences): see the head of this file.
--- example: local prefix = accel.mkdtemp "/tmp/bert-" .. "/text" local b = accel.data.IndexedDatasetBuilder(prefix)
---   for _ = 1, 4 do b:add_item { 5, 6, 7 } end b:end_document() b:finalize()
---   local set = accel.data.BERTDataset(prefix, { sequence_length = 16, split = "1", vocab_size = 9, cls = 1, sep = 2, mask = 3, pad = 0 })
---   return set:get(1).text.shape, set:get(1).loss_mask:sum():item() > 0 --> { 16 }, true
---@class accel.data.BERTDataset : accel.data.MaskedDataset
local BERT = masked.MaskedDataset:extend "accel.data.BERTDataset"

local declared = { classification_head = true, masking_max_ngram = 3, masking_use_geometric_distribution = false }
for key, value in next, masked.declared do declared[key] = value end

---@param indexed accel.data.IndexedDataset|string the sentences, or their prefix
---@param opts table
---  sequence_length integer: tokens of a sample, with classes, separators and padding
---  num_samples integer: at least so many, by whole epochs (one epoch)
---  seed integer = 1234: sample k draws from seed + k
---  split string = "969,30,1", part integer = 1: of the documents
---  path_to_cache string: folder of the index
---  tokenizer string: a folder with tokenizer.json, which provides the ids below, or
---  vocab_size, cls, sep, mask, pad integer. continuing integer[]: ids of tokens that continue a word ("##ing")
---  classification_head boolean = true: two segments. is_random marks swapped ones
---  masking_probability number = 0.15: the share of masked tokens
---  short_sequence_probability number = 0.1: of the samples are shorter
---  masking_max_ngram integer = 3: maximum number of consecutive words that are masked together
---  masking_do_full_word boolean = true: whole words
---  masking_use_longer_ngrams boolean = false: long rows are the frequent ones
---  masking_use_geometric_distribution boolean = false: of lengths of rows, with p = 0.2
function BERT:init(indexed, opts)
  local o = options(WHO, opts, declared)
  self:open(WHO, indexed, o, { "vocab_size", "cls", "sep", "mask", "pad" }, 3, o.classification_head and 2 or 1)
  self.masks = { probability = o.masking_probability, max_ngram = o.masking_max_ngram, whole_words = o.masking_do_full_word,
    longer = o.masking_use_longer_ngrams, geometric = o.masking_use_geometric_distribution, continuing = self.inside,
    stops = { [o.cls] = true, [o.sep] = true } }
end

--- For workers: the same files and options.
function BERT:worker_spec()
  return { module = "accel.data.bert_dataset:BERTDataset", args = { self.indexed.prefix, self.given } }
end

--- Sentences first .. last in one list.
local function joined(sentences, first, last)
  local out = {}
  for s = first, last do table.move(sentences[s], 1, #sentences[s], #out + 1, out) end
  return out
end

--- Removes tokens from both ends of the longer segment until both together have `most`. Returns whether any was
--- removed.
local function trim(a, b, most, random)
  local from, to = { 1, 1 }, { #a, #b }
  local function count(k) return to[k] - from[k] + 1 end
  local cut = count(1) + count(2) > most
  while count(1) + count(2) > most do
    local k = count(1) > count(2) and 1 or 2
    if random:double() < 0.5 then from[k] = from[k] + 1 else to[k] = to[k] - 1 end
  end
  return table.move(a, from[1], to[1], 1, {}), table.move(b, from[2], to[2], 1, {}), cut
end

--- Sample i, from 1: text, types (0 and 1: segments), labels (-1 for unmasked tokens), padding_mask (1: tokens), loss_mask, each i64
--- [sequence_length], and is_random and truncated, 0 or 1.
---@param i integer
---@return {text: accel.Tensor, types: accel.Tensor, labels: accel.Tensor, is_random: integer, padding_mask: accel.Tensor, loss_mask:
--- accel.Tensor, truncated: integer}
function BERT:get(i)
  local o, sentences, length, random = self.options, self:read(i)
  local pivot, swapped = #sentences, false
  if o.classification_head then
    pivot = #sentences >= 3 and 1 + random:interval(#sentences - 2) or 1
    swapped = random:double() < 0.5
  end
  local a, b = joined(sentences, 1, pivot), joined(sentences, pivot + 1, #sentences)
  if swapped then a, b = b, a end
  local cut
  a, b, cut = trim(a, b, length, random)
  local tokens, types, labels, loss = { o.cls }, {}, {}, {}
  table.move(a, 1, #a, 2, tokens)
  tokens[#tokens + 1] = o.sep
  for k = 1, #tokens do types[k] = 0 end
  if #b > 0 then
    table.move(b, 1, #b, #tokens + 1, tokens)
    tokens[#tokens + 1] = o.sep
    for k = #types + 1, #tokens do types[k] = 1 end
  end
  local n, present = o.sequence_length, {}
  for k = 1, #tokens do labels[k], loss[k], present[k] = -1, 0, 1 end
  for _, span in ipairs(masked.mask(tokens, length, random, self.masks, function(draws)
    if draws:double() < 0.8 then return o.mask end
    return draws:double() >= 0.5 and draws:interval(o.vocab_size - 1) or nil
  end)) do
    for k, at in ipairs(span.at) do labels[at], loss[at] = span.labels[k], 1 end
  end
  return { text = masked.padded(tokens, n, o.pad), types = masked.padded(types, n, 0), labels = masked.padded(labels, n, -1),
    is_random = swapped and 1 or 0, padding_mask = masked.padded(present, n, 0), loss_mask = masked.padded(loss, n, 0), truncated = cut and 1 or 0 }
end

return { BERTDataset = BERT }
