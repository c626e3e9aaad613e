--- Gemma 2: norms before and after each part, soft caps of scores and logits, windows in every other layer.
--- example: #accel.models.Gemma2ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 13
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gemma2", prefix = "Gemma2", heads = { "causal", "sequence", "token" },
  keys = describe.window_keys {
    hidden_act = false, hidden_activation = config.activation "gelu_pytorch_tanh",
    head_dim = config.size(256), tie_word_embeddings = config.flag(true),
    query_pre_attn_scalar = config.number(256, 1e-6),
    attn_logit_softcapping = config.nullable(config.number(50)),
    final_logit_softcapping = config.nullable(config.number(30)), use_bidirectional_attention = config.flag(),
    sliding_window = config.nullable(config.size(4096)), max_position_embeddings = config.size(8192),
    bos_token_id = config.in_files(config.token(), 2), eos_token_id = config.in_files(config.tokens(), 1),
    pad_token_id = config.in_files(config.token(), 0),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.sliding_window, kinds = {
      rule = function(i) return i % 2 == 1 and "sliding_attention" or "full_attention" end } })
    d.mlp.act, d.norm.kind, d.embed_scale = c.hidden_activation, "rms_1", math.sqrt(c.hidden_size)
    d.attention.scale, d.attention.softcap = c.query_pre_attn_scalar ^ -0.5, c.attn_logit_softcapping
    d.logits.softcap, d.bidirectional = c.final_logit_softcapping, c.use_bidirectional_attention
    d.layer_norms = { before_attention = "input_layernorm", after_attention = "post_attention_layernorm",
      before_mlp = "pre_feedforward_layernorm", after_mlp = "post_feedforward_layernorm" }
    return d
  end,
}
