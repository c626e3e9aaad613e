--- BLOOM: linear biases in place of positions, a norm after the embedding.
--- example: #accel.models.BloomForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 17
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

-- The tanh form of GELU with the constant as BLOOM was trained with it, sqrt(2 / pi) cut after eight digits.
local function gelu(x) return x * 0.5 * ((x * 0.79788456 * (x * x * 0.044715 + 1)):tanh() + 1) end

return require "accel.models.decoder.family" {
  model_type = "bloom", prefix = "Bloom", layer = "BloomBlock",
  order = { ["h.*"] = "input_layernorm self_attention post_attention_layernorm mlp" },
  weights = { token = "classifier", base = "transformer",
    embed = "word_embeddings", embed_norm = "word_embeddings_layernorm", layers = "h", norm = "ln_f",
    attention = "self_attention", qkv = "query_key_value", o = "dense", up = "dense_h_to_4h", down = "dense_4h_to_h" },
  tp_divides = { "n_head" },
  keys = {
    vocab_size = config.size(250880), hidden_size = config.size(64), n_layer = config.count(2),
    n_head = config.count(8), layer_norm_epsilon = config.number(1e-5),
    initializer_range = config.number(0.02), apply_residual_connection_post_layernorm = config.flag(false),
    hidden_dropout = config.rate(0.0), attention_dropout = config.rate(0.0), pretraining_tp = config.unused(),
    slow_but_exact = config.unused(), tie_word_embeddings = config.flag(true),
    bos_token_id = config.in_files(config.token(), 1), eos_token_id = config.in_files(config.tokens(), 2),
    seq_length = config.unused(), n_embed = config.size(),
  },
  aliases = { num_hidden_layers = "n_layer", num_attention_heads = "n_head" },
  check = function(c) c.hidden_size = c.n_embed or c.hidden_size end,
  describe = function(c)
    local heads = c.n_head
    if c.hidden_size % heads ~= 0 then describe.fail(("hidden_size %d is not a multiple of n_head %d"):format(c.hidden_size, heads)) end
    return {
      layers = c.n_layer, width = c.hidden_size, vocab = c.vocab_size, alibi = true, embed_norm = true, logits = {},
      norm = { kind = "layer", eps = c.layer_norm_epsilon }, residual_from_norm = c.apply_residual_connection_post_layernorm,
      attention = { heads = heads, kv_heads = heads, head_dim = c.hidden_size // heads, bias = true, o_bias = true, fused = "heads",
        dropout = c.attention_dropout, o_dropout = c.hidden_dropout },
      mlp = { width = 4 * c.hidden_size, act = gelu, bias = true, dropout = c.hidden_dropout },
      kinds = describe.windows(c, c.n_layer, nil, { rope = false }),
      layer_norms = { before_attention = "input_layernorm", before_mlp = "post_attention_layernorm" },
    }
  end,
}
