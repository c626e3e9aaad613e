--- mBART: BART with norms before each part and after the last, and the language in front of the decoder's tokens.
--- example: #accel.models.MBartForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 515
local bart_like = require "accel.models.seq2seq.bart_like"
local config = require "accel.models.config"

return require "accel.models.seq2seq.family" {
  model_type = "mbart", prefix = "MBart", sequence = true, wraps = true, aliases = bart_like.ALIASES,
  keys = bart_like.keys {
    decoder_start_token_id = config.nullable(config.token()),
  },
  describe = function(c)
    local d = bart_like.describe(c)
    d.positions, d.embed_norm, d.norm_first, d.last_norm = { kind = "learnt", offset = 2 }, true, true, true
    return d
  end,
}
