--- Gemma 3 for text: Gemma 2 with norms of queries and keys, and with a separate rotary base in layers with a window.
--- example: #accel.models.Gemma3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

local NAMES <const> = { before_attention = "input_layernorm", after_attention = "post_attention_layernorm",
  before_mlp = "pre_feedforward_layernorm", after_mlp = "post_feedforward_layernorm" }

--- Two rotary sets: rope_parameters by kind of layer, or in old files rope_theta, rope_scaling and rope_local_base_freq. The bases of old
--- files also complete a set of rope_parameters that has none.
local function rotaries(c)
  local given = c.rope_parameters or {}
  local full, near = given.full_attention, given.sliding_attention
  full = config.plain(type(full) == "table" and full or c.rope_scaling or given)
  full.rope_theta = full.rope_theta or c.rope_theta
  near = config.plain(type(near) == "table" and near or nil)
  near.rope_theta = near.rope_theta or c.rope_local_base_freq
  return {
    full_attention = describe.rotary_set(c, { rope = full, theta = 1000000.0, head_dim = c.head_dim }),
    sliding_attention = describe.rotary_set(c, { rope = near, theta = 10000.0, head_dim = c.head_dim }),
  }
end

return require "accel.models.decoder.family" {
  model_type = "gemma3_text", prefix = "Gemma3", base = "Gemma3TextModel", heads = { "causal" },
  keys = describe.window_keys {
    hidden_act = false, hidden_activation = config.activation "gelu_pytorch_tanh",
    head_dim = config.size(256), tie_word_embeddings = config.flag(true),
    query_pre_attn_scalar = config.number(256, 1e-6),
    attn_logit_softcapping = config.nullable(config.number()),
    final_logit_softcapping = config.nullable(config.number()), use_bidirectional_attention = config.flag(),
    _sliding_window_pattern = config.count(6), sliding_window_pattern = config.count(),
    rope_local_base_freq = config.number(nil, 1), sliding_window = config.nullable(config.size(4096)),
    max_position_embeddings = config.size(131072), bos_token_id = config.in_files(config.token(), 2),
    eos_token_id = config.in_files(config.tokens(), 1), pad_token_id = config.in_files(config.token(), 0),
  },
  describe = function(c)
    local pattern = c.sliding_window_pattern or c._sliding_window_pattern
    local d = describe.llama(c, { rotary = rotaries(c), window = c.sliding_window, kinds = {
      rule = function(i) return i % pattern ~= 0 and "sliding_attention" or "full_attention" end, rope = function(word) return word end } })
    d.mlp.act, d.norm.kind, d.embed_scale = c.hidden_activation, "rms_1", math.sqrt(c.hidden_size)
    d.attention.scale, d.attention.softcap, d.attention.qk_norm = c.query_pre_attn_scalar ^ -0.5, c.attn_logit_softcapping, "head"
    d.logits.softcap, d.bidirectional, d.layer_norms = c.final_logit_softcapping, c.use_bidirectional_attention, NAMES
    return d
  end,
}
