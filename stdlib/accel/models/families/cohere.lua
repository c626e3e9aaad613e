--- Cohere Command R: parallel parts from one LayerNorm without bias, rotary positions of neighbouring pairs, scaled logits.
--- example: #accel.models.CohereForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 10
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "cohere", prefix = "Cohere", heads = { "causal" },
  keys = describe.keys {
    rms_norm_eps = false, layer_norm_eps = config.number(1e-5), logit_scale = config.number(0.0625),
    use_qk_norm = config.flag(false), head_dim = false, tie_word_embeddings = config.flag(true),
    vocab_size = config.size(256000), max_position_embeddings = config.size(8192),
    bos_token_id = config.in_files(config.token(), 5),
    eos_token_id = config.in_files(config.tokens(), 255001),
    pad_token_id = config.in_files(config.token(), 0),
  },
  describe = function(c)
    local d = describe.llama(c, { theta = 500000.0 })
    d.norm, d.parallel, d.layer_norms = { kind = "layer_weight", eps = c.layer_norm_eps }, true, { before_attention = "input_layernorm" }
    d.rotary.interleaved, d.logits.scale, d.attention.qk_norm = true, c.logit_scale, c.use_qk_norm and "each" or nil
    return d
  end,
}
