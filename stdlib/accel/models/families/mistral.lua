--- Mistral: Llama with a sliding window in every layer.
--- example: #accel.models.MistralForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 12
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "mistral", prefix = "Mistral",
  keys = describe.keys {
    sliding_window = config.nullable(config.in_files(config.size(), 4096)),
    num_key_value_heads = config.nullable(config.count(8)), attention_bias = false,
    max_position_embeddings = config.size(131072), intermediate_size = config.size(14336),
  },
  describe = function(c) return describe.llama(c, { window = c.sliding_window }) end,
}
