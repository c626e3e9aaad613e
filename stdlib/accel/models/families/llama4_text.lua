--- Llama 4 for text: chunks with rotary positions, full layers without, experts whose input is scaled, one shared expert.
--- example: #accel.models.Llama4ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "llama4_text", prefix = "Llama4", base = "Llama4TextModel", layer = "Llama4TextDecoderLayer", heads = { "causal" },
  order = { ["layers.*.feed_forward"] = "experts router shared_expert" },
  weights = { mlp = "feed_forward", moe = "feed_forward", router = "router" },
  keys = describe.keys {
    attention_chunk_size = config.nullable(config.size(8192)), attn_temperature_tuning = config.flag(true),
    floor_scale = config.number(8192), attn_scale = config.number(0.1),
    intermediate_size_mlp = config.size(16384), interleave_moe_layer_step = config.count(1),
    moe_layers = config.table(), no_rope_layers = config.table(), no_rope_layer_interval = config.count(4),
    num_local_experts = config.count(16), num_experts_per_tok = config.count(1),
    use_qk_norm = config.flag(true), output_router_logits = config.flag(false),
    router_aux_loss_coef = config.number(0.001),
    router_jitter_noise = config.only(function(v) return v == 0 end, "0"), layer_types = config.table(),
    head_dim = config.nullable(config.size(128)), rms_norm_eps = config.number(1e-5),
    max_position_embeddings = config.size(131072),
  },
  describe = function(c)
    local turns, sparse = c.no_rope_layers, {}
    local function has_rope(i) -- in files 1 stands for a layer with rotary positions
      if turns and #turns > 0 then return turns[i] ~= 0 end
      return i % c.no_rope_layer_interval ~= 0
    end
    for _, i in ipairs(c.moe_layers or {}) do sparse[i + 1] = true end
    if not c.moe_layers then
      for i = c.interleave_moe_layer_step, c.num_hidden_layers, c.interleave_moe_layer_step do sparse[i] = true end
    end
    local function rule(i) return has_rope(i) and "chunked_attention" or "full_attention" end
    local kinds = describe.kinds(c, c.num_hidden_layers, rule, function(word, i)
      local kind = { rope = has_rope(i) and "all" or nil, moe = sparse[i] }
      if word == "chunked_attention" then kind.chunk = c.attention_chunk_size elseif word ~= "full_attention" then return nil end
      if not kind.rope and c.attn_temperature_tuning then kind.temperature = { floor = c.floor_scale, scale = c.attn_scale } end
      return kind
    end)
    local d = describe.llama(c, { theta = 500000.0, all_kinds = kinds })
    d.attention.qk_norm, d.rotary.interleaved, d.mlp.width = c.use_qk_norm and "l2" or nil, true, c.intermediate_size_mlp
    d.moe = { n = c.num_local_experts, k = c.num_experts_per_tok, width = c.intermediate_size, router = "sigmoid_input", fused = true,
      shared = c.intermediate_size, unbalanced = true }
    return d
  end,
}
