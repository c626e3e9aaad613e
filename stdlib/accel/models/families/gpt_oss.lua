--- gpt-oss: attention sinks, windows in every other layer, experts in two matrices with biases and a limited gate.
--- example: #accel.models.GptOssForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 20
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"
local no_effect = require "accel.util.no_effect"

-- Positions of a configuration that names none.
local YARN <const> = { rope_type = "yarn", factor = 32.0, beta_fast = 32.0, beta_slow = 1.0, truncate = false,
  original_max_position_embeddings = 4096 }

return require "accel.models.decoder.family" {
  model_type = "gpt_oss", prefix = "GptOss", heads = { "causal", "sequence", "token" },
  weights = { router = "router" },
  keys = describe.window_keys {
    attention_bias = config.flag(true), num_local_experts = config.count(128),
    num_experts_per_tok = config.count(4), experts_per_token = config.count(), -- OpenAI's name: Transformers reads the other one
    hidden_act = config.no_effect("hidden_act", "the experts of gpt_oss have a limited gate instead", "silu"),
    swiglu_limit = config.number(7), swiglu_alpha = config.number(1.702), head_dim = config.size(64),
    output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.001),
    initial_context_length = config.unused(), sliding_window = config.nullable(config.size(128)),
    rms_norm_eps = config.number(1e-5), max_position_embeddings = config.size(131072),
    bos_token_id = config.token(), eos_token_id = config.tokens(),
  },
  aliases = { num_experts = "num_local_experts" },
  describe = function(c)
    if c.experts_per_token and c.experts_per_token ~= c.num_experts_per_tok then
      no_effect.once("gpt_oss", "experts_per_token", ("next to num_experts_per_tok = %d; remove it"):format(c.num_experts_per_tok))
    end
    local rotary
    if not c.rope_parameters and not c.rope_scaling then
      local rope = config.plain(YARN)
      rope.rope_theta = c.rope_theta
      rotary = { all = describe.rotary_set(c, { theta = 150000.0, head_dim = c.head_dim, rope = rope }) }
    end
    local d = describe.llama(c, { window = c.sliding_window, theta = 150000.0, rotary = rotary, kinds = { moe = function() return true end,
      rule = function(i) return i % 2 == 1 and "sliding_attention" or "full_attention" end } })
    d.attention.sinks = true
    d.moe = { n = c.num_local_experts, k = c.num_experts_per_tok, width = c.intermediate_size, router = "chosen",
      router_bias = true, fused = true,
      bias = true, clamp = { limit = c.swiglu_limit, alpha = c.swiglu_alpha } }
    return d
  end,
}
