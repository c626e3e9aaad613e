--- StableLM: Llama with LayerNorms and partial rotary positions, optionally parallel, with norms of queries and keys.
--- example: #accel.models.StableLmForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "stablelm", prefix = "StableLm", heads = { "causal", "sequence", "token" },
  weights = { q_norm = "q_layernorm", k_norm = "k_layernorm" },
  keys = describe.keys {
    rms_norm_eps = false, layer_norm_eps = config.number(1e-5), use_qkv_bias = config.flag(false),
    qk_layernorm = config.flag(false), use_parallel_residual = config.flag(false),
    hidden_dropout = config.rate(0.0), attention_bias = false, head_dim = false,
    partial_rotary_factor = config.number(0.25, 1e-6, 1), vocab_size = config.size(50304),
    bos_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 0),
  },
  describe = function(c)
    local d = describe.llama(c, { part = c.partial_rotary_factor })
    d.norm, d.attention.bias, d.attention.o_bias = { kind = "layer", eps = c.layer_norm_eps }, c.use_qkv_bias, false
    d.attention.qk_norm, d.parallel, d.branch_dropout = c.qk_layernorm and "list" or nil, c.use_parallel_residual, c.hidden_dropout
    if d.parallel then d.layer_norms = { before_attention = "input_layernorm" } end
    return d
  end,
}
