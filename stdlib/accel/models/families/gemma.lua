--- Gemma: norms whose weight is stored minus one, and embeddings times the square root of the width.
--- example: #accel.models.GemmaForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 11
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gemma", prefix = "Gemma", heads = { "causal", "sequence", "token" },
  keys = describe.keys {
    hidden_act = config.activation "gelu_pytorch_tanh",
    hidden_activation = config.nullable(config.activation()), head_dim = config.size(256),
    tie_word_embeddings = config.flag(true), use_bidirectional_attention = config.flag(),
    bos_token_id = config.in_files(config.token(), 2), eos_token_id = config.in_files(config.tokens(), 1),
    pad_token_id = config.in_files(config.token(), 0), max_position_embeddings = config.size(8192),
  },
  describe = function(c)
    local d = describe.llama(c)
    if c.hidden_activation then d.mlp.act = c.hidden_activation
    elseif d.mlp.act == "gelu" then d.mlp.act = "gelu_pytorch_tanh" end -- the meaning in old files
    d.norm.kind, d.embed_scale, d.bidirectional = "rms_1", math.sqrt(c.hidden_size), c.use_bidirectional_attention
    return d
  end,
}
