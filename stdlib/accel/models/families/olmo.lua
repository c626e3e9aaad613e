--- OLMo: Llama with LayerNorms that have no parameters, and limited queries, keys and values.
--- example: #accel.models.OlmoForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 9
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "olmo", prefix = "Olmo", heads = { "causal", "sequence" },
  keys = describe.keys {
    rms_norm_eps = false, head_dim = false, clip_qkv = config.nullable(config.number(nil, 1e-6)),
    vocab_size = config.size(50304), bos_token_id = config.token(),
    eos_token_id = config.in_files(config.tokens(), 50279), pad_token_id = config.in_files(config.token(), 1),
  },
  describe = function(c)
    local d = describe.llama(c)
    d.norm, d.attention.clip = { kind = "plain", eps = 1e-5 }, c.clip_qkv
    return d
  end,
}
