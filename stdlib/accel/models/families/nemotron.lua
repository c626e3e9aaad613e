--- Nemotron: LayerNorms whose weight is stored minus one, plain feed-forward layers with a squared ReLU, partial rotary positions.
--- example: #accel.models.NemotronForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 14
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "nemotron", prefix = "Nemotron", qa_prefix = "transformer",
  keys = describe.keys {
    rms_norm_eps = false, norm_eps = config.number(1e-5), mlp_bias = config.flag(false),
    hidden_act = config.activation "relu2", partial_rotary_factor = config.number(0.5, 1e-6, 1),
    vocab_size = config.size(256000), max_position_embeddings = config.size(4096),
    bos_token_id = config.in_files(config.token(), 2), eos_token_id = config.in_files(config.tokens(), 3),
  },
  describe = function(c)
    local d = describe.llama(c, { part = c.partial_rotary_factor })
    d.norm, d.mlp.gated = { kind = "layer_1", eps = c.norm_eps }, false
    return d
  end,
}
