--- Marian: BART with sinusoidal positions.
--- example: #accel.models.MarianMTModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 505
local bart_like = require "accel.models.seq2seq.bart_like"
local config = require "accel.models.config"

return require "accel.models.seq2seq.family" {
  model_type = "marian", prefix = "Marian", text = "MarianMTModel", aliases = bart_like.ALIASES,
  keys = bart_like.keys {
    vocab_size = config.size(58101), classifier_dropout = false,
    decoder_start_token_id = config.nullable(config.token(58100)),
    pad_token_id = config.in_files(config.token(), 58100), eos_token_id = config.in_files(config.tokens(), 0),
    decoder_vocab_size = config.nullable(config.size()),
    share_encoder_decoder_embeddings = config.fixed(true), bad_words_ids = config.table(),
    num_beams = config.unused(), max_length = config.unused(),
  },
  check = function(c)
    if c.decoder_vocab_size and c.decoder_vocab_size ~= c.vocab_size then
      return ("decoder_vocab_size %d differs from vocab_size %d"):format(c.decoder_vocab_size, c.vocab_size), "unsupported"
    end
  end,
  describe = function(c)
    local d = bart_like.describe(c)
    d.positions, d.norm_first = { kind = "halves" }, false
    return d
  end,
}
