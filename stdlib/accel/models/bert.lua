--- BERT in Hugging Face's names: an encoder of post-norm layers over word, position and segment embeddings.
---
---   local model = models.BertForSequenceClassification.from_pretrained(dir, { config = { num_labels = 3 } })
---   local logits = model(ids, { attention_mask = mask, token_type_ids = segments })   -- [B, T] -> [B, 3]
local PreTrainedModel = require "accel.models.pretrained_model"
local SelfAttention = require "accel.models.self_attention"
local accel = require "accel"
local add_norm = require "accel.nn.add_norm"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local config = require "accel.models.config"
local context = require "accel.models.context"
local nn = require "accel.nn"
local options = require "accel.util.options"
local plans = require "accel.models.plans"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"
local tensors = require "accel.util.tensors"

local schema = config.schema("bert", {
  vocab_size = config.size(30522), hidden_size = config.size(768), num_hidden_layers = config.count(12),
  num_attention_heads = config.count(12), intermediate_size = config.size(3072),
  hidden_act = config.activation "gelu", hidden_dropout_prob = config.rate(0.1),
  attention_probs_dropout_prob = config.rate(0.1), max_position_embeddings = config.size(512),
  type_vocab_size = config.size(2), initializer_range = config.number(0.02), layer_norm_eps = config.number(1e-12),
  pad_token_id = config.token(0), classifier_dropout = config.rate(), is_decoder = config.flag(false),
  add_cross_attention = config.flag(false), tie_word_embeddings = config.flag(true),
  position_embedding_type = config.word("absolute", { "absolute" }),
}, function(c)
  if c.is_decoder or c.add_cross_attention then return "is_decoder and add_cross_attention are not supported" end
  if c.pad_token_id and c.pad_token_id >= c.vocab_size then
    return ("pad_token_id %d is outside of the vocabulary of %d"):format(c.pad_token_id, c.vocab_size)
  end
  return config.not_multiple(c, "hidden_size", "num_attention_heads")
end)

---@class accel.models.BertEmbeddings : accel.nn.Module
local Embeddings = nn.Module:extend("BertEmbeddings")

function Embeddings:init(c)
  self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size, { padding_idx = c.pad_token_id })
  self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.limit = c.max_position_embeddings
end

function Embeddings:forward(ids, token_type_ids, position_ids)
  local T = ids.shape[2]
  if not position_ids and T > self.limit then raise("bert: %d tokens exceed the %d positions", T, self.limit) end
  local positions = position_ids or context.positions(T, ids.device) or accel.arange(T, { device = ids.device })
  local segments = token_type_ids or accel.zeros(1, T, { dtype = "i64", device = ids.device })
  local x = self.word_embeddings(ids) + self.token_type_embeddings(segments) + self.position_embeddings(positions)
  return self.dropout(self.LayerNorm(x))
end

--- Projects, drops out, adds what was before, normalises.
---@class accel.models.BertOutput : accel.nn.Module
local Output = nn.Module:extend("BertOutput")

function Output:init(c, n_in)
  self.dense = nn.Linear(n_in, c.hidden_size)
  self.LayerNorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

function Output:forward(x, before) return (add_norm(self.LayerNorm, self.dropout(self.dense(x)), before)) end

---@class accel.models.BertAttention : accel.nn.Module
local Attention = nn.Module:extend("BertAttention")

function Attention:init(c)
  self.self = SelfAttention(c)
  self.output = Output(c, c.hidden_size)
end

function Attention:forward(x, mask) return self.output(self.self(x, mask), x) end

--- A linear layer and its activation; with `norm`, a layer norm after it.
---@class accel.models.BertTransform : accel.nn.Module
local Transform = nn.Module:extend("BertTransform")

function Transform:init(c, n_out, norm)
  self.dense = nn.Linear(c.hidden_size, n_out)
  self.act = activation.find(c.hidden_act)
  if norm then self.LayerNorm = nn.LayerNorm(n_out, { eps = c.layer_norm_eps }) end
end

function Transform:forward(x)
  x = self.act(self.dense(x))
  return self.LayerNorm and self.LayerNorm(x) or x
end

---@class accel.models.BertLayer : accel.nn.Module
local Layer = nn.Module:extend("BertLayer")

function Layer:init(c)
  self.attention = Attention(c)
  self.intermediate = Transform(c, c.intermediate_size)
  self.output = Output(c, c.intermediate_size)
end

function Layer:forward(x, mask)
  x = self.attention(x, mask)
  return self.output(self.intermediate(x), x)
end

---@class accel.models.BertEncoder : accel.nn.Module
local Encoder = nn.Module:extend("BertEncoder")
Encoder.gradient_checkpointing = false

function Encoder:init(c)
  self.layer = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layer:append(Layer(c)) end
end

function Encoder:forward(x, mask)
  for _, layer in ipairs(self.layer) do x = run_layer(self, layer, nil, x, mask) end
  return x
end

---@class accel.models.BertPooler : accel.nn.Module
local Pooler = nn.Module:extend("BertPooler")

function Pooler:init(c) self.dense = nn.Linear(c.hidden_size, c.hidden_size) end

function Pooler:forward(x) return self.dense(x:select(2, 1)):tanh() end

local PLAN <const> = plans.family {
  layers = {
    ["encoder.layer.*.attention.self"] = "attention", ["encoder.layer.*.attention.self.query"] = "colwise",
    ["encoder.layer.*.attention.self.key"] = "colwise", ["encoder.layer.*.attention.self.value"] = "colwise",
    ["encoder.layer.*.attention.output.dense"] = "rowwise",
    ["encoder.layer.*.attention.output.LayerNorm"] = "sequence_parallel",
    ["encoder.layer.*.attention.output.dropout"] = "sequence_parallel",
    ["encoder.layer.*.intermediate.dense"] = "colwise", ["encoder.layer.*.output.dense"] = "rowwise",
    ["encoder.layer.*.output.LayerNorm"] = "sequence_parallel", ["encoder.layer.*.output.dropout"] = "sequence_parallel",
    ["embeddings.word_embeddings"] = "embedding_rowwise", ["embeddings.position_embeddings"] = "sequence_parallel",
    ["embeddings.token_type_embeddings"] = "sequence_parallel", ["embeddings.LayerNorm"] = "sequence_parallel",
    ["embeddings.dropout"] = "sequence_parallel", encoder = "sequence_gather",
  },
  head = { ["cls.predictions.decoder"] = { "colwise_rep", input = "replicated" } },
}

local Base = PreTrainedModel:define("BertPreTrainedModel", {
  tp_divides = { "num_attention_heads" }, tp_plan = PLAN.with_prefix,
  pipeline_plan = { "embeddings", "encoder.layer.*", "pooler" },
  schema = schema, _no_split_modules = { "BertLayer" }, base_model_prefix = "bert",
  ignored_keys = { "embeddings%.position_ids$", "embeddings%.token_type_ids$" }, optional_keys = { "pooler%.dense%." },
})

--- The encoder alone: ids [B, T] -> hidden states [B, T, hidden_size], and those of the first token through
--- the pooler, [B, hidden_size] (nil when made with add_pooling_layer = false).
--- example: accel.models.BertModel(accel.models.tiny.bert)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 8 }
---@class accel.models.BertModel : accel.models.PreTrainedModel
local BertModel = Base:define("BertModel", { is_base = true, tp_plan = PLAN.base })

function BertModel:build(c, add_pooling_layer)
  self.embeddings = Embeddings(c)
  self.encoder = Encoder(c)
  if add_pooling_layer ~= false then self.pooler = Pooler(c) end
end

--- attention_mask [B, T]: 1 for tokens, 0 for padding. token_type_ids [B, T]: 0 for the first text, 1 for the
--- second.
---@param ids accel.Tensor [B, T]
---@param opts? {attention_mask: accel.Tensor?, token_type_ids: accel.Tensor?, position_ids: accel.Tensor?}
---@return accel.Tensor, accel.Tensor?
function BertModel:forward(ids, opts)
  local o = options("bert", opts,
    { attention_mask = options.none, token_type_ids = options.none, position_ids = options.none })
  context.check_ids("bert", ids)
  local shape = ids.shape
  local mask = context.padding("bert", o.attention_mask, shape[1], shape[2])
  local x = self.encoder(self.embeddings(ids, o.token_type_ids, o.position_ids), mask)
  return x, self.pooler and self.pooler(x)
end

--- Classifies texts, or pairs of texts, by the pooled first token.
--- example: accel.models.BertForSequenceClassification(accel.models.tiny.bert)(accel.tensor { { 1, 2 } }).shape --> { 1, 2 }
---@class accel.models.BertForSequenceClassification : accel.models.PreTrainedModel
local Classification = Base:define("BertForSequenceClassification", {
  pipeline_plan = { "embeddings", "encoder.layer.*", "pooler", "classifier" },
})

function Classification:build(c)
  self.bert = BertModel:part(c)
  self.dropout = nn.Dropout(c.classifier_dropout or c.hidden_dropout_prob)
  self.classifier = nn.Linear(c.hidden_size, config.labels(c))
end

--- Logits [B, num_labels]; options of BertModel.
---@param ids accel.Tensor
---@param opts? table
---@return accel.Tensor
function Classification:forward(ids, opts)
  local _, pooled = self.bert(ids, opts)
  return self.classifier(self.dropout(pooled))
end

---@class accel.models.BertLMPredictionHead : accel.nn.Module
local PredictionHead = nn.Module:extend("BertLMPredictionHead")

function PredictionHead:init(c)
  self.transform = Transform(c, c.hidden_size, true)
  self.decoder = nn.Linear(c.hidden_size, c.vocab_size)
  self.bias = nn.Parameter(accel.zeros(c.vocab_size))
end

--- Logits, or with labels the mean cross entropy where these are not -100.
function PredictionHead:forward(x, labels)
  return causal_head.run(self.decoder, self.transform(x), { labels = labels, shifted = true })
end

---@class accel.models.BertOnlyMLMHead : accel.nn.Module
local MLMHead = nn.Module:extend("BertOnlyMLMHead")

function MLMHead:init(c) self.predictions = PredictionHead(c) end

function MLMHead:forward(x, labels) return self.predictions(x, labels) end

---@class accel.models.BertOnlyNSPHead : accel.nn.Module
local NSPHead = nn.Module:extend("BertOnlyNSPHead")

function NSPHead:init(c) self.seq_relationship = nn.Linear(c.hidden_size, 2) end

function NSPHead:forward(pooled) return self.seq_relationship(pooled) end

---@class accel.models.BertPreTrainingHeads : accel.nn.Module
local PreTrainingHeads = nn.Module:extend("BertPreTrainingHeads")

function PreTrainingHeads:init(c)
  self.predictions = PredictionHead(c)
  self.seq_relationship = nn.Linear(c.hidden_size, 2)
end

function PreTrainingHeads:forward(x, pooled, labels) return self.predictions(x, labels), self.seq_relationship(pooled) end

--- Options apart from targets: takes names these with their shapes. A target [B, 1] is one of [B].
---@param ids accel.Tensor [B, T]
---@param opts any
---@param takes table<string, integer> name -> 2: [B, T], 1: [B]
---@return table<string, accel.Tensor> found
---@return any rest
local function targets(ids, opts, takes)
  context.check_ids("bert", ids)
  if type(opts) ~= "table" then return {}, opts end
  local found, rest = {}, {}
  for key, value in accel.pairs(opts) do
    local n = takes[key]
    if not n then
      rest[key] = value
    else
      if not tensors.is_tensor(value) then raise("bert: %s must be a tensor, got %s", key, type(value)) end
      if n == 1 and value.ndim == 2 and value.shape[2] == 1 then value = value:squeeze(2) end
      local want = table.concat(ids.shape, ", ", 1, n)
      if table.concat(value.shape, ", ") ~= want then
        raise("bert: %s %s does not fit ids %s: it must be (%s)", key, tensors.shape_string(value), tensors.shape_string(ids), want)
      end
      found[key] = value
    end
  end
  return found, rest
end

local TIED <const> = {
  ["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight",
  ["cls.predictions.decoder.bias"] = "cls.predictions.bias",
}

--- Predicts masked words: logits [B, T, vocab].
--- example: accel.models.BertForMaskedLM(accel.models.tiny.bert)(accel.tensor { { 1, 2 } }).shape --> { 1, 2, 9 }
---@class accel.models.BertForMaskedLM : accel.models.PreTrainedModel
local MaskedLM = Base:define("BertForMaskedLM", {
  tp_plan = PLAN.with_head, pipeline_plan = { "embeddings", "encoder.layer.*", "cls" }, tied_weights = TIED,
})

function MaskedLM:build(c)
  self.bert = BertModel:part(c, false)
  self.cls = MLMHead(c)
end

--- Logits; with labels [B, T] the mean cross entropy of those that are not -100.
---@param ids accel.Tensor
---@param opts? table options of BertModel, and labels
---@return accel.Tensor
function MaskedLM:forward(ids, opts)
  local given, rest = targets(ids, opts, { labels = 2 })
  local x = self.bert(ids, rest)
  return self.cls(x, given.labels)
end

--- Tells whether a pair's second text follows its first: logits [B, 2], of which the first says that it does.
--- example: accel.models.BertForNextSentencePrediction(accel.models.tiny.bert)(accel.tensor { { 1, 2 } }).shape --> { 1, 2 }
---@class accel.models.BertForNextSentencePrediction : accel.models.PreTrainedModel
local NextSentence = Base:define("BertForNextSentencePrediction", {
  pipeline_plan = { "embeddings", "encoder.layer.*", "pooler", "cls" }, optional_keys = {},
})

function NextSentence:build(c)
  self.bert = BertModel:part(c)
  self.cls = NSPHead(c)
end

--- Logits [B, 2]; with labels [B] (1: the second text is another one) the mean cross entropy of those that are not -100.
---@param ids accel.Tensor
---@param opts? table options of BertModel, and labels
---@return accel.Tensor
function NextSentence:forward(ids, opts)
  local given, rest = targets(ids, opts, { labels = 1 })
  local _, pooled = self.bert(ids, rest)
  local logits = self.cls(pooled)
  return given.labels and accel.cross_entropy(logits, given.labels) or logits
end

--- BERT as it is trained (Devlin et al. 2019): masked words and the next sentence, Megatron-LM's BERT with its binary head.
--- example: local m = accel.models.BertForPreTraining(accel.models.tiny.bert) local words, sentence = m(accel.tensor { { 1, 2 } })
---   return words.shape, sentence.shape --> { 1, 2, 9 }, { 1, 2 }
---@class accel.models.BertForPreTraining : accel.models.PreTrainedModel
local PreTraining = Base:define("BertForPreTraining", {
  tp_plan = PLAN.with_head, pipeline_plan = { "embeddings", "encoder.layer.*", "pooler", "cls" }, tied_weights = TIED, optional_keys = {},
})

function PreTraining:build(c)
  self.bert = BertModel:part(c)
  self.cls = PreTrainingHeads(c)
end

--- Logits of words [B, T, vocab] and of the next sentence [B, 2]. With labels [B, T], next_sentence_label [B] or both the sum of their mean
--- cross entropies, of those that are not -100 each; behind it that of words and that of the sentence, nil where none was asked for.
---@param ids accel.Tensor
---@param opts? table options of BertModel, labels and next_sentence_label
---@return accel.Tensor, accel.Tensor?, accel.Tensor?
function PreTraining:forward(ids, opts)
  local given, rest = targets(ids, opts, { labels = 2, next_sentence_label = 1 })
  local x, pooled = self.bert(ids, rest)
  local words, sentence = self.cls(x, pooled, given.labels)
  local order = given.next_sentence_label
  if not given.labels and not order then return words, sentence end
  order = order and accel.cross_entropy(sentence, order)
  words = given.labels and words
  return words and order and words + order or words or order, words or nil, order
end

return { BertModel = BertModel, BertForSequenceClassification = Classification, BertForMaskedLM = MaskedLM,
  BertForNextSentencePrediction = NextSentence, BertForPreTraining = PreTraining }
