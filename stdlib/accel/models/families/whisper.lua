--- Whisper: an encoder over log-mel features and a decoder that writes text.
--- example: #accel.models.WhisperForConditionalGeneration({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 167
local bart_like = require "accel.models.seq2seq.bart_like"
local config = require "accel.models.config"

return require "accel.models.seq2seq.family" {
  model_type = "whisper", prefix = "Whisper", head = "proj_out", own_embedding = true, aliases = bart_like.ALIASES,
  keys = bart_like.keys {
    vocab_size = config.size(51865), d_model = config.size(384), encoder_layers = config.count(4),
    decoder_layers = config.count(4), encoder_attention_heads = config.count(6),
    decoder_attention_heads = config.count(6), encoder_ffn_dim = config.size(1536),
    decoder_ffn_dim = config.size(1536), dropout = config.rate(0.0), num_mel_bins = config.count(80),
    max_source_positions = config.size(1500), max_target_positions = config.size(448),
    max_position_embeddings = false, classifier_dropout = false,
    decoder_start_token_id = config.nullable(config.token(50257)),
    pad_token_id = config.in_files(config.token(), 50256),
    bos_token_id = config.in_files(config.token(), 50256),
    eos_token_id = config.in_files(config.tokens(), 50256), suppress_tokens = config.nullable(config.table()),
    begin_suppress_tokens = config.nullable(config.table()), use_weighted_layer_sum = config.unused(),
    classifier_proj_size = config.unused(), apply_spec_augment = config.fixed(false),
    mask_time_prob = config.unused(), mask_time_length = config.unused(),
    mask_time_min_masks = config.unused(), mask_feature_prob = config.unused(),
    mask_feature_length = config.unused(), mask_feature_min_masks = config.unused(),
    median_filter_width = config.unused(), forced_decoder_ids = config.unused(), max_length = config.unused(),
  },
  describe = function(c)
    local d = bart_like.describe(c)
    d.encoder.positions, d.decoder.positions, d.features = c.max_source_positions, c.max_target_positions, { bins = c.num_mel_bins }
    d.positions, d.norm_first, d.last_norm, d.k_bias = { kind = "learnt" }, true, true, false
    d.own_embedding, d.logits_bias = true, nil
    return d
  end,
}
