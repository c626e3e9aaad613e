--- Qwen 3 with mixtures of experts in some layers.
--- example: #accel.models.Qwen3MoeForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 396
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "qwen3_moe", prefix = "Qwen3Moe",
  keys = describe.keys {
    use_sliding_window = config.flag(false), sliding_window = config.nullable(config.size(4096)),
    max_window_layers = config.unused(), head_dim = config.nullable(config.size()),
    decoder_sparse_step = config.count(1), mlp_only_layers = config.table(),
    moe_intermediate_size = config.size(768), norm_topk_prob = config.flag(false),
    num_local_experts = config.count(128), num_experts_per_tok = config.count(8),
    output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.001),
    bos_token_id = config.token(), eos_token_id = config.tokens(),
  },
  aliases = { num_experts = "num_local_experts" },
  describe = function(c)
    local d = describe.llama(c, { window = c.use_sliding_window and c.sliding_window or nil, kinds = { moe = describe.sparse(c) } })
    d.attention.qk_norm = "head"
    d.moe = { n = c.num_local_experts, k = c.num_experts_per_tok, width = c.moe_intermediate_size, router = "softmax",
      normalise = c.norm_topk_prob }
    return d
  end,
}
