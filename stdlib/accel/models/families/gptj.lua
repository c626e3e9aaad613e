--- GPT-J: rotary positions of neighbouring pairs in the first part of a head, parallel parts from one norm, a head with bias.
--- example: #accel.models.GPTJForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 15
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

return require "accel.models.decoder.family" {
  model_type = "gptj", prefix = "GPTJ", layer = "GPTJBlock", heads = { "causal", "sequence", "question" },
  order = { ["h.*"] = "ln_1 attn mlp", ["h.*.attn"] = "k_proj v_proj q_proj out_proj" },
  weights = { base = "transformer", embed = "wte", layers = "h", norm = "ln_f", attention = "attn", o = "out_proj",
    up = "fc_in", down = "fc_out" },
  tp_divides = { "n_head" },
  keys = {
    vocab_size = config.size(50400), n_positions = config.size(2048), n_embd = config.size(4096),
    n_layer = config.count(28), n_head = config.count(16), rotary_dim = config.nullable(config.size(64)),
    n_inner = config.nullable(config.size()), activation_function = config.activation "gelu_new",
    resid_pdrop = config.rate(0.0), embd_pdrop = config.rate(0.0), attn_pdrop = config.rate(0.0),
    layer_norm_epsilon = config.number(1e-5), initializer_range = config.number(0.02),
    tie_word_embeddings = config.flag(false), bos_token_id = config.in_files(config.token(), 50256),
    eos_token_id = config.in_files(config.tokens(), 50256),
  },
  aliases = { hidden_size = "n_embd", max_position_embeddings = "n_positions", num_attention_heads = "n_head",
    num_hidden_layers = "n_layer" },
  describe = function(c)
    local heads = c.n_head
    if c.n_embd % heads ~= 0 then describe.fail(("n_embd %d is not a multiple of n_head %d"):format(c.n_embd, heads)) end
    local D = c.n_embd // heads
    return {
      layers = c.n_layer, width = c.n_embd, vocab = c.vocab_size, norm = { kind = "layer", eps = c.layer_norm_epsilon }, parallel = true,
      attention = { heads = heads, kv_heads = heads, head_dim = D, bias = false, o_bias = false,
        dropout = c.attn_pdrop, o_dropout = c.resid_pdrop },
      mlp = { width = c.n_inner or 4 * c.n_embd, act = c.activation_function, bias = true, dropout = c.resid_pdrop },
        embed_dropout = c.embd_pdrop,
      kinds = describe.windows(c, c.n_layer), rotary = { interleaved = true, sets = { all = describe.rotary_set(c,
        { theta = 10000.0, head_dim = D,
        dim = c.rotary_dim or D, rope = {} }) } }, layer_norms = { before_attention = "ln_1" }, head_bias = true, logits = {},
    }
  end,
}
