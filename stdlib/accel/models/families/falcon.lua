--- Falcon: one key-value head or groups of them, parallel parts with one norm or two, rotary positions or linear biases.
--- example: #accel.models.FalconForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 9
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

local function norms(c)
  local two = c.num_ln_in_parallel_attn or (c.new_decoder_architecture and 2) or 1
  if not c.parallel_attn and not c.new_decoder_architecture then
    return { before_attention = "input_layernorm", before_mlp = "post_attention_layernorm" }
  elseif c.new_decoder_architecture and two == 2 then
    return { before_attention = "ln_attn", before_mlp = "ln_mlp" }
  end
  return { before_attention = "input_layernorm" }
end

return require "accel.models.decoder.family" {
  model_type = "falcon", prefix = "Falcon",
  order = { ["h.*"] = "self_attention mlp ln_attn ln_mlp post_attention_layernorm input_layernorm" },
  weights = { token = "classifier", base = "transformer", embed = "word_embeddings", layers = "h", norm = "ln_f",
    attention = "self_attention", qkv = "query_key_value",
    o = "dense", up = "dense_h_to_4h", down = "dense_4h_to_h" },
  tp_divides = { "num_attention_heads" },
  keys = describe.keys {
    intermediate_size = false, rms_norm_eps = false, attention_bias = false, hidden_act = false,
    head_dim = false, num_key_value_heads = false, layer_norm_epsilon = config.number(1e-5),
    hidden_dropout = config.rate(0.0), num_kv_heads = config.nullable(config.count()),
    alibi = config.flag(false), new_decoder_architecture = config.flag(false),
    multi_query = config.flag(true), parallel_attn = config.flag(true), bias = config.flag(false),
    num_ln_in_parallel_attn = config.nullable(config.count()),
    ffn_hidden_size = config.nullable(config.size()), activation = config.activation "gelu",
    tie_word_embeddings = config.flag(true), vocab_size = config.size(65024),
    bos_token_id = config.in_files(config.token(), 11), eos_token_id = config.in_files(config.tokens(), 11),
  },
  aliases = { n_head = "num_attention_heads", n_layer = "num_hidden_layers", n_head_kv = "num_kv_heads" },
  describe = function(c)
    local d = describe.llama(c)
    local a, heads = d.attention, c.num_attention_heads
    a.kv_heads = c.new_decoder_architecture and (c.num_kv_heads or heads) or c.multi_query and 1 or heads
    a.fused = c.new_decoder_architecture and "groups" or c.multi_query and "rows" or "heads"
    if heads % a.kv_heads ~= 0 then describe.fail(("num_attention_heads %d is not a multiple of num_kv_heads %d"):format(heads, a.kv_heads)) end
    a.bias, a.o_bias, d.norm = c.bias, c.bias, { kind = "layer", eps = c.layer_norm_epsilon }
    d.mlp = { width = c.ffn_hidden_size or 4 * c.hidden_size, act = c.activation, bias = c.bias }
    d.parallel, d.layer_norms, d.branch_dropout = c.parallel_attn or c.new_decoder_architecture, norms(c), c.hidden_dropout
    if c.alibi then
      d.alibi, d.alibi_scale, d.rotary = true, a.head_dim ^ -0.5, nil
      for _, kind in ipairs(d.kinds) do kind.rope = nil end
    end
    return d
  end,
}
