--- OLMo 3: OLMo 2 with windows in three of four layers. Scaled rotary positions are for layers without a window.
--- example: #accel.models.Olmo3ForCausalLM({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 14
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

--- One set for each kind of layer, or in old files one whose scaling is for full attention alone.
local function rotaries(c, head_dim)
  local given, sets = c.rope_parameters or {}, {}
  for _, word in ipairs { "full_attention", "sliding_attention" } do
    local rope = given[word]
    if type(rope) ~= "table" then
      rope = {}
      for key, value in next, c.rope_scaling or given do
        if word == "full_attention" or key == "rope_theta" then rope[key] = value end
      end
      rope.rope_theta = rope.rope_theta or c.rope_theta
    end
    sets[word] = describe.rotary_set(c, { rope = rope, theta = 500000.0, head_dim = head_dim })
  end
  return sets
end

return require "accel.models.decoder.family" {
  model_type = "olmo3", prefix = "Olmo3", heads = { "causal", "sequence" },
  keys = describe.window_keys {
    head_dim = false, rms_norm_eps = config.number(1e-5), vocab_size = config.size(50304),
    bos_token_id = config.token(), sliding_window = config.nullable(config.size(4096)),
    eos_token_id = config.in_files(config.tokens(), 50279), pad_token_id = config.in_files(config.token(), 1),
  },
  describe = function(c)
    local d = describe.llama(c, { window = c.sliding_window, rotary = rotaries(c, c.hidden_size // c.num_attention_heads), kinds = {
      rule = function(i) return i % 4 ~= 0 and "sliding_attention" or "full_attention" end, rope = function(word) return word end } })
    d.attention.qk_norm = "whole"
    d.layer_norms = { after_attention = "post_attention_layernorm", after_mlp = "post_feedforward_layernorm" }
    return d
  end,
}
