--- Qwen 3: Llama with norms of queries and keys in each head.
--- example: #accel.models.Qwen3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 14
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "qwen3", prefix = "Qwen3", qa_prefix = "transformer",
  keys = describe.window_keys {
    use_sliding_window = config.flag(false), max_window_layers = config.number(28),
    head_dim = config.size(128), bos_token_id = config.token(), eos_token_id = config.tokens(),
    max_position_embeddings = config.size(32768),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.use_sliding_window and c.sliding_window or nil, kinds = {
      rule = function(i) return c.use_sliding_window and i > c.max_window_layers and "sliding_attention" or "full_attention" end } })
    d.attention.qk_norm = "head"
    return d
  end,
}
