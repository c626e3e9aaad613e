--- OLMo 2: norms after each part only, and norms of queries and keys over all heads together.
--- example: #accel.models.Olmo2ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 14
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "olmo2", prefix = "Olmo2", heads = { "causal", "sequence" },
  keys = describe.keys {
    head_dim = false, rms_norm_eps = config.number(1e-5), vocab_size = config.size(50304),
    bos_token_id = config.token(), eos_token_id = config.in_files(config.tokens(), 50279),
    pad_token_id = config.in_files(config.token(), 1),
  },
  describe = function(c)
    local d = describe.llama(c)
    d.attention.qk_norm = "whole"
    d.layer_norms = { after_attention = "post_attention_layernorm", after_mlp = "post_feedforward_layernorm" }
    return d
  end,
}
