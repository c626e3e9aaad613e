--- The loss of image classes, and the keys that ViT's relatives share. Used by the families of images in models/families.
local check = require "accel.util.check"
local config = require "accel.models.config"
local decoder_heads = require "accel.models.decoder.heads"
local nn = require "accel.nn"

local M = {}

--- Keys of config.json of a ViT. Entries of `own` replace them, false removes one.
---@param own? table
function M.keys(own)
  local keys = {
    hidden_size = config.size(768), num_hidden_layers = config.count(12), num_attention_heads = config.count(12),
    intermediate_size = config.size(3072), hidden_act = config.activation "gelu", hidden_dropout_prob = config.rate(0.0),
    attention_probs_dropout_prob = config.rate(0.0), initializer_range = config.number(0.02), layer_norm_eps = config.number(1e-12),
    image_size = config.pair(224), patch_size = config.pair(16), num_channels = config.count(3), qkv_bias = config.flag(true),
    encoder_stride = config.size(16), pooler_output_size = config.size(), pooler_act = config.activation "tanh",
    out_features = config.unused(), out_indices = config.unused(), stage_names = config.unused(), reshape_hidden_states = config.unused(),
    apply_layernorm = config.unused(),
  }
  for key, field in next, own or {} do keys[key] = field or nil end
  return keys
end

--- The tower of a configuration with these keys.
---@param c table
---@param names table<string, string>
---@return accel.models.Tower
function M.tower(c, names)
  return {
    width = c.hidden_size, layers = c.num_hidden_layers, heads = c.num_attention_heads, ffn = config.get(c, "intermediate_size"),
    act = c.hidden_act, eps = c.layer_norm_eps, dropout = config.get(c, "hidden_dropout_prob") or 0.0,
    attention_dropout = config.get(c, "attention_probs_dropout_prob") or config.get(c, "attention_dropout") or 0.0,
    qkv_bias = config.get(c, "qkv_bias"), names = names,
  }
end

--- Adds build and forward of an image classifier to a class: pool(x) gives [B, width] of the base model's results.
---@param cls table
---@param prefix string
---@param Base table
---@param o {pool: (fun(self: table, ...): accel.Tensor), width: (fun(c: table): integer), pooler: boolean?}
function M.classifier(cls, prefix, Base, o)
  function cls:build(c)
    self[prefix] = Base:part(c, o.pooler or false)
    self.classifier = nn.Linear(o.width(c), config.labels(c))
  end

  --- Scores [B, num_labels] of images [B, C, H, W], or with labels their loss.
  ---@param pixel_values accel.Tensor
  ---@param opts? table labels, and options of the base model
  ---@return accel.Tensor
  function cls:forward(pixel_values, opts, ...)
    check.surplus("forward", ...)
    local own, rest = decoder_heads.taken(opts, "labels")
    local logits = self.classifier(o.pool(self, self[prefix](pixel_values, rest)))
    return own.labels and decoder_heads.classification_loss(self.config, logits, own.labels) or logits
  end
end

return M
