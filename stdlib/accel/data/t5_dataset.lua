--- data.T5Dataset(indexed, opts): samples for encoder-decoders that fill gaps, as Megatron-LM makes them: spans of words are removed from
--- sentences of one document, a sentinel replaces each, and the decoder predicts the removed words (Raffel et al. 2020).
local masked = require "accel.data.masked_dataset"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local WHO <const> = "T5Dataset"

--- Samples of an IndexedDataset whose sequences are sentences (accel-run preprocess --split-sentences): see the head of this file.
--- example: local prefix = accel.mkdtemp "/tmp/t5-" .. "/text" local b = accel.data.IndexedDatasetBuilder(prefix)
---   for _ = 1, 4 do b:add_item { 5, 6, 7 } end b:end_document() b:finalize()
---   local set = accel.data.T5Dataset(prefix, { sequence_length = 16, sequence_length_decoder = 8, split = "1", vocab_size = 12, bos = 0,
---     eos = 1, pad = 0, sentinels = { 11, 10 } })
---   return set:get(1).text_dec.shape --> { 8 }
---@class accel.data.T5Dataset : accel.data.MaskedDataset
local T5 = masked.MaskedDataset:extend "accel.data.T5Dataset"

local declared = { sequence_length_decoder = options.none, masking_max_ngram = 10, masking_use_geometric_distribution = true }
for key, value in next, masked.declared do declared[key] = value end

---@param indexed accel.data.IndexedDataset|string the sentences, or their prefix
---@param opts table data.BERTDataset's without classification_head, and
---  sequence_length integer: tokens of the encoder
---  sequence_length_decoder integer: of the decoder
---  bos, eos integer: the first and last token of the decoder (T5's bos is its padding, 0)
---  sentinels integer[]: ids that stand for gaps, the first gap's first, as many as gaps are possible
---  masking_max_ngram integer = 10
---  masking_use_geometric_distribution boolean = true
function T5:init(indexed, opts)
  local o = options(WHO, opts, declared)
  o.sequence_length_decoder = check.positive(WHO, "sequence_length_decoder", o.sequence_length_decoder)
  self:open(WHO, indexed, o, { "bos", "eos", "pad", "sentinels" }, 2, 1)
  self.masks = { probability = o.masking_probability, max_ngram = o.masking_max_ngram, whole_words = o.masking_do_full_word,
    longer = o.masking_use_longer_ngrams, geometric = o.masking_use_geometric_distribution, continuing = self.inside, stops = {} }
  for _, key in ipairs { "cls", "sep" } do
    if o[key] then self.masks.stops[o[key]] = true end
  end
end

--- For workers: the same files and options.
function T5:worker_spec()
  return { module = "accel.data.t5_dataset:T5Dataset", args = { self.indexed.prefix, self.given } }
end

local function append(list, ids, first, last)
  table.move(ids, first, last, #list + 1, list)
end

--- Sample i, from 1: text_enc [sequence_length], text_dec, labels (-1 after the end) and loss_mask [sequence_length_decoder], enc_mask and
--- dec_mask (1: tokens), each i64, and truncated, 0 or 1. labels are text_dec shifted by one token.
---@param i integer
---@return {text_enc: accel.Tensor, text_dec: accel.Tensor, labels: accel.Tensor, loss_mask: accel.Tensor, enc_mask: accel.Tensor,
--- dec_mask: accel.Tensor, truncated: integer}
function T5:get(i)
  local o, sentences, length, random = self.options, self:read(i)
  local tokens = {}
  for _, s in ipairs(sentences) do append(tokens, s, 1, #s) end
  local cut = #tokens > length
  tokens = table.move(tokens, 1, math.min(#tokens, length), 1, {})
  local spans = masked.mask(tokens, length, random, self.masks, function() return nil end)
  if #spans > #o.sentinels then
    raise("%s: sample %d has %d gaps, but there are %d sentinels; give more, or a lower masking_probability", WHO, i, #spans, #o.sentinels)
  end
  local encoder, decoder, at = {}, { o.bos }, 1
  for k, span in ipairs(spans) do
    append(encoder, tokens, at, span.at[1] - 1)
    encoder[#encoder + 1], decoder[#decoder + 1] = o.sentinels[k], o.sentinels[k]
    append(decoder, span.labels, 1, #span.labels)
    at = span.at[#span.at] + 1
  end
  append(encoder, tokens, at, #tokens)
  local n, m = o.sequence_length, o.sequence_length_decoder
  if #decoder > m then
    raise("%s: sample %d gives the decoder %d tokens, but sequence_length_decoder is %d; about masking_probability of sequence_length, and a"
      .. " sentinel for each gap", WHO, i, #decoder, m)
  end
  local labels, seen, told = table.move(decoder, 2, #decoder, 1, {}), {}, {}
  labels[#labels + 1] = o.eos
  for k = 1, #encoder do seen[k] = 1 end
  for k = 1, #decoder do told[k] = 1 end
  return { text_enc = masked.padded(encoder, n, o.pad), text_dec = masked.padded(decoder, m, o.pad), labels = masked.padded(labels, m, -1),
    loss_mask = masked.padded(told, m, 0), enc_mask = masked.padded(seen, n, 0), dec_mask = masked.padded(told, m, 0), truncated = cut and 1 or 0 }
end

return { T5Dataset = T5 }
