--- GPT-BigCode (StarCoder): GPT-2 with one key-value head and linear layers in the usual layout.
--- example: #accel.models.GPTBigCodeForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 16
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gpt_bigcode", prefix = "GPTBigCode", layer = "GPTBigCodeBlock", heads = { "causal", "sequence", "token" },
  order = { ["h.*"] = "ln_1 attn ln_2 mlp" },
  weights = { token = "classifier", base = "transformer", embed = "wte", positions = "wpe", layers = "h", norm = "ln_f", attention = "attn",
    qkv = "c_attn", o = "c_proj",
    up = "c_fc", down = "c_proj" },
  tp_divides = { "n_head" },
  keys = {
    vocab_size = config.size(50257), n_positions = config.size(1024), n_embd = config.size(768),
    n_layer = config.count(12), n_head = config.count(12), n_inner = config.nullable(config.size()),
    activation_function = config.activation "gelu_pytorch_tanh", resid_pdrop = config.rate(0.1),
    embd_pdrop = config.rate(0.1), attn_pdrop = config.rate(0.1), layer_norm_epsilon = config.number(1e-5),
    initializer_range = config.number(0.02), scale_attn_weights = config.flag(true),
    multi_query = config.flag(true), num_key_value_heads = config.unused(),
    add_cross_attention = config.fixed(false), attention_softmax_in_fp32 = config.unused(),
    scale_attention_softmax_in_fp32 = config.unused(), tie_word_embeddings = config.flag(true),
    bos_token_id = config.in_files(config.token(), 50256),
    eos_token_id = config.in_files(config.tokens(), 50256), inference_runner = config.unused(),
    pre_allocate_kv_cache = config.unused(), validate_runner_input = config.unused(),
    max_batch_size = config.unused(), max_sequence_length = config.unused(),
  },
  aliases = { hidden_size = "n_embd", max_position_embeddings = "n_positions", num_attention_heads = "n_head",
    num_hidden_layers = "n_layer" },
  describe = function(c)
    local heads = c.n_head
    if c.n_embd % heads ~= 0 then describe.fail(("n_embd %d is not a multiple of n_head %d"):format(c.n_embd, heads)) end
    return {
      layers = c.n_layer, width = c.n_embd, vocab = c.vocab_size, norm = { kind = "layer", eps = c.layer_norm_epsilon },
      positions = { n = c.n_positions }, embed_dropout = c.embd_pdrop, kinds = describe.windows(c, c.n_layer, nil,
        { rope = false }), logits = {},
      attention = { heads = heads, kv_heads = c.multi_query and 1 or heads, head_dim = c.n_embd // heads, bias = true, o_bias = true,
        fused = c.multi_query and "rows" or "heads", scale = not c.scale_attn_weights and 1.0 or nil,
        dropout = c.attn_pdrop, o_dropout = c.resid_pdrop },
      mlp = { width = c.n_inner or 4 * c.n_embd, act = c.activation_function, bias = true, dropout = c.resid_pdrop },
      layer_norms = { before_attention = "ln_1", before_mlp = "ln_2" },
    }
  end,
}
