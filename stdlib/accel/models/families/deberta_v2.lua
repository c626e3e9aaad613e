--- DeBERTa v2 and v3: attention to contents and to distances, optionally a convolution parallel to the first layer.
--- example: #accel.models.DebertaV2Model({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 20
local bert_like = require "accel.models.encoder.bert_like"
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"
local disentangled = require "accel.models.encoder.disentangled"

local function has(list, word)
  for entry in (type(list) == "string" and list or table.concat(list or {}, "|")):gmatch "[^|]+" do
    if entry == word then return true end
  end
  return false
end

local function pooler_dropout(c) return config.get(c, "cls_dropout") or c.hidden_dropout_prob end

return bert_like {
  model_type = "deberta-v2", prefix = "DebertaV2", base = "deberta", layer = "DebertaV2Layer",
  build = disentangled.build, run = disentangled.run, Layer = disentangled.Layer,
  keys = bert_like.keys {
    vocab_size = config.size(128100), hidden_size = config.size(1536), num_hidden_layers = config.count(24),
    num_attention_heads = config.count(24), intermediate_size = config.size(6144),
    type_vocab_size = config.number(0), layer_norm_eps = config.number(1e-7),
    pad_token_id = config.nullable(config.token(0)), relative_attention = config.flag(false),
    max_relative_positions = config.number(-1, -1), position_buckets = config.number(-1, -1),
    norm_rel_ebd = config.nullable(config.word()), share_att_key = config.flag(false),
    pos_att_type = config.any_of(config.word(), config.table()), position_biased_input = config.flag(true),
    embedding_size = config.nullable(config.size()), conv_kernel_size = config.number(0),
    conv_groups = config.count(1), conv_act = config.activation "tanh", pooler_dropout = config.rate(0.0),
    pooler_hidden_act = config.activation "gelu", pooler_hidden_size = config.unused(),
    cls_dropout = config.nullable(config.rate()), legacy = config.fixed(true), is_decoder = false,
    add_cross_attention = false, classifier_dropout = false,
  },
  describe = function(c)
    local d = bert_like.describe(c)
    local most, buckets = math.tointeger(c.max_relative_positions), math.tointeger(c.position_buckets)
    if most < 1 then most = c.max_position_embeddings end
    d.pooler, d.embed_width = nil, c.embedding_size
    d.names = bert_like.names { project = "embeddings.embed_proj" }
    if not c.position_biased_input then d.positions = nil end
    if c.relative_attention then
      d.relative = { c2p = has(c.pos_att_type, "c2p"), p2c = has(c.pos_att_type, "p2c"), shared = c.share_att_key,
        buckets = buckets, most = most,
        span = buckets > 0 and buckets or most, norm = has(c.norm_rel_ebd and { c.norm_rel_ebd } or {}, "layer_norm") }
    elseif config.get(c, "pos_att_type") and #c.pos_att_type > 0 then
      describe.fail "pos_att_type is for relative_attention = true"
    end
    if c.conv_kernel_size > 0 then d.conv = { kernel = math.tointeger(c.conv_kernel_size), groups = c.conv_groups, act = c.conv_act } end
    return d
  end,
  heads = {
    ForMaskedLM = {
      kind = "words", dense = "cls.predictions.transform.dense", norm = "cls.predictions.transform.LayerNorm",
        decoder = "cls.predictions.decoder",
      bias = "cls.predictions.bias", act = function(c) return c.hidden_act end, eps = function(c) return c.layer_norm_eps end,
      tied = { ["cls.predictions.decoder.weight"] = "deberta.embeddings.word_embeddings.weight",
        ["cls.predictions.decoder.bias"] = "cls.predictions.bias" },
    },
    ForSequenceClassification = { kind = "sequence", dense = "pooler.dense", act_of = function(c) return c.pooler_hidden_act end,
      dense_dropout = function(c) return c.pooler_dropout end, classifier = "classifier", dropout = pooler_dropout },
    ForTokenClassification = { kind = "token", dropout = function(c) return c.hidden_dropout_prob end },
      ForQuestionAnswering = { kind = "question" },
  },
}
