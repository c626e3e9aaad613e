--- GPT-Neo: GPT-2 with separate projections, scores that are not scaled, and a window in every other layer.
--- example: #accel.models.GPTNeoForCausalLM({}, { device = "meta" }):parameters() --> 316
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

--- The words of attention_types ({{words, times}, ...}) or of attention_layers, by layer.
local function words(c)
  local out = {}
  for _, entry in ipairs(c.attention_layers and {} or c.attention_types) do
    for _ = 1, math.tointeger(entry[2]) or 0 do
      for _, word in ipairs(entry[1]) do out[#out + 1] = word end
      if #out > 4096 then describe.fail "attention_types has more than 4096 layers" end
    end
  end
  if c.attention_layers then out = c.attention_layers end
  if #out ~= c.num_layers then describe.fail(("attention_types gives %d layers, num_layers %d"):format(#out, c.num_layers)) end
  return out
end

return require "accel.models.decoder.family" {
  model_type = "gpt_neo", prefix = "GPTNeo", layer = "GPTNeoBlock",
  order = { ["h.*"] = "ln_1 attn ln_2 mlp", ["attn.attention"] = "k_proj v_proj q_proj out_proj" },
  weights = { token = "classifier", base = "transformer", embed = "wte", positions = "wpe", layers = "h", norm = "ln_f",
    attention = "attn.attention", o = "out_proj",
    up = "c_fc", down = "c_proj" },
  tp_divides = { "num_heads" },
  keys = {
    vocab_size = config.size(50257), max_position_embeddings = config.size(2048),
    hidden_size = config.size(2048), num_layers = config.count(24), num_heads = config.count(16),
    attention_types = config.table { { { "global", "local" }, 12 } }, attention_layers = config.table(),
    intermediate_size = config.nullable(config.size()), window_size = config.size(256),
    activation_function = config.activation "gelu_new", resid_dropout = config.rate(0.0),
    embed_dropout = config.rate(0.0), attention_dropout = config.rate(0.0),
    classifier_dropout = config.rate(0.1), layer_norm_epsilon = config.number(1e-5),
    initializer_range = config.number(0.02), tie_word_embeddings = config.flag(true),
    bos_token_id = config.in_files(config.token(), 50256),
    eos_token_id = config.in_files(config.tokens(), 50256),
  },
  aliases = { num_attention_heads = "num_heads", num_hidden_layers = "num_layers" },
  describe = function(c)
    local heads, kinds = c.num_heads, {}
    if c.hidden_size % heads ~= 0 then describe.fail(("hidden_size %d is not a multiple of num_heads %d"):format(c.hidden_size, heads)) end
    for i, word in ipairs(words(c)) do kinds[i] = { layer = i, window = word == "local" and c.window_size or nil } end
    return {
      layers = c.num_layers, width = c.hidden_size, vocab = c.vocab_size, norm = { kind = "layer", eps = c.layer_norm_epsilon },
      positions = { n = c.max_position_embeddings }, embed_dropout = c.embed_dropout, kinds = kinds, logits = {},
      attention = { heads = heads, kv_heads = heads, head_dim = c.hidden_size // heads, bias = false, o_bias = true, scale = 1.0,
        dropout = c.attention_dropout, o_dropout = c.resid_dropout },
      mlp = { width = c.intermediate_size or 4 * c.hidden_size, act = c.activation_function, bias = true, dropout = c.resid_dropout },
      layer_norms = { before_attention = "ln_1", before_mlp = "ln_2" },
    }
  end,
}
