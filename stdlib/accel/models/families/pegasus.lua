--- PEGASUS: BART with norms before each part and after the last, and positions that are stored and not trained.
--- example: #accel.models.PegasusForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 511
local bart_like = require "accel.models.seq2seq.bart_like"
local config = require "accel.models.config"

return require "accel.models.seq2seq.family" {
  model_type = "pegasus", prefix = "Pegasus", aliases = bart_like.ALIASES,
  keys = bart_like.keys {
    classifier_dropout = false, decoder_start_token_id = config.nullable(config.token(0)),
    pad_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 1),
  },
  describe = function(c)
    local d = bart_like.describe(c)
    d.positions, d.norm_first, d.last_norm = { kind = "fixed" }, true, true
    return d
  end,
}
