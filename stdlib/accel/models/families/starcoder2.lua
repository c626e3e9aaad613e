--- StarCoder 2: LayerNorms, plain feed-forward layers, biases and a sliding window.
--- example: #accel.models.Starcoder2ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 19
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "starcoder2", prefix = "Starcoder2", heads = { "causal", "sequence", "token" },
  weights = { up = "c_fc", down = "c_proj" },
  keys = describe.keys {
    rms_norm_eps = false, norm_epsilon = config.number(1e-5), use_bias = config.flag(true),
    residual_dropout = config.rate(0.0), embedding_dropout = config.rate(0.0),
    sliding_window = config.nullable(config.size()), attention_bias = false, head_dim = false,
    hidden_act = config.activation "gelu_pytorch_tanh", tie_word_embeddings = config.flag(true),
    bos_token_id = config.in_files(config.token(), 50256),
    eos_token_id = config.in_files(config.tokens(), 50256),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.sliding_window })
    d.norm, d.attention.bias, d.attention.o_bias = { kind = "layer", eps = c.norm_epsilon }, c.use_bias, c.use_bias
    d.mlp.gated, d.mlp.bias, d.embed_dropout = false, c.use_bias, c.embedding_dropout
    d.attention.o_dropout, d.mlp.dropout = c.residual_dropout, c.residual_dropout
    return d
  end,
}
