--- gpt-oss: attention sinks, windows in every other layer, experts in two matrices with biases and a limited gate.
--- example: #accel.models.GptOssForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 20
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gpt_oss", prefix = "GptOss", heads = { "causal", "sequence", "token" },
  weights = { router = "router" },
  keys = describe.window_keys {
    attention_bias = config.flag(true), num_local_experts = config.count(128),
    num_experts_per_tok = config.count(4), experts_per_token = config.count(),
    swiglu_limit = config.number(7), swiglu_alpha = config.number(1.702), head_dim = config.size(64),
    output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.9),
    initial_context_length = config.unused(), sliding_window = config.nullable(config.size(128)),
    rms_norm_eps = config.number(1e-5), max_position_embeddings = config.size(131072),
    bos_token_id = config.token(), eos_token_id = config.tokens(),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.sliding_window, theta = 150000.0, kinds = { moe = function() return true end,
      rule = function(i) return i % 2 == 1 and "sliding_attention" or "full_attention" end } })
    d.attention.sinks = true
    d.moe = { n = c.num_local_experts, k = c.num_experts_per_tok, width = c.intermediate_size, router = "chosen",
      router_bias = true, fused = true,
      bias = true, clamp = { limit = c.swiglu_limit, alpha = c.swiglu_alpha } }
    return d
  end,
}
