--- Granite: Llama with four multipliers.
--- example: #accel.models.GraniteForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 12
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "granite", prefix = "Granite", heads = { "causal" },
  keys = describe.keys {
    mlp_bias = config.flag(false), head_dim = false, embedding_multiplier = config.number(1.0),
    logits_scaling = config.number(1.0, 1e-12), residual_multiplier = config.number(1.0),
    attention_multiplier = config.number(1.0),
  },
  describe = function(c)
    local d = describe.llama(c)
    d.embed_scale, d.residual_scale, d.attention.scale, d.logits.scale =
      c.embedding_multiplier, c.residual_multiplier, c.attention_multiplier, 1 / c.logits_scaling
    return d
  end,
}
