--- ELECTRA: BERT with embeddings that may be narrower than the layers, and without a pooler.
--- example: #accel.models.ElectraModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 23
local bert_like = require "accel.models.encoder.bert_like"
local config = require "accel.models.config"

return bert_like {
  model_type = "electra", prefix = "Electra", base = "electra", layer = "ElectraLayer",
  order = { generator_predictions = "LayerNorm dense" },
  keys = bert_like.keys {
    vocab_size = config.size(30522), embedding_size = config.size(128),
    pad_token_id = config.nullable(config.token(0)), summary_type = config.unused(),
    summary_use_proj = config.unused(), summary_activation = config.unused(),
    summary_last_dropout = config.unused(),
  },
  describe = function(c)
    local d = bert_like.describe(c)
    d.pooler, d.embed_width, d.names = nil, c.embedding_size, bert_like.names { project = "embeddings_project" }
    return d
  end,
  heads = {
    ForPreTraining = { kind = "replaced", act = function(c) return c.hidden_act end },
    ForMaskedLM = {
      kind = "words", dense = "generator_predictions.dense", norm = "generator_predictions.LayerNorm", decoder = "generator_lm_head",
      act = function() return "gelu" end, eps = function(c) return c.layer_norm_eps end, inner = function(c) return c.embedding_size end,
      tied = { ["generator_lm_head.weight"] = "electra.embeddings.word_embeddings.weight" },
    },
    ForSequenceClassification = { kind = "sequence", dense = "classifier.dense", act = "gelu",
      classifier = "classifier.out_proj", drop_first = true,
      dropout = bert_like.classifier_dropout },
    ForTokenClassification = { kind = "token", dropout = bert_like.classifier_dropout }, ForQuestionAnswering = { kind = "question" },
  },
}
