--- DistilBERT: BERT without segments and pooler, under different names.
--- example: #accel.models.DistilBertModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 20
local bert_like = require "accel.models.encoder.bert_like"
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return bert_like {
  model_type = "distilbert", prefix = "DistilBert", base = "distilbert", layer = "TransformerBlock",
  keys = {
    vocab_size = config.size(30522), dim = config.size(768), n_layers = config.count(6),
    n_heads = config.count(12), hidden_dim = config.size(3072), activation = config.activation "gelu",
    dropout = config.rate(0.1), attention_dropout = config.rate(0.1), qa_dropout = config.rate(0.1),
    seq_classif_dropout = config.rate(0.2), max_position_embeddings = config.size(512),
    initializer_range = config.number(0.02), pad_token_id = config.nullable(config.token(0)),
    sinusoidal_pos_embds = config.unused(), tie_word_embeddings = config.flag(true),
    tie_weights_ = config.unused(),
  },
  aliases = { hidden_size = "dim", num_attention_heads = "n_heads", num_hidden_layers = "n_layers" },
  describe = function(c)
    if c.dim % c.n_heads ~= 0 then describe.fail(("dim %d is not a multiple of n_heads %d"):format(c.dim, c.n_heads)) end
    return {
      layers = c.n_layers, width = c.dim, vocab = c.vocab_size, heads = c.n_heads, ffn = c.hidden_dim, act = c.activation, eps = 1e-12,
      dropout = c.dropout, attention_dropout = c.attention_dropout, positions = { n = c.max_position_embeddings },
        padding_idx = c.pad_token_id,
      names = bert_like.names { layers = "transformer.layer", q = "attention.q_lin", k = "attention.k_lin", v = "attention.v_lin",
        o = "attention.out_lin", attention_norm = "sa_layer_norm", first = "ffn.lin1", second = "ffn.lin2", norm_2 = "output_layer_norm" },
    }
  end,
  heads = {
    ForMaskedLM = {
      kind = "words", dense = "vocab_transform", norm = "vocab_layer_norm", decoder = "vocab_projector",
        act = function(c) return c.activation end,
      eps = function() return 1e-12 end, tied = { ["vocab_projector.weight"] = "distilbert.embeddings.word_embeddings.weight" },
    },
    ForSequenceClassification = { kind = "sequence", dense = "pre_classifier", act = "relu", classifier = "classifier",
      dropout = function(c) return c.seq_classif_dropout end },
    ForTokenClassification = { kind = "token", dropout = function(c) return c.dropout end },
    ForQuestionAnswering = { kind = "question", dropout = function(c) return c.qa_dropout end },
  },
}
