--- GPT-NeoX and Pythia: queries, keys and values of each head in one matrix, partial rotary positions, parallel parts with a norm each.
--- example: #accel.models.GPTNeoXForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 16
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gpt_neox", prefix = "GPTNeoX", layer = "GPTNeoXLayer",
  order = { ["layers.*"] = "input_layernorm post_attention_layernorm attention mlp" },
  weights = { token = "classifier", base = "gpt_neox", embed = "embed_in", norm = "final_layer_norm", head = "embed_out",
    attention = "attention", qkv = "query_key_value",
    o = "dense", up = "dense_h_to_4h", down = "dense_4h_to_h" },
  keys = describe.keys {
    rms_norm_eps = false, layer_norm_eps = config.number(1e-5), attention_bias = config.flag(true),
    head_dim = false, num_key_value_heads = false, hidden_dropout = config.rate(0.0),
    classifier_dropout = config.rate(0.1), use_parallel_residual = config.flag(true),
    rotary_pct = config.number(0.25, 1e-6, 1), rotary_emb_base = config.number(nil, 1),
    partial_rotary_factor = config.number(nil, 1e-6, 1), hidden_act = config.activation "gelu",
    is_decoder = config.unused(), vocab_size = config.size(50432),
    bos_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 2),
  },
  check = function(c) c.rope_theta = c.rope_theta or c.rotary_emb_base end,
  describe = function(c)
    local d = describe.llama(c, { part = c.partial_rotary_factor or c.rotary_pct })
    d.norm, d.attention.fused = { kind = "layer", eps = c.layer_norm_eps }, "heads"
    d.mlp.gated, d.mlp.bias, d.parallel = false, true, c.use_parallel_residual
    d.embed_dropout, d.branch_dropout = c.hidden_dropout, c.hidden_dropout
    return d
  end,
}
