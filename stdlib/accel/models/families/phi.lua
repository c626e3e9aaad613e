--- Phi 1 and 2: attention and feed-forward layer share one norm and are added together. All layers have biases. Partial rotary
--- positions.
--- example: #accel.models.PhiForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 19
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "phi", prefix = "Phi", heads = { "causal", "sequence", "token" },
  weights = { o = "dense", q_norm = "q_layernorm", k_norm = "k_layernorm", up = "fc1", down = "fc2", norm = "final_layernorm" },
  keys = describe.keys {
    hidden_act = config.activation "gelu_new", layer_norm_eps = config.number(1e-5), rms_norm_eps = false,
    attention_bias = false, qk_layernorm = config.flag(false), resid_pdrop = config.rate(0.0),
    embd_pdrop = config.rate(0.0), head_dim = false, partial_rotary_factor = config.number(0.5, 1e-6, 1),
    eos_token_id = config.in_files(config.tokens(), 2),
  },
  describe = function(c)
    local d = describe.llama(c, { part = c.partial_rotary_factor })
    d.norm = { kind = "layer", eps = c.layer_norm_eps }
    d.attention.bias, d.attention.o_bias, d.attention.qk_norm = true, true, c.qk_layernorm and "head" or nil
    d.mlp.gated, d.mlp.bias, d.head_bias, d.parallel = false, true, true, true
    d.layer_norms, d.embed_dropout, d.branch_dropout = { before_attention = "input_layernorm" }, c.embd_pdrop, c.resid_pdrop
    return d
  end,
}
