--- BERT in Hugging Face's names: an encoder of post-norm layers over word, position and segment embeddings.
---
---   local model = models.BertForSequenceClassification.from_pretrained(dir, { config = { num_labels = 3 } })
---   local logits = model(ids, { attention_mask = mask, token_type_ids = segments })   -- [B, T] -> [B, 3]
local check = require "accel.util.check"
local PreTrainedModel = require "accel.models.pretrained_model"
local SelfAttention = require "accel.models.self_attention"
local accel = require "accel"
local add_norm = require "accel.nn.add_norm"
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local config = require "accel.models.config"
local context = require "accel.models.context"
local encoder_heads = require "accel.models.encoder.heads"
local heads = require "accel.models.decoder.heads"
local means = require "accel.autograd.means"
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
  pad_token_id = config.nullable(config.token(0)), classifier_dropout = config.rate(), is_decoder = config.flag(false),
  add_cross_attention = config.fixed(false), tie_word_embeddings = config.flag(true),
  position_embedding_type = config.only(function(v) return v == "absolute" end, "absolute"),
}, function(c)
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

function Embeddings:forward(ids, token_type_ids, position_ids, past)
  local T = ids.shape[2]
  past = past or 0
  if not position_ids and past + T > self.limit then raise("bert: %d tokens exceed the %d positions", past + T, self.limit) end
  local positions = position_ids or context.positions(T, ids.device) or accel.arange(past, past + T, { device = ids.device })
  local segments = token_type_ids or accel.zeros(1, T, { dtype = "i64", device = ids.device })
  local x = self.word_embeddings(ids) + self.token_type_embeddings(segments) + self.position_embeddings(positions)
  return self.dropout(self.LayerNorm(x))
end

--- Projects, applies dropout, adds the residual, normalises.
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

function Attention:forward(x, mask, ctx, layer) return self.output(self.self(x, mask, ctx, layer), x) end

--- A linear layer and its activation. With `norm`, a layer norm after it.
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

function Layer:forward(x, mask, ctx, layer)
  x = self.attention(x, mask, ctx, layer)
  return self.output(self.intermediate(x), x)
end

---@class accel.models.BertEncoder : accel.nn.Module
local Encoder = nn.Module:extend("BertEncoder")
Encoder.gradient_checkpointing = false

function Encoder:init(c)
  self.layer = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layer:append(Layer(c)) end
end

function Encoder:forward(x, mask, ctx)
  for i, layer in ipairs(self.layer) do x = run_layer(self, layer, ctx and ctx.cache, x, mask, ctx, i) end
  if ctx and ctx.cache then ctx.cache:advance(x.shape[2]) end
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

--- The encoder alone: ids [B, T] -> hidden states [B, T, hidden_size], and the pooled first token, [B, hidden_size]
--- (nil with add_pooling_layer = false).
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
---@param opts? {attention_mask: accel.Tensor?, token_type_ids: accel.Tensor?, position_ids: accel.Tensor?, cache: accel.models.KVCache?}
---@return accel.Tensor, accel.Tensor?
function BertModel:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local o = options("bert", opts,
    { attention_mask = options.none, token_type_ids = options.none, position_ids = options.none, cache = options.none })
  context.check_ids("bert", ids)
  local shape, ctx, mask = ids.shape, nil, nil
  if self.config.is_decoder then
    ctx = context.decoder("bert", ids, { cache = o.cache, attention_mask = o.attention_mask })
    mask = ctx.mask
  else
    if o.cache then raise "bert: only a decoder (is_decoder = true) has a cache" end
    mask = context.padding("bert", o.attention_mask, shape[1], shape[2])
  end
  local x = self.encoder(self.embeddings(ids, o.token_type_ids, o.position_ids, ctx and ctx.past), mask, ctx)
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

--- Logits [B, num_labels], or with labels their loss. Options of BertModel. problem_type of the configuration chooses the loss. Default:
--- mean squared error for one label, cross entropy for classes by number, binary cross entropy for a number per class.
---@param ids accel.Tensor
---@param opts? table labels, and options of BertModel
---@return accel.Tensor
function Classification:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local own, rest = heads.taken(opts, "labels")
  local _, pooled = self.bert(ids, rest)
  local logits = self.classifier(self.dropout(pooled))
  return own.labels and heads.classification_loss(self.config, logits, own.labels) or logits
end

---@class accel.models.BertLMPredictionHead : accel.nn.Module
local PredictionHead = nn.Module:extend("BertLMPredictionHead")

function PredictionHead:init(c)
  self.transform = Transform(c, c.hidden_size, true)
  self.decoder = nn.Linear(c.hidden_size, c.vocab_size)
  self.bias = nn.Parameter(accel.zeros(c.vocab_size))
end

--- Logits, or with labels the mean cross entropy over labels other than -100.
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

--- The mean cross entropy of sentences whose label is not -100.
local function sentence_loss(logits, labels) return means.over(accel.cross_entropy(logits, labels), labels) end

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

--- Logits. With labels [B, T] the mean cross entropy over labels other than -100.
---@param ids accel.Tensor
---@param opts? table options of BertModel, and labels
---@return accel.Tensor
function MaskedLM:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local given, rest = targets(ids, opts, { labels = 2 })
  local x = self.bert(ids, rest)
  return means.from(self, self.cls(x, given.labels), rest)
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param ids accel.Tensor token ids
---@param opts? table options of forward
---@return accel.Tensor[]?
function MaskedLM:_loss_counts(ids, opts) -- luacheck: no self
  return { causal_head.count { labels = targets(ids, opts, { labels = 2 }).labels, shifted = true } }
end

--- Predicts whether a pair's second text follows its first: logits [B, 2], the first one for yes.
--- example: accel.models.BertForNextSentencePrediction(accel.models.tiny.bert)(accel.tensor { { 1, 2 } }).shape --> { 1, 2 }
---@class accel.models.BertForNextSentencePrediction : accel.models.PreTrainedModel
local NextSentence = Base:define("BertForNextSentencePrediction", {
  pipeline_plan = { "embeddings", "encoder.layer.*", "pooler", "cls" }, optional_keys = {},
})

function NextSentence:build(c)
  self.bert = BertModel:part(c)
  self.cls = NSPHead(c)
end

--- Logits [B, 2]. With labels [B] (1: the second text is a different one) the mean cross entropy over labels other than
--- -100.
---@param ids accel.Tensor
---@param opts? table options of BertModel, and labels
---@return accel.Tensor
function NextSentence:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local given, rest = targets(ids, opts, { labels = 1 })
  local _, pooled = self.bert(ids, rest)
  local logits = self.cls(pooled)
  return given.labels and means.from(self, sentence_loss(logits, given.labels), rest) or logits
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param ids accel.Tensor token ids
---@param opts? table options of forward
---@return accel.Tensor[]?
function NextSentence:_loss_counts(ids, opts) -- luacheck: no self
  local given = targets(ids, opts, { labels = 1 })
  return { given.labels and means.labels(given.labels) }
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

--- Logits of words [B, T, vocab] and of the next sentence [B, 2]. With labels [B, T], next_sentence_label [B] or both, the first result is
--- the sum of their mean cross entropies, each over labels other than -100, followed by the words' and the sentence's, nil for one without
--- labels.
---@param ids accel.Tensor
---@param opts? table options of BertModel, labels and next_sentence_label
---@return accel.Tensor, accel.Tensor?, accel.Tensor?
function PreTraining:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local given, rest = targets(ids, opts, { labels = 2, next_sentence_label = 1 })
  local x, pooled = self.bert(ids, rest)
  local words, sentence = self.cls(x, pooled, given.labels)
  local order = given.next_sentence_label
  if not given.labels and not order then return words, sentence end
  order = order and sentence_loss(sentence, order)
  words = given.labels and words
  if not words or not order then return means.from(self, words or order, rest), words or nil, order end
  return means.from(self, means.mark(words + order, { means.of(words)[1], means.of(order)[1] }), rest), words, order
end

--- The counts of the means that the loss of forward is the sum of: labels of words, then of sentences.
---@param ids accel.Tensor token ids
---@param opts? table options of forward
---@return accel.Tensor[]?
function PreTraining:_loss_counts(ids, opts) -- luacheck: no self
  local given, counts = targets(ids, opts, { labels = 2, next_sentence_label = 1 }), {}
  counts[1] = causal_head.count { labels = given.labels, shifted = true }
  counts[#counts + 1] = given.next_sentence_label and means.labels(given.next_sentence_label)
  return counts
end

-- ---- further heads (encoder/heads.lua) ----
local HEAD <const> = { prefix = "bert", Base = BertModel, width = function(c) return c.hidden_size end, vocab = function(c) return c.vocab_size end }
local function dropout(c) return c.classifier_dropout or c.hidden_dropout_prob end

--- Scores for classes of each token.
--- example: accel.models.BertForTokenClassification(accel.models.tiny.bert)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 2 }
---@class accel.models.BertForTokenClassification : accel.models.PreTrainedModel
local Token = Base:define("BertForTokenClassification", {})
encoder_heads.token(Token, HEAD, { dropout = dropout })

--- Scores for the first and last tokens of an answer.
--- example: accel.models.BertForQuestionAnswering(accel.models.tiny.bert)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3 }
---@class accel.models.BertForQuestionAnswering : accel.models.PreTrainedModel
local Question = Base:define("BertForQuestionAnswering", {})
encoder_heads.question(Question, HEAD, {})

--- Scores for one of several texts.
--- example: accel.models.BertForMultipleChoice(accel.models.tiny.bert)(accel.tensor { { { 1, 2 }, { 3, 4 } } }).shape --> { 1, 2 }
---@class accel.models.BertForMultipleChoice : accel.models.PreTrainedModel
local Choice = Base:define("BertForMultipleChoice", { optional_keys = {} })
encoder_heads.choice(Choice, HEAD, { dropout = dropout })

--- BERT as a causal language model: is_decoder of the configuration must be true.
--- example: local m = accel.models.BertLMHeadModel(accel.models.tiny.bert)
---   return m(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 9 }
---@class accel.models.BertLMHeadModel : accel.models.PreTrainedModel
local Causal = Base:define("BertLMHeadModel", { tied_weights = TIED })
encoder_heads.words(Causal, HEAD, {
  dense = "cls.predictions.transform.dense", norm = "cls.predictions.transform.LayerNorm", decoder = "cls.predictions.decoder",
  bias = "cls.predictions.bias", act = function(c) return c.hidden_act end, eps = function(c) return c.layer_norm_eps end, causal = true,
})

function Causal:cache_shape()
  local c = self.config
  return c.num_hidden_layers, c.num_attention_heads, c.hidden_size // c.num_attention_heads
end

return { BertForTokenClassification = Token, BertForQuestionAnswering = Question, BertForMultipleChoice = Choice, BertLMHeadModel = Causal,
  BertModel = BertModel, BertForSequenceClassification = Classification, BertForMaskedLM = MaskedLM,
  BertForNextSentencePrediction = NextSentence, BertForPreTraining = PreTraining }
