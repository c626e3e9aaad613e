--- GLM 4: norms before and after each part, rotary positions of neighbouring pairs in half of a head, gate and up in one matrix.
--- example: #accel.models.Glm4ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 13
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "glm4", prefix = "Glm4", heads = { "causal", "sequence", "token" },
  order = { ["layers.*"] = "self_attn mlp input_layernorm post_attention_layernorm post_self_attn_layernorm post_mlp_layernorm" },
  keys = describe.keys {
    partial_rotary_factor = config.number(0.5, 1e-6, 1), head_dim = config.size(128),
    rms_norm_eps = config.number(1.5625e-07), attention_bias = config.flag(false),
    max_position_embeddings = config.size(131072), eos_token_id = config.tokens(),
    bos_token_id = config.token(),
  },
  describe = function(c)
    local d = describe.llama(c, { part = c.partial_rotary_factor })
    d.attention.o_bias, d.rotary.interleaved, d.mlp.fused = false, true, true
    d.layer_norms = { before_attention = "input_layernorm", after_attention = "post_self_attn_layernorm",
      before_mlp = "post_attention_layernorm", after_mlp = "post_mlp_layernorm" }
    return d
  end,
}
