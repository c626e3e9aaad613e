--- T5 in Hugging Face's names, original (relu, tied head) and 1.1 (gated, untied head).
---
---   local model = models.T5ForConditionalGeneration.from_pretrained(dir)
---   local logits = model(ids, { attention_mask = mask, decoder_input_ids = model:shift_right(labels) })
---   local new = model:generate(ids, { max_new_tokens = 20 })
local PreTrainedModel = require "accel.models.pretrained_model"
local Stack = require "accel.models.t5_stack".Stack
local activation = require "accel.models.activation"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local config = require "accel.models.config"
local context = require "accel.models.context"
local decoder_heads = require "accel.models.decoder.heads"
local init = require "accel.nn.initialization"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local options = require "accel.util.options"
local plans = require "accel.models.plans"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local words = require "accel.models.seq2seq.words"

local FIELDS <const> = {
  vocab_size = config.size(32128), d_model = config.size(512), d_kv = config.size(64), d_ff = config.size(2048),
  num_layers = config.count(6), num_decoder_layers = config.count(), num_heads = config.count(8),
  relative_attention_num_buckets = config.count(32), relative_attention_max_distance = config.size(128),
  dropout_rate = config.rate(0.1), layer_norm_epsilon = config.number(1e-6), initializer_factor = config.number(1.0),
  feed_forward_proj = config.word "relu", dense_act_fn = config.activation(), is_gated_act = config.flag(),
  pad_token_id = config.nullable(config.token(0)), eos_token_id = config.nullable(config.tokens(1)), decoder_start_token_id = config.token(),
  tie_word_embeddings = config.nullable(config.flag(true)), scale_decoder_outputs = config.flag(),
  is_encoder_decoder = config.flag(true), is_decoder = config.unused(), classifier_dropout = config.rate(0.0),
  tie_encoder_decoder = config.fixed(false),
}

--- Completes a configuration. Returns the error in it.
local function complete(c)
  local gated, act = c.feed_forward_proj:match "^(gated%-)(.+)$"
  act = act or c.feed_forward_proj
  if c.feed_forward_proj == "gated-gelu" then act = "gelu_new" end
  if not activation.find(act) then
    return ("feed_forward_proj '%s' names no activation function"):format(c.feed_forward_proj), "unsupported"
  end
  c.dense_act_fn = c.dense_act_fn or act
  if c.is_gated_act == nil then c.is_gated_act = gated ~= nil end
  c.num_decoder_layers = c.num_decoder_layers or c.num_layers
  c.decoder_start_token_id = c.decoder_start_token_id or c.pad_token_id
  if c.tie_word_embeddings == nil then c.tie_word_embeddings = true end -- null, as in Transformers
  if c.scale_decoder_outputs == nil then c.scale_decoder_outputs = c.tie_word_embeddings end
  -- in both directions there is one exact and one logarithmic half for each
  if c.relative_attention_num_buckets < 4 then
    return ("relative_attention_num_buckets must be at least 4, got %d"):format(c.relative_attention_num_buckets)
  end
  if c.relative_attention_max_distance <= c.relative_attention_num_buckets // 2 then
    return ("relative_attention_max_distance must exceed half of relative_attention_num_buckets, got %d"):format(
      c.relative_attention_max_distance)
  end
end

local ALIASES <const> = { hidden_size = "d_model", num_attention_heads = "num_heads", num_hidden_layers = "num_layers", head_dim = "d_kv" }
local schema = config.schema("t5", FIELDS, complete, ALIASES)

--- Of the encoder or the decoder. Which of wi, wi_0 and wi_1 there are depends on the configuration.
local function stack_plan(stack)
  local plan, at = { [stack] = "sequence_gather" }, stack .. ".block.*.layer.*."
  local function put(name, style) plan[at .. name] = style end
  put("SelfAttention", "attention")
  for _, name in ipairs { "q", "k", "v" } do put("SelfAttention." .. name, "colwise") end
  put("SelfAttention.o", "rowwise")
  plan[stack .. ".block.0.layer.0.SelfAttention.relative_attention_bias"] = "embedding_colwise"
  for _, name in ipairs { "wi", "wi_0", "wi_1" } do put("DenseReluDense." .. name, { "colwise", optional = true }) end
  put("DenseReluDense.wo", "rowwise")
  put("DenseReluDense.dropout", "colwise")
  put("layer_norm", "sequence_parallel")
  put("dropout", "sequence_parallel")
  plan[stack .. ".final_layer_norm"], plan[stack .. ".dropout"] = "sequence_parallel", "sequence_parallel"
  return plan
end

local ENCODER_PLAN <const> = plans.merge(stack_plan "encoder", { shared = "embedding_rowwise" })
local PLAN <const> = plans.merge(ENCODER_PLAN, stack_plan "decoder", {
  ["decoder.block.*.layer.1.EncDecAttention"] = "attention",
  ["decoder.block.*.layer.1.EncDecAttention.q"] = "colwise",
  ["decoder.block.*.layer.1.EncDecAttention.k"] = { "colwise", input = "replicated" }, -- the encoder's output is gathered
  ["decoder.block.*.layer.1.EncDecAttention.v"] = { "colwise", input = "replicated" },
  ["decoder.block.*.layer.1.EncDecAttention.o"] = "rowwise",
  lm_head = { "colwise_rep", input = "replicated" },
})

local Base = PreTrainedModel:define("T5PreTrainedModel", {
  tp_divides = { "num_heads" }, pipeline_plan = { "shared", "encoder.block.*", "encoder.final_layer_norm" },
  schema = schema, _no_split_modules = { "T5Block" }, ignored_keys = { "EncDecAttention%.relative_attention_bias%.weight$" },
})

--- Older files hold the shared embedding under the stacks' names as well.
function Base:rename(name)
  if name == "encoder.embed_tokens.weight" or name == "decoder.embed_tokens.weight" then return "shared.weight" end
  return name
end

-- Standard deviations of matrices by the name of their module, for initializer_factor 1.
local deviations = {
  q = function(c) return (c.d_model * c.d_kv) ^ -0.5 end, k = function(c) return c.d_model ^ -0.5 end,
  v = function(c) return c.d_model ^ -0.5 end, o = function(c) return (c.num_heads * c.d_kv) ^ -0.5 end,
  relative_attention_bias = function(c) return c.d_model ^ -0.5 end,
  wi = function(c) return c.d_model ^ -0.5 end, wi_0 = function(c) return c.d_model ^ -0.5 end,
  wi_1 = function(c) return c.d_model ^ -0.5 end, wo = function(c) return c.d_ff ^ -0.5 end,
  shared = function() return 1.0 end, lm_head = function() return 1.0 end,
}

--- Every matrix has a different deviation. Norms start at the factor.
function Base:initialize(t, at)
  local c = self.config
  local deviation = deviations[at.name:match "([^.]*)%.weight$"]
  if deviation then
    init.normal_(t, 0, c.initializer_factor * deviation(c))
  else
    init.constant_(t, c.initializer_factor)
  end
end

--- The encoder alone: ids [B, T] -> hidden states [B, T, d_model].
--- example: accel.models.T5EncoderModel(accel.models.tiny.t5)(accel.tensor { { 1, 2, 3 } }).shape --> { 1, 3, 8 }
---@class accel.models.T5EncoderModel : accel.models.PreTrainedModel
local EncoderModel = Base:define("T5EncoderModel", { tp_plan = ENCODER_PLAN, ignored_keys = { "^decoder%.", "^lm_head%." } })

function EncoderModel:build(c)
  self.shared = nn.Embedding(c.vocab_size, c.d_model)
  self.encoder = Stack(c, c.num_layers, false)
end

---@param ids accel.Tensor [B, T]
---@param opts? {attention_mask: accel.Tensor?}
---@return accel.Tensor
function EncoderModel:forward(ids, opts)
  local o = options("t5", opts, { attention_mask = options.none })
  context.check_ids("t5", ids, "ids")
  return self.encoder(self.shared(ids), { attention_mask = o.attention_mask, length = ids.shape[2] })
end

---@class accel.models.T5Options
---@field decoder_input_ids accel.Tensor
---@field attention_mask? accel.Tensor
---@field decoder_attention_mask? accel.Tensor
---@field encoder_outputs? accel.Tensor
---@field cache? accel.models.KVCache
---@field logits_to_keep? integer only the last positions' logits
---@field labels? accel.Tensor [B, T]: the loss in the place of logits

--- The whole model with its language-model head.
--- example: accel.models.T5ForConditionalGeneration(accel.models.tiny.t5):encode(accel.tensor { { 3 } }).shape --> { 1, 1, 8 }
---@class accel.models.T5ForConditionalGeneration : accel.models.PreTrainedModel
local T5 = Base:define("T5ForConditionalGeneration", { tp_plan = PLAN,
  pipeline_plan = { "shared", "encoder.block.*", "encoder.final_layer_norm", { "shared", next = true }, "decoder.block.*",
    "decoder.final_layer_norm", "lm_head" },
  tied_weights = { ["lm_head.weight"] = "shared.weight" } })

function T5:build(c)
  self.shared = nn.Embedding(c.vocab_size, c.d_model)
  self.encoder = Stack(c, c.num_layers, false)
  self.decoder = Stack(c, c.num_decoder_layers, true)
  self.lm_head = nn.Linear(c.d_model, c.vocab_size, { bias = false })
end

--- The encoder's output [B, S, d_model] for ids [B, S].
---@param ids accel.Tensor
---@param attention_mask? accel.Tensor [B, S]
---@return accel.Tensor
function T5:encode(ids, attention_mask, ...)
  check.surplus("t5:encode", ...)
  context.check_ids("t5", ids, "ids")
  return self.encoder(self.shared(ids), { attention_mask = attention_mask, length = ids.shape[2] })
end

--- Logits [B, T, vocab] of decoder_input_ids [B, T], the tokens before each predicted one, for the text in ids [B, S]. attention_mask
--- [B, S] belongs to ids, decoder_attention_mask [B, T] to decoder_input_ids. encoder_outputs (of `encode`) replaces a run of the
--- encoder. ids may then be nil. With labels [B, T] the mean cross entropy over labels other than -100. decoder_input_ids default to
--- the labels shifted right.
---@param ids? accel.Tensor
---@param opts accel.models.T5Options
---@return accel.Tensor
function T5:forward(ids, opts, ...)
  local o = options("t5", opts, {
    decoder_input_ids = options.none, attention_mask = options.none, decoder_attention_mask = options.none,
    encoder_outputs = options.none, cache = options.none, logits_to_keep = options.none,
    labels = options.none,
  }, ...)
  if o.labels and not o.decoder_input_ids then o.decoder_input_ids = self:shift_right(o.labels) end
  context.check_ids("t5", o.decoder_input_ids, "decoder_input_ids")
  local memory = o.encoder_outputs or self:encode(ids, o.attention_mask)
  local x = self.decoder(self.shared(o.decoder_input_ids), {
    attention_mask = o.decoder_attention_mask, cache = o.cache, memory = memory, memory_mask = o.attention_mask,
    length = o.decoder_input_ids.shape[2],
  })
  local c = self.config
  if o.labels and (not tensors.is_tensor(o.labels) or tensors.shape_string(o.labels) ~= tensors.shape_string(o.decoder_input_ids)) then
    raise("t5: labels %s do not fit decoder_input_ids %s", tensors.is_tensor(o.labels) and tensors.shape_string(o.labels)
      or check.shown(o.labels), tensors.shape_string(o.decoder_input_ids))
  elseif o.labels and o.logits_to_keep ~= nil then
    raise "t5: labels need the logits of every position, logits_to_keep leaves some out"
  end
  if c.scale_decoder_outputs then x = x * c.d_model ^ -0.5 end
  local y = causal_head.run(self.lm_head, x, { labels = o.labels, shifted = true, logits_to_keep = o.logits_to_keep })
  return means.from(self, y, o.encoder_outputs, o.cache)
end

--- The counts of the means that the loss of forward is the sum of: its labels.
---@param opts? table options of forward
---@return accel.Tensor[]?
function T5:_loss_counts(_, opts) -- luacheck: no self
  return { causal_head.count { labels = type(opts) == "table" and opts.labels or nil, shifted = true } }
end

--- Distances have no end.
function T5:context_length() return math.huge end

function T5:cache_shape()
  local c = self.config
  return c.num_decoder_layers, c.num_heads, c.d_kv
end

words.add(T5, { model_type = "t5" })

--- Encoder and decoder without a head: hidden states of decoder_input_ids [B, T, d_model], and the encoder's.
--- example: local m = accel.models.T5Model(accel.models.tiny.t5)
---   return m(accel.tensor { { 3 } }, { decoder_input_ids = accel.tensor { { 0, 1 } } }).shape --> { 1, 2, 8 }
---@class accel.models.T5Model : accel.models.PreTrainedModel
local Model = Base:define("T5Model", { outputs = { "last_hidden_state", "encoder_last_hidden_state" } })

function Model:build(c)
  self.shared = nn.Embedding(c.vocab_size, c.d_model)
  self.encoder = Stack(c, c.num_layers, false)
  self.decoder = Stack(c, c.num_decoder_layers, true)
end

Model.encode = T5.encode

---@param ids? accel.Tensor
---@param opts accel.models.T5Options
---@return accel.Tensor, accel.Tensor
function Model:forward(ids, opts, ...)
  local o = options("t5", opts, { decoder_input_ids = options.none, attention_mask = options.none, decoder_attention_mask = options.none,
    encoder_outputs = options.none, cache = options.none }, ...)
  context.check_ids("t5", o.decoder_input_ids, "decoder_input_ids")
  local memory = o.encoder_outputs or self:encode(ids, o.attention_mask)
  return self.decoder(self.shared(o.decoder_input_ids), { attention_mask = o.decoder_attention_mask, cache = o.cache, memory = memory,
    memory_mask = o.attention_mask, length = o.decoder_input_ids.shape[2] }), memory
end

---@class accel.models.T5ClassificationHead : accel.nn.Module
local Head = nn.Module:extend("T5ClassificationHead")

function Head:init(c)
  self.dense = nn.Linear(c.d_model, c.d_model)
  self.dropout = nn.Dropout(c.classifier_dropout)
  self.out_proj = nn.Linear(c.d_model, config.labels(c))
end

function Head:forward(x) return self.out_proj(self.dropout(self.dense(self.dropout(x)):tanh())) end

--- Classes of a text by the decoder's state at its last end token. The decoder reads the text shifted right.
--- example: accel.models.T5ForSequenceClassification(accel.models.tiny.t5)(accel.tensor { { 3, 1 } }).shape --> { 1, 2 }
---@class accel.models.T5ForSequenceClassification : accel.models.PreTrainedModel
local Sequence = Base:define("T5ForSequenceClassification", { base_model_prefix = "transformer", outputs = { "logits" } })

function Sequence:build(c)
  self.transformer = Model:part(c)
  self.classification_head = Head(c)
end

--- The encoder's hidden states [B, S, width] of ids [B, S], which decoding takes as `encoder_outputs`.
---@param ids accel.Tensor
---@param attention_mask? accel.Tensor [B, S]
---@return accel.Tensor
function Sequence:encode(ids, attention_mask, ...) return self.transformer:encode(ids, attention_mask, ...) end
Sequence.shift_right = T5.shift_right

--- Scores [B, num_labels], or with labels their loss.
---@param ids accel.Tensor [B, T]
---@param opts? table labels, and options of T5Model
---@return accel.Tensor
function Sequence:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local own, rest = decoder_heads.taken(opts, "labels")
  rest = rest or {}
  context.check_ids("t5", ids)
  if rest.cache then raise "t5: a classifier reads whole texts; leave cache out" end
  if not rest.decoder_input_ids then rest.decoder_input_ids = self:shift_right(ids) end
  local logits = self.classification_head(words.at_last(self.transformer(ids, rest), ids, self.config.eos_token_id, "t5"))
  return own.labels and decoder_heads.classification_loss(self.config, logits, own.labels) or logits
end

return { T5ForConditionalGeneration = T5, T5EncoderModel = EncoderModel, T5Model = Model, T5ForSequenceClassification = Sequence,
  fields = FIELDS, complete = complete, aliases = ALIASES }
