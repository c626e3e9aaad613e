--- Phi 3: Llama with queries, keys and values in one matrix and gate and up in another. Partial rotary positions, longrope.
--- example: #accel.models.Phi3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 9
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "phi3", prefix = "Phi3", heads = { "causal", "sequence", "token" },
  order = { ["layers.*.self_attn"] = "o_proj qkv_proj" },
  keys = describe.keys {
    sliding_window = config.nullable(config.size()),
    embd_pdrop = config.no_effect("embd_pdrop", "Transformers does not apply it to Phi 3", 0),
    resid_pdrop = config.rate(0.0), partial_rotary_factor = config.number(1, 1e-6, 1), attention_bias = false,
    head_dim = false, rms_norm_eps = config.number(1e-5),
    original_max_position_embeddings = config.size(4096), max_position_embeddings = config.size(4096),
    eos_token_id = config.in_files(config.tokens(), 32000),
    pad_token_id = config.in_files(config.token(), 32000),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.sliding_window, part = c.partial_rotary_factor })
    d.attention.fused, d.mlp.fused = "rows", true
    d.attention.o_dropout, d.mlp.dropout = c.resid_pdrop, c.resid_pdrop
    return d
  end,
}
