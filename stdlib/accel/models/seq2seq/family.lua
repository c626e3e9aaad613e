--- family { model_type =, prefix =, keys =, describe = }: the classes of an encoder-decoder family like BART, by Transformers' names.
local accel = require "accel"
local PreTrainedModel = require "accel.models.pretrained_model"
local causal_head = require "accel.models.causal_head"
local check = require "accel.util.check"
local checked = require "accel.models.decoder.checked"
local config = require "accel.models.config"
local context = require "accel.models.context"
local decoder_heads = require "accel.models.decoder.heads"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local stack = require "accel.models.seq2seq.stack"
local words = require "accel.models.seq2seq.words"

---@class accel.models.Seq2SeqFamily
---@field model_type string
---@field prefix string
---@field keys table<string, accel.models.Field>
---@field aliases? table<string, string>
---@field describe fun(c: table): accel.models.Seq2Seq
---@field text? string name of the class that writes text; default: prefix .. "ForConditionalGeneration"
---@field head? string field of its head. Default: "lm_head"
---@field sequence? boolean there is a class for classes of texts
---@field wraps? boolean the first decoder token is the last of the labels (mBART)

local OPTIONS <const> = { decoder_input_ids = options.none, attention_mask = options.none, decoder_attention_mask = options.none,
  encoder_outputs = options.none, cache = options.none, logits_to_keep = options.none, labels = options.none }

-- A head whose logits get a fixed vector.
local Biased = {}
Biased.__index = Biased
function Biased:__call(x) return self.head(x) + self.bias:to(x.dtype) end

---@class accel.models.Seq2SeqClassificationHead : accel.nn.Module
local ClassificationHead = nn.Module:extend("Seq2SeqClassificationHead")

function ClassificationHead:init(width, labels, dropout)
  self.dense = nn.Linear(width, width)
  self.out_proj = nn.Linear(width, labels)
  self.dropout = nn.Dropout(dropout)
end

function ClassificationHead:forward(x) return self.out_proj(self.dropout(self.dense(self.dropout(x)):tanh())) end

---@param f accel.models.Seq2SeqFamily
---@return table<string, table>
return function(f)
  local schema = config.schema(f.model_type, f.keys, checked(f), f.aliases)
  local Root = PreTrainedModel:define(f.prefix .. "PreTrainedModel", {
    schema = schema, base_model_prefix = "model", _no_split_modules = { f.prefix .. "EncoderLayer", f.prefix .. "DecoderLayer" },
    ignored_keys = { "%.embed_positions%.weights$", "^model%.encoder%.embed_tokens%.weight$", "^model%.decoder%.embed_tokens%.weight$" },
  })
  local EncoderLayer, DecoderLayer = stack.Layer:extend(f.prefix .. "EncoderLayer"), stack.Layer:extend(f.prefix .. "DecoderLayer")

  function Root:initialize(t, at)
    if at.module.fixed_step then return stack.fill_positions(t, at.module.fixed_step) end
    return PreTrainedModel.initialize(self, t, at)
  end

  function Root:cache_shape()
    local d = f.describe(self.config)
    return d.decoder.layers, d.decoder.heads, d.width // d.decoder.heads
  end
  function Root:context_length() return f.describe(self.config).decoder.positions end
  words.add(Root, f)

  local Base, out = Root:define(f.prefix .. "Model", { is_base = true, outputs = { "last_hidden_state", "encoder_last_hidden_state" } }), {}
  out[f.prefix .. "Model"] = Base

  function Base:build(c)
    local d = f.describe(c)
    if not d.own_embedding then self.shared = nn.Embedding(d.vocab, d.width, { padding_idx = d.pad }) end
    self.encoder = stack.Side(d, d.encoder, EncoderLayer, false)
    self.decoder = stack.Side(d, d.decoder, DecoderLayer, true)
    self.d = d
  end

  --- The encoder's output [B, S, width] for ids [B, S], or for families of audio, for features [B, bins, frames].
  ---@param ids accel.Tensor
  ---@param attention_mask? accel.Tensor
  ---@return accel.Tensor
  function Base:encode(ids, attention_mask, ...)
    check.surplus("encode", ...)
    return stack.encode(self, ids, attention_mask)
  end

  --- Hidden states [B, T, width] of decoder_input_ids [B, T] for the text in ids [B, S], and the encoder's.
  ---@param ids? accel.Tensor
  ---@param opts table decoder_input_ids, attention_mask, decoder_attention_mask, encoder_outputs, cache
  ---@return accel.Tensor, accel.Tensor
  function Base:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local o = options(f.model_type, opts, OPTIONS)
    local memory = o.encoder_outputs or self:encode(ids, o.attention_mask)
    return stack.decode(self, o.decoder_input_ids, memory, o), memory
  end

  local name, head = f.text or f.prefix .. "ForConditionalGeneration", f.head or "lm_head"
  local embedding = f.own_embedding and "model.decoder.embed_tokens.weight" or "model.shared.weight"
  local Text = Root:define(name, { outputs = { "logits" }, hears = f.own_embedding,
    tied_weights = { [head .. ".weight"] = embedding }, optional_keys = { "^final_logits_bias$" } })
  out[name] = Text

  function Text:build(c)
    self.model = Base:part(c)
    local d = self.model.d
    self[head] = nn.Linear(d.width, d.vocab, { bias = false })
    if d.logits_bias then self:register_buffer("final_logits_bias", accel.zeros(1, d.vocab)) end
  end

  --- The encoder's hidden states [B, S, width] of ids [B, S], which decoding takes as `encoder_outputs`.
  ---@param ids accel.Tensor
  ---@param attention_mask? accel.Tensor [B, S]
  ---@return accel.Tensor
  function Text:encode(ids, attention_mask, ...) return self.model:encode(ids, attention_mask, ...) end

  --- Logits [B, T, vocab] of decoder_input_ids [B, T] for the text in ids [B, S]. With labels [B, T] the mean cross entropy over labels
  --- other than -100. decoder_input_ids default to the labels shifted right. encoder_outputs (of encode) replaces ids.
  ---@param ids? accel.Tensor
  ---@param opts table
  ---@return accel.Tensor
  function Text:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local o = options(f.model_type, opts, OPTIONS)
    if o.labels and not o.decoder_input_ids then o.decoder_input_ids = self:shift_right(o.labels) end
    local memory = o.encoder_outputs or self:encode(ids, o.attention_mask)
    local x = stack.decode(self.model, o.decoder_input_ids, memory, o)
    local used = self[head]
    if self.final_logits_bias then used = setmetatable({ head = used, bias = self.final_logits_bias }, Biased) end
    local y = causal_head.run(used, x, { labels = o.labels, shifted = true, logits_to_keep = o.logits_to_keep })
    return means.from(self, y, o.encoder_outputs, o.cache)
  end

  --- The counts of the means that the loss of forward is the sum of: its labels.
  ---@param opts? table options of forward
  ---@return accel.Tensor[]?
  function Text:_loss_counts(_, opts) -- luacheck: no self
    return { causal_head.count { labels = type(opts) == "table" and opts.labels or nil, shifted = true } }
  end

  if f.sequence then
    local Sequence = Root:define(f.prefix .. "ForSequenceClassification", {})
    out[f.prefix .. "ForSequenceClassification"] = Sequence

    function Sequence:build(c)
      self.model = Base:part(c)
      self.classification_head = ClassificationHead(self.model.d.width, config.labels(c), c.classifier_dropout)
    end

    --- The encoder's hidden states [B, S, width] of ids [B, S], which decoding takes as `encoder_outputs`.
    ---@param ids accel.Tensor
    ---@param attention_mask? accel.Tensor [B, S]
    ---@return accel.Tensor
    function Sequence:encode(ids, attention_mask, ...) return self.model:encode(ids, attention_mask, ...) end

    --- Scores [B, num_labels] by the decoder's state at the last end token of each row, or with labels their loss.
    ---@param ids accel.Tensor [B, T]
    ---@param opts? table labels, and options of the base model
    ---@return accel.Tensor
    function Sequence:forward(ids, opts, ...)
      check.surplus("forward", ...)
      local own, rest = decoder_heads.taken(opts, "labels")
      rest = rest or {}
      context.check_ids(f.model_type, ids)
      if rest.cache then raise("%s: a classifier reads whole texts; leave cache out", f.model_type) end
      if not rest.decoder_input_ids then rest.decoder_input_ids = self:shift_right(ids) end
      local x = self.model(ids, rest)
      local logits = self.classification_head(words.at_last(x, ids, self.config.eos_token_id, f.model_type))
      return own.labels and decoder_heads.classification_loss(self.config, logits, own.labels) or logits
    end
  end
  if out[name] == nil then raise("%s: no class", name) end
  return out
end
