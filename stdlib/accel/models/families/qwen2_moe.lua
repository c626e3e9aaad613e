--- Qwen 2 with mixtures of experts and one expert that every token goes through, weighted by a gate.
--- example: #accel.models.Qwen2MoeForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 197
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "qwen2_moe", prefix = "Qwen2Moe",
  keys = describe.window_keys {
    use_sliding_window = config.flag(false), max_window_layers = config.number(28), attention_bias = false,
    head_dim = false, qkv_bias = config.flag(true), decoder_sparse_step = config.count(1),
    mlp_only_layers = config.table(), moe_intermediate_size = config.size(1408),
    shared_expert_intermediate_size = config.size(5632), norm_topk_prob = config.flag(false),
    num_experts = config.count(60), num_experts_per_tok = config.count(4),
    output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.001),
    sliding_window = config.nullable(config.number(4096)), bos_token_id = config.token(), eos_token_id = config.tokens(),
  },
  aliases = { num_local_experts = "num_experts" },
  describe = function(c)
    local window = c.use_sliding_window and c.sliding_window and math.tointeger(c.sliding_window) or nil
    if window == 0 then describe.fail "use_sliding_window needs a sliding_window above 0" end
    local d = describe.llama(c, { window = window, kinds = { moe = describe.sparse(c), rule = function(i)
      return window and i % 2 == 1 and i <= c.max_window_layers and "sliding_attention" or "full_attention"
    end } })
    d.attention.bias = c.qkv_bias
    d.moe = { n = c.num_experts, k = c.num_experts_per_tok, width = c.moe_intermediate_size, router = "softmax",
      normalise = c.norm_topk_prob,
      shared = c.shared_expert_intermediate_size, shared_gate = true }
    return d
  end,
}
