--- MPNet: BERT with one table of biases by distance for all layers, and positions that count from the padding id + 1.
--- example: #accel.models.MPNetModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 23
local bert_like = require "accel.models.encoder.bert_like"
local config = require "accel.models.config"

return bert_like {
  model_type = "mpnet", prefix = "MPNet", base = "mpnet", layer = "MPNetLayer",
  keys = bert_like.keys {
    vocab_size = config.size(30527), relative_attention_num_buckets = config.count(32),
    type_vocab_size = false, is_decoder = false, add_cross_attention = false, classifier_dropout = false,
    bos_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 2),
  },
  describe = function(c)
    local d = bert_like.describe(c)
    d.positions.from_padding = c.pad_token_id or 1
    d.relative = { buckets = c.relative_attention_num_buckets, distance = 128 }
    d.names = bert_like.names { q = "attention.attn.q", k = "attention.attn.k", v = "attention.attn.v", o = "attention.attn.o",
      attention_norm = "attention.LayerNorm", bias = "encoder.relative_attention_bias" }
    return d
  end,
  heads = {
    ForMaskedLM = {
      kind = "words", dense = "lm_head.dense", norm = "lm_head.layer_norm", decoder = "lm_head.decoder", bias = "lm_head.bias",
      act = function() return "gelu" end, eps = function(c) return c.layer_norm_eps end,
      tied = { ["lm_head.decoder.weight"] = "mpnet.embeddings.word_embeddings.weight", ["lm_head.decoder.bias"] = "lm_head.bias" },
    },
    ForSequenceClassification = { kind = "sequence", dense = "classifier.dense", act = "tanh",
      classifier = "classifier.out_proj", drop_first = true,
      dropout = function(c) return c.hidden_dropout_prob end },
    ForTokenClassification = { kind = "token", dropout = function(c) return c.hidden_dropout_prob end },
    ForQuestionAnswering = { kind = "question" },
  },
}
