--- ModernBERT: an encoder in the form of a decoder, with rotary positions and windows to both sides in most layers.
--- example: #accel.models.ModernBertModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 8
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local config = require "accel.models.config"
local decoder_heads = require "accel.models.decoder.heads"
local describe = require "accel.models.decoder.describe"
local encoder_heads = require "accel.models.encoder.heads"
local means = require "accel.autograd.means"
local nn = require "accel.nn"

local function norm_of(c) return nn.LayerNorm(c.hidden_size, { eps = c.norm_eps, bias = c.norm_bias }) end

--- Dense layer, activation and norm in front of a classifier.
---@class accel.models.ModernBertPredictionHead : accel.nn.Module
local Prediction = nn.Module:extend("ModernBertPredictionHead")

function Prediction:init(c)
  self.dense = nn.Linear(c.hidden_size, c.hidden_size, { bias = c.classifier_bias })
  self.norm, self.act = norm_of(c), activation.find(c.classifier_activation)
end

function Prediction:forward(x) return self.norm(self.act(self.dense(x))) end

--- Two rotary sets, by kind of layer. Old files have a base for each.
local function rotaries(c)
  local sets, given = {}, c.rope_parameters or {}
  for key in next, given do
    if key ~= "full_attention" and key ~= "sliding_attention" then
      describe.fail(("rope_parameters must have the keys full_attention and sliding_attention, found %s"):format(check.shown(key)))
    end
  end
  for word, theta in next, { full_attention = c.global_rope_theta or 160000.0, sliding_attention = c.local_rope_theta or 10000.0 } do
    local rope = type(given[word]) == "table" and given[word] or { rope_theta = theta }
    sets[word] = describe.rotary_set(c, { rope = rope, theta = theta, head_dim = c.hidden_size // c.num_attention_heads })
  end
  return sets
end

--- Adds a class whose forward pools hidden states and classifies.
local function classifier(cls, Base, pool, loss)
  function cls:build(c)
    self.model = Base:part(c)
    self.head = Prediction(c)
    self.drop = nn.Dropout(c.classifier_dropout)
    self.classifier = nn.Linear(c.hidden_size, config.labels(c))
  end

  --- Scores, or with labels their loss.
  ---@param ids accel.Tensor [B, T]
  ---@param opts? table labels, attention_mask, position_ids
  ---@return accel.Tensor
  function cls:forward(ids, opts, ...)
    check.surplus("forward", ...)
    local own, rest = decoder_heads.taken(opts, "labels")
    local logits = self.classifier(self.drop(self.head(pool(self, self.model(ids, rest), rest and rest.attention_mask))))
    return own.labels and loss(self, logits, own.labels) or logits
  end
end

return require "accel.models.decoder.family" {
  model_type = "modernbert", prefix = "ModernBert", layer = "ModernBertEncoderLayer", heads = {},
  order = { ["layers.*"] = "attn_norm attn mlp_norm mlp" },
  weights = { embed = "embeddings.tok_embeddings", embed_norm = "embeddings.norm", norm = "final_norm",
    attention = "attn", qkv = "Wqkv", o = "Wo",
    gate_up = "Wi", down = "Wo" },
  keys = {
    vocab_size = config.size(50368), hidden_size = config.size(768), intermediate_size = config.size(1152),
    num_hidden_layers = config.count(22), num_attention_heads = config.count(12),
    hidden_activation = config.activation "gelu", max_position_embeddings = config.size(8192),
    initializer_range = config.number(0.02), initializer_cutoff_factor = config.unused(),
    norm_eps = config.number(1e-5), norm_bias = config.flag(false), layer_types = config.table(),
    global_attn_every_n_layers = config.count(3), local_attention = config.size(128),
    rope_parameters = config.table(), global_rope_theta = config.number(nil, 1),
    local_rope_theta = config.nullable(config.number(nil, 1)), attention_bias = config.flag(false),
    attention_dropout = config.rate(0.0), embedding_dropout = config.rate(0.0), mlp_bias = config.flag(false),
    mlp_dropout = config.rate(0.0), decoder_bias = config.flag(true),
    classifier_pooling = config.word("cls", { "cls", "mean" }), classifier_dropout = config.rate(0.0),
    classifier_bias = config.flag(false), classifier_activation = config.activation "gelu",
    deterministic_flash_attn = config.unused(), sparse_prediction = config.unused(),
    sparse_pred_ignore_index = config.unused(), reference_compile = config.unused(),
    repad_logits_with_grad = config.unused(), tie_word_embeddings = config.flag(true),
    cls_token_id = config.unused(), sep_token_id = config.unused(),
    pad_token_id = config.in_files(config.token(), 50283),
    bos_token_id = config.in_files(config.token(), 50281),
    eos_token_id = config.in_files(config.tokens(), 50282), position_embedding_type = config.unused(),
  },
  describe = function(c)
    if c.hidden_size % c.num_attention_heads ~= 0 then
      describe.fail(("hidden_size %d is not a multiple of num_attention_heads %d"):format(c.hidden_size, c.num_attention_heads))
    end
    local kinds = describe.windows(c, c.num_hidden_layers, c.local_attention, {
      rule = function(i) return (i - 1) % c.global_attn_every_n_layers ~= 0 and "sliding_attention" or "full_attention" end,
      rope = function(word) return word end })
    kinds[1].first_norm = false
    return {
      layers = c.num_hidden_layers, width = c.hidden_size, vocab = c.vocab_size, padding_idx = c.pad_token_id, bidirectional = true,
      embed_norm = true,      embed_dropout = c.embedding_dropout, kinds = kinds, rotary = { sets = rotaries(c) }, logits = {},
      norm = { kind = c.norm_bias and "layer" or "layer_weight", eps = c.norm_eps },
      attention = { heads = c.num_attention_heads, kv_heads = c.num_attention_heads, head_dim = c.hidden_size // c.num_attention_heads,
        bias = c.attention_bias, o_bias = c.attention_bias, fused = "rows", dropout = c.attention_dropout,
          o_dropout = c.attention_dropout },
      mlp = { width = c.intermediate_size, act = c.hidden_activation, gated = true, fused = true, bias = c.mlp_bias,
        dropout = c.mlp_dropout },
      layer_norms = { before_attention = "attn_norm", before_mlp = "mlp_norm" },
    }
  end,
  more = function(Root, Base, out, head)
    out.ModernBertForMaskedLM = Root:define("ModernBertForMaskedLM", {
      tied_weights = { ["decoder.weight"] = "model.embeddings.tok_embeddings.weight" } })
    encoder_heads.words(out.ModernBertForMaskedLM, head, {
      dense = "head.dense", norm = "head.norm", decoder = "decoder", act = function(c) return c.classifier_activation end,
      eps = function(c) return c.norm_eps end, no_dense_bias = function(c) return not c.classifier_bias end,
      no_norm_bias = function(c) return not c.norm_bias end, no_bias = function(c) return not c.decoder_bias end })
    out.ModernBertForSequenceClassification = Root:define("ModernBertForSequenceClassification", {})
    classifier(out.ModernBertForSequenceClassification, Base, function(self, x, mask)
      if self.config.classifier_pooling == "cls" then return x:select(2, 1) end
      if not mask then return x:mean(2) end
      mask = mask:ne(0):to(x.dtype)
      return (x * mask:unsqueeze(3)):sum(2) / mask:sum(2, true)
    end, function(self, logits, labels) return decoder_heads.classification_loss(self.config, logits, labels) end)
    out.ModernBertForTokenClassification = Root:define("ModernBertForTokenClassification", {})
    classifier(out.ModernBertForTokenClassification, Base, function(_, x) return x end, function(_, logits, labels)
      return means.over(accel.cross_entropy(logits:reshape(-1, logits.shape[3]), labels:reshape(-1)), labels)
    end)
  end,
}
