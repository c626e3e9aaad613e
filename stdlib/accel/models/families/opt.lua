--- OPT: learnt positions counted over the mask, feed-forward matrices in the layer itself, norms before or after each part.
--- example: #accel.models.OPTForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 20
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "opt", prefix = "OPT", heads = { "causal", "sequence", "question" },
  order = { ["decoder"] = "embed_tokens embed_positions project_out project_in final_layer_norm layers",
    ["layers.*"] = "self_attn self_attn_layer_norm fc1 fc2 final_layer_norm", ["layers.*.self_attn"] = "k_proj v_proj q_proj out_proj" },
  weights = { embed = "decoder.embed_tokens", positions = "decoder.embed_positions", layers = "decoder.layers",
    norm = "decoder.final_layer_norm",
    project_in = "decoder.project_in", project_out = "decoder.project_out", o = "out_proj", mlp = "", up = "fc1", down = "fc2" },
  tp_divides = { "num_attention_heads" },
  keys = {
    vocab_size = config.size(50272), hidden_size = config.size(768), num_hidden_layers = config.count(12),
    ffn_dim = config.size(3072), max_position_embeddings = config.size(2048),
    num_attention_heads = config.count(12), do_layer_norm_before = config.flag(true),
    _remove_final_layer_norm = config.flag(false), word_embed_proj_dim = config.nullable(config.size()),
    dropout = config.rate(0.1), attention_dropout = config.rate(0.0),
    layerdrop = config.only(function(v) return v == 0 end, "0"), init_std = config.number(0.02),
    activation_function = config.activation "relu", enable_bias = config.flag(true),
    layer_norm_elementwise_affine = config.flag(true), tie_word_embeddings = config.flag(true),
    pad_token_id = config.in_files(config.token(), 1), bos_token_id = config.in_files(config.token(), 2),
    eos_token_id = config.in_files(config.tokens(), 2),
  },
  aliases = { initializer_range = "init_std" },
  describe = function(c)
    local before, bias = c.do_layer_norm_before, c.enable_bias
    local heads = c.num_attention_heads
    if c.hidden_size % heads ~= 0 then describe.fail(("hidden_size %d is not a multiple of num_attention_heads %d"):format(c.hidden_size, heads)) end
    return {
      layers = c.num_hidden_layers, width = c.hidden_size, vocab = c.vocab_size, embed_width = c.word_embed_proj_dim,
        padding_idx = c.pad_token_id,
      positions = { n = c.max_position_embeddings, offset = 2, from_mask = true },
      norm = { kind = c.layer_norm_elementwise_affine and "layer" or "plain", eps = 1e-5 },
        no_last_norm = not before or c._remove_final_layer_norm,
      attention = { heads = heads, kv_heads = heads, head_dim = c.hidden_size // heads, bias = bias, o_bias = bias,
        dropout = c.attention_dropout,
        o_dropout = c.dropout },
      mlp = { width = c.ffn_dim, act = c.activation_function, bias = bias, dropout = c.dropout },
      kinds = describe.windows(c, c.num_hidden_layers, nil, { rope = false }), logits = {},
      layer_norms = before and { before_attention = "self_attn_layer_norm", before_mlp = "final_layer_norm" }
        or { sum_attention = "self_attn_layer_norm", sum_mlp = "final_layer_norm" },
    }
  end,
}
