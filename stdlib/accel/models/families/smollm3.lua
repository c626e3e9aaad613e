--- SmolLM 3: Llama with some layers without rotary positions.
--- example: #accel.models.SmolLM3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 11
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "smollm3", prefix = "SmolLM3", qa_prefix = "transformer",
  keys = describe.window_keys {
    mlp_bias = config.flag(false), head_dim = false, no_rope_layers = config.table(),
    no_rope_layer_interval = config.count(4), use_sliding_window = config.flag(false),
    max_window_layers = config.unused(), tie_word_embeddings = config.flag(true),
    pretraining_tp = config.unused(), bos_token_id = config.in_files(config.token(), 128000),
    eos_token_id = config.in_files(config.tokens(), 128001),
    pad_token_id = config.in_files(config.token(), 128004), max_position_embeddings = config.size(32768),
  },
  describe = function(c)
    local window, turns = c.use_sliding_window and c.sliding_window or nil, c.no_rope_layers
    local function has_rope(i) -- in files 1 stands for a layer with rotary positions
      if turns and #turns > 0 then return turns[i] ~= 0 end
      return i % c.no_rope_layer_interval ~= 0
    end
    return describe.llama(c, { window = window, theta = 2000000.0, kinds = {
      rule = function(i) return window and not has_rope(i) and "sliding_attention" or "full_attention" end,
      rope = function(_, i) return has_rope(i) and "all" or nil end } })
  end,
}
