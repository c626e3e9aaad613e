--- ALBERT: BERT whose layers share weights, with embeddings narrower than the layers.
--- example: #accel.models.AlbertModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 25
local bert_like = require "accel.models.encoder.bert_like"
local config = require "accel.models.config"

return bert_like {
  model_type = "albert", prefix = "Albert", base = "albert", layer = "AlbertLayer", optional_keys = { "pooler%." },
  order = { ["albert_layers.*"] = "full_layer_layer_norm attention ffn ffn_output", predictions = "LayerNorm dense" },
  keys = bert_like.keys {
    vocab_size = config.size(30000), embedding_size = config.size(128), num_hidden_groups = config.count(1),
    inner_group_num = config.count(1), hidden_act = config.activation "gelu_new",
    hidden_dropout_prob = config.rate(0.0), attention_probs_dropout_prob = config.rate(0.0),
    classifier_dropout_prob = config.rate(0.1), classifier_dropout = false, is_decoder = false,
    add_cross_attention = false, pad_token_id = config.nullable(config.token(0)),
    bos_token_id = config.in_files(config.token(), 2), eos_token_id = config.in_files(config.tokens(), 3),
    num_memory_blocks = config.unused(), gap_size = config.unused(), net_structure_type = config.unused(),
    layers_to_keep = config.unused(), down_scale_factor = config.unused(),
  },
  describe = function(c)
    local d = bert_like.describe(c)
    d.embed_width, d.groups = c.embedding_size, { n = c.num_hidden_groups, inner = c.inner_group_num }
    d.names = bert_like.names { project = "encoder.embedding_hidden_mapping_in",
      layers = "encoder.albert_layer_groups", inner = "albert_layers",
      q = "attention.query", k = "attention.key", v = "attention.value", o = "attention.dense", attention_norm = "attention.LayerNorm",
      first = "ffn", second = "ffn_output", norm_2 = "full_layer_layer_norm", pooler = "pooler" }
    return d
  end,
  heads = {
    ForMaskedLM = {
      kind = "words", dense = "predictions.dense", norm = "predictions.LayerNorm", decoder = "predictions.decoder",
        bias = "predictions.bias",
      act = function(c) return c.hidden_act end, eps = function(c) return c.layer_norm_eps end,
      inner = function(c) return c.embedding_size end,
      tied = { ["predictions.decoder.weight"] = "albert.embeddings.word_embeddings.weight",
        ["predictions.decoder.bias"] = "predictions.bias" },
    },
    ForSequenceClassification = { kind = "sequence", pooled = true, classifier = "classifier",
      dropout = function(c) return c.classifier_dropout_prob end },
    ForTokenClassification = { kind = "token", dropout = function(c) return c.classifier_dropout_prob end },
    ForQuestionAnswering = { kind = "question" },
  },
}
