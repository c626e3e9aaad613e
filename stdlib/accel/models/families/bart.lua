--- BART: learnt positions with two places in front, norms after each part.
--- example: #accel.models.BartForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 511
local bart_like = require "accel.models.seq2seq.bart_like"

return require "accel.models.seq2seq.family" {
  model_type = "bart", prefix = "Bart", sequence = true, keys = bart_like.keys(), aliases = bart_like.ALIASES,
  describe = function(c)
    local d = bart_like.describe(c)
    d.positions, d.embed_norm, d.norm_first = { kind = "learnt", offset = 2 }, true, false
    return d
  end,
}
