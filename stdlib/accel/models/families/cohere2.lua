--- Cohere Command R7B: layers with a window have rotary positions, full layers have none.
--- example: #accel.models.Cohere2ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 10
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "cohere2", prefix = "Cohere2", heads = { "causal" },
  keys = describe.window_keys {
    rms_norm_eps = false, layer_norm_eps = config.number(1e-5), logit_scale = config.number(0.0625),
    tie_word_embeddings = config.flag(true), sliding_window = config.nullable(config.size(4096)),
    sliding_window_pattern = config.count(4), _sliding_window_pattern = config.count(),
    vocab_size = config.size(256000), max_position_embeddings = config.size(8192),
    cache_implementation = config.unused(), order_of_interleaved_layers = config.unused(),
    rotary_pct = config.unused(), use_qk_norm = config.fixed(false), use_parallel_block = config.fixed(true),
    use_embedding_sharing = config.unused(), use_gated_activation = config.fixed(true),
    bos_token_id = config.in_files(config.token(), 5),
    eos_token_id = config.in_files(config.tokens(), 255001),
    pad_token_id = config.in_files(config.token(), 0),
  },
  describe = function(c)
    local pattern = c._sliding_window_pattern or c.sliding_window_pattern
    local d = describe.llama(c, { window = c.sliding_window, kinds = {
      rule = function(i) return i % pattern ~= 0 and "sliding_attention" or "full_attention" end,
      rope = function(word) return word == "sliding_attention" and "all" or nil end } })
    d.norm, d.parallel, d.layer_norms = { kind = "layer_weight", eps = c.layer_norm_eps }, true, { before_attention = "input_layernorm" }
    d.rotary.interleaved, d.logits.scale = true, c.logit_scale
    return d
  end,
}
