--- M2M-100 and NLLB: mBART with sinusoidal positions counted over tokens that are not padding.
--- example: #accel.models.M2M100ForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 509
local bart_like = require "accel.models.seq2seq.bart_like"
local config = require "accel.models.config"

return require "accel.models.seq2seq.family" {
  model_type = "m2m_100", prefix = "M2M100", aliases = bart_like.ALIASES,
  keys = bart_like.keys {
    vocab_size = config.size(128112), scale_embedding = config.flag(true),
    activation_function = config.activation "relu", classifier_dropout = false,
    attention_dropout = config.rate(0.1),
  },
  describe = function(c)
    local d = bart_like.describe(c)
    d.positions, d.norm_first, d.last_norm, d.logits_bias = { kind = "padding" }, true, true, nil
    return d
  end,
}
