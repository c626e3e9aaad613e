--- Qwen 2: Llama with biases in queries, keys and values. Layers from max_window_layers on may have a sliding window.
--- example: #accel.models.Qwen2ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

--- Qwen's rule for files without layer_types.
local function kinds(c)
  return { rule = function(i) return c.use_sliding_window and i > c.max_window_layers and "sliding_attention" or "full_attention" end }
end

return require "accel.models.decoder.family" {
  model_type = "qwen2", prefix = "Qwen2", qa_prefix = "transformer",
  keys = describe.window_keys {
    use_sliding_window = config.flag(false), max_window_layers = config.number(28), attention_bias = false,
    head_dim = false, bos_token_id = config.token(), eos_token_id = config.tokens(),
    max_position_embeddings = config.size(32768),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.use_sliding_window and c.sliding_window or nil, kinds = kinds(c) })
    d.attention.bias = true
    return d
  end,
}
