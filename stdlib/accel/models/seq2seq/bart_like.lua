--- Keys that BART and its relatives share. Used by their files in models/families.
local config = require "accel.models.config"
local describe = require "accel.models.decoder.describe"

local M = {}

--- Keys of config.json. Entries of `own` replace them, false removes one.
---@param own? table
function M.keys(own)
  local keys = {
    vocab_size = config.size(50265), d_model = config.size(1024), encoder_layers = config.count(12), encoder_ffn_dim = config.size(4096),
    encoder_attention_heads = config.count(16), decoder_layers = config.count(12), decoder_ffn_dim = config.size(4096),
    decoder_attention_heads = config.count(16), max_position_embeddings = config.size(1024), activation_function = config.activation "gelu",
    dropout = config.rate(0.1), attention_dropout = config.rate(0.0), activation_dropout = config.rate(0.0), init_std = config.number(0.02),
    classifier_dropout = config.rate(0.0), scale_embedding = config.flag(false), encoder_layerdrop = config.only(function(v) return v == 0 end, "0"),
    decoder_layerdrop = config.only(function(v) return v == 0 end, "0"), tie_word_embeddings = config.flag(true),
    pad_token_id = config.in_files(config.token(), 1), bos_token_id = config.in_files(config.token(), 0),
    eos_token_id = config.in_files(config.tokens(), 2), decoder_start_token_id = config.nullable(config.token(2)),
    forced_eos_token_id = config.nullable(config.tokens()), forced_bos_token_id = config.nullable(config.token()), is_decoder = config.unused(),
    num_hidden_layers = config.unused(), add_bias_logits = config.fixed(false), add_final_layer_norm = config.unused(),
    normalize_before = config.unused(), normalize_embedding = config.unused(), static_position_embeddings = config.unused(),
    extra_pos_embeddings = config.unused(), task_specific_params = config.unused(), gradient_checkpointing = config.unused(),
  }
  for key, field in next, own or {} do keys[key] = field or nil end
  return keys
end

M.ALIASES = { hidden_size = "d_model", num_attention_heads = "encoder_attention_heads", initializer_range = "init_std" }

--- The description for the usual keys.
---@param c table
---@return accel.models.Seq2Seq
function M.describe(c)
  for _, key in ipairs { "encoder_attention_heads", "decoder_attention_heads" } do
    if c.d_model % c[key] ~= 0 then describe.fail(("d_model %d is not a multiple of %s %d"):format(c.d_model, key, c[key])) end
  end
  local longest = config.get(c, "max_position_embeddings")
  return {
    width = c.d_model, vocab = c.vocab_size, act = c.activation_function, dropout = c.dropout, attention_dropout = c.attention_dropout,
    activation_dropout = c.activation_dropout, scale_embedding = c.scale_embedding, pad = c.pad_token_id, logits_bias = true,
    encoder = { layers = c.encoder_layers, heads = c.encoder_attention_heads, ffn = c.encoder_ffn_dim, positions = longest },
    decoder = { layers = c.decoder_layers, heads = c.decoder_attention_heads, ffn = c.decoder_ffn_dim, positions = longest },
  }
end

return M
