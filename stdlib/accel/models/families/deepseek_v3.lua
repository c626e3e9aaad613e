--- DeepSeek V3: latent attention, experts chosen by sigmoid scores within the best groups, one or more shared experts, first layers dense.
--- example: #accel.models.DeepseekV3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

--- The factor of scores that yarn adds (mscale_all_dim), squared.
local function sharpened(rope)
  local factor, all = rope.factor, rope.mscale_all_dim
  local kind = rope.rope_type or rope.type or "default"
  if kind == "default" or type(all) ~= "number" or all == 0 or type(factor) ~= "number" or factor <= 1 then return 1 end
  return (0.1 * all * math.log(factor) + 1) ^ 2
end

return require "accel.models.decoder.family" {
  model_type = "deepseek_v3", prefix = "DeepseekV3", heads = { "causal", "sequence", "token" },
  order = { ["layers.*.mlp"] = "experts gate shared_experts" },
  weights = { shared = "shared_experts" },
  keys = describe.keys {
    q_lora_rank = config.nullable(config.size(1536)), kv_lora_rank = config.size(512),
    qk_nope_head_dim = config.size(128), qk_rope_head_dim = config.size(64), v_head_dim = config.size(128),
    qk_head_dim = config.unused(), head_dim = config.unused(), n_routed_experts = config.count(256),
    n_shared_experts = config.count(1), num_experts_per_tok = config.count(8), n_group = config.count(8),
    topk_group = config.count(4), norm_topk_prob = config.flag(true),
    routed_scaling_factor = config.number(2.5), moe_intermediate_size = config.size(2048),
    first_k_dense_replace = config.number(3), rope_interleave = config.flag(true),
    num_nextn_predict_layers = config.unused(), pretraining_tp = config.unused(),
    output_router_logits = config.flag(false), router_aux_loss_coef = config.number(0.001),
    moe_layer_freq = config.only(function(v) return v == 1 end, "1"),
    scoring_func = config.only(function(v) return v == "sigmoid" end, "sigmoid"),
    aux_loss_alpha = config.unused(), seq_aux = config.unused(),
    topk_method = config.only(function(v) return v == "noaux_tc" end, "noaux_tc"), ep_size = config.unused(),
    bos_token_id = config.in_files(config.token(), 0), eos_token_id = config.in_files(config.tokens(), 1),
  },
  aliases = { num_local_experts = "n_routed_experts" },
  ignored_keys = { "%.rotary_emb%.inv_freq$", "^model%.layers%.61%." }, -- the layer that predicts further tokens
  describe = function(c)
    local d = describe.llama(c, { kinds = { moe = function(i) return i > c.first_k_dense_replace end },
      dim = c.qk_rope_head_dim })
    local width = c.qk_nope_head_dim + c.qk_rope_head_dim
    if c.n_routed_experts % c.n_group ~= 0 or c.topk_group > c.n_group then
      describe.fail(("n_group %d must divide n_routed_experts %d and be at least topk_group %d"):format(
        c.n_group, c.n_routed_experts, c.topk_group))
    end
    d.attention.latent = { q_rank = c.q_lora_rank, kv_rank = c.kv_lora_rank, plain_dim = c.qk_nope_head_dim, rope_dim = c.qk_rope_head_dim,
      v_dim = c.v_head_dim }
    d.attention.scale = width ^ -0.5 * sharpened(c.rope_scaling or c.rope_parameters or {})
    d.rotary.interleaved = c.rope_interleave
    d.moe = { n = c.n_routed_experts, k = c.num_experts_per_tok, width = c.moe_intermediate_size, router = "sigmoid",
      normalise = c.norm_topk_prob,
      scale = c.routed_scaling_factor, groups = c.n_group, top_groups = c.topk_group,
        shared = c.moe_intermediate_size * c.n_shared_experts, unbalanced = true }
    return d
  end,
}
