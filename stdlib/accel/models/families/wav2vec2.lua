--- wav2vec 2.0 (Baevski et al. 2020): convolutions over the wave, a convolution for positions, and an encoder; letters by CTC.
--- example: #accel.models.Wav2Vec2Model({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 35
local Parameter = require "accel.nn.parameter"
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local config = require "accel.models.config"
local context = require "accel.models.context"
local decoder_heads = require "accel.models.decoder.heads"
local nn = require "accel.nn"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local keys = {
  vocab_size = config.size(32), hidden_size = config.size(768), num_hidden_layers = config.count(12),
  num_attention_heads = config.count(12),
  intermediate_size = config.size(3072), hidden_act = config.activation "gelu", hidden_dropout = config.rate(0.1),
  activation_dropout = config.rate(0.1),
  attention_dropout = config.rate(0.1), feat_proj_dropout = config.rate(0.0), final_dropout = config.rate(0.1),
  layerdrop = config.only(function(v) return v == 0 end, "0 (set layerdrop = 0 in config)"), initializer_range = config.number(0.02),
  layer_norm_eps = config.number(1e-5), feat_extract_norm = config.word("group", { "group", "layer" }),
  feat_extract_activation = config.activation "gelu",
  conv_dim = config.sizes { 512, 512, 512, 512, 512, 512, 512 }, conv_stride = config.sizes { 5, 2, 2, 2, 2, 2, 2 },
  conv_kernel = config.sizes { 10, 3, 3, 3, 3, 2, 2 }, conv_bias = config.flag(false), num_conv_pos_embeddings = config.size(128),
  num_conv_pos_embedding_groups = config.size(16), do_stable_layer_norm = config.flag(false),
  ctc_loss_reduction = config.word("sum", { "sum", "mean" }), ctc_zero_infinity = config.flag(false), add_adapter = config.fixed(false),
  adapter_attn_dim = config.only(function(v) return v == nil end, "no adapter"), pad_token_id = config.in_files(config.token(), 0),
  bos_token_id = config.in_files(config.token(), 1), eos_token_id = config.in_files(config.tokens(), 2),
  apply_spec_augment = config.flag(true), mask_time_prob = config.rate(0.05), mask_feature_prob = config.rate(0.0),
}
for _, key in ipairs { "num_feat_extract_layers", "mask_time_length", "mask_time_min_masks", "mask_feature_length",
  "mask_feature_min_masks", "num_codevectors_per_group", "num_codevector_groups", "contrastive_logits_temperature",
    "num_negatives", "codevector_dim",
  "proj_codevector_dim", "diversity_loss_weight", "feat_quantizer_dropout", "use_weighted_layer_sum",
    "classifier_proj_size", "tdnn_dim", "tdnn_kernel",
  "tdnn_dilation", "xvector_output_dim", "adapter_kernel_size", "adapter_stride", "num_adapter_layers", "output_hidden_size" } do
  keys[key] = config.unused()
end
local schema = config.schema("wav2vec2", keys, function(c)
  if #c.conv_dim ~= #c.conv_stride or #c.conv_dim ~= #c.conv_kernel then return "conv_dim, conv_stride and conv_kernel must have as many entries" end
  return config.not_multiple(c, "hidden_size", "num_attention_heads") or config.not_multiple(c, "hidden_size",
    "num_conv_pos_embedding_groups")
end)
local Root = PreTrainedModel:define("Wav2Vec2PreTrainedModel", { schema = schema, _no_split_modules = { "Wav2Vec2EncoderLayer" },
  base_model_prefix = "wav2vec2" })

--- Older files name the two parts of the weight-normalised kernel otherwise.
function Root:rename(name) -- luacheck: no self
  return (name:gsub("pos_conv_embed%.conv%.weight_g$", "pos_conv_embed.conv.parametrizations.weight.original0")
    :gsub("pos_conv_embed%.conv%.weight_v$", "pos_conv_embed.conv.parametrizations.weight.original1"))
end

---@class accel.models.Wav2Vec2ConvLayer : accel.nn.Module
local Conv = nn.Module:extend("Wav2Vec2ConvLayer")

function Conv:init(c, i)
  local n = c.conv_dim[i]
  self.conv = nn.Conv1d(i == 1 and 1 or c.conv_dim[i - 1], n, c.conv_kernel[i], { stride = c.conv_stride[i], bias = c.conv_bias })
  self.act, self.channels = activation.find(c.feat_extract_activation), c.feat_extract_norm == "layer"
  if self.channels then self.layer_norm = nn.LayerNorm(n,
    { eps = 1e-5 }) elseif i == 1 then self.layer_norm = nn.GroupNorm(n, n, { eps = 1e-5 }) end
end

function Conv:forward(x)
  x = self.conv(x)
  if self.channels then x = self.layer_norm(x:transpose(2, 3)):transpose(2, 3) elseif self.layer_norm then x = self.layer_norm(x) end
  return self.act(x)
end

--- A convolution over time whose kernel has a length for each place: weight = g * v / |v|.
---@class accel.models.Wav2Vec2PositionConv : accel.nn.Module
local Positions = nn.Module:extend("Wav2Vec2PositionConv")

function Positions:init(c)
  local W, K, G = c.hidden_size, c.num_conv_pos_embeddings, c.num_conv_pos_embedding_groups
  local weight, parametrizations = nn.Module(), nn.Module()
  weight.original0 = Parameter(accel.ones(1, 1, K))
  weight.original1 = Parameter(accel.zeros(W, W // G, K))
  parametrizations.weight = weight
  self.conv = nn.Module()
  self.conv.bias = Parameter(accel.zeros(W))
  self.conv.parametrizations = parametrizations
  self.K, self.G, self.act = K, G, activation.find(c.feat_extract_activation)
end

--- x [B, T, W] -> [B, T, W].
function Positions:forward(x)
  local p = self.conv.parametrizations.weight
  local v = p.original1
  local weight = v * (p.original0 / v:square():sum({ 1, 2 }, true):sqrt())
  local y = accel.conv1d(x:transpose(2, 3), weight, self.conv.bias, { padding = self.K // 2, groups = self.G })
  return self.act(y:narrow(3, 1, x.shape[2])):transpose(2, 3)
end

---@class accel.models.Wav2Vec2EncoderLayer : accel.nn.Module
local Layer = nn.Module:extend("Wav2Vec2EncoderLayer")

function Layer:init(c)
  local W = c.hidden_size
  local a, f = nn.Module(), nn.Module()
  a.k_proj = nn.Linear(W, W)
  a.v_proj = nn.Linear(W, W)
  a.q_proj = nn.Linear(W, W)
  a.out_proj = nn.Linear(W, W)
  f.intermediate_dense = nn.Linear(W, c.intermediate_size)
  f.output_dense = nn.Linear(c.intermediate_size, W)
  self.attention = a
  self.layer_norm = nn.LayerNorm(W, { eps = c.layer_norm_eps })
  self.feed_forward = f
  self.final_layer_norm = nn.LayerNorm(W, { eps = c.layer_norm_eps })
  self.heads, self.attn_pdrop, self.norm_first = c.num_attention_heads, c.attention_dropout, c.do_stable_layer_norm
  self.act = activation.find(c.hidden_act)
  self.dropout = nn.Dropout(c.hidden_dropout)
  self.activation_dropout = nn.Dropout(c.activation_dropout)
end

function Layer:attend_all(x, mask)
  local a, B, T = self.attention, x.shape[1], x.shape[2]
  local function heads(y) return y:view(B, T, self.heads, -1):transpose(2, 3) end
  local y = context.attend(self, nil, 0, heads(a.q_proj(x)), heads(a.k_proj(x)), heads(a.v_proj(x)),
    { attn_mask = mask, dropout_p = self.training and self.attn_pdrop or 0.0 })
  return self.dropout(a.out_proj(y:transpose(2, 3):reshape(B, T, -1)))
end

function Layer:feed(x)
  local f = self.feed_forward
  return self.dropout(f.output_dense(self.activation_dropout(self.act(f.intermediate_dense(x)))))
end

function Layer:forward(x, mask)
  if self.norm_first then
    x = x + self:attend_all(self.layer_norm(x), mask)
    return x + self:feed(self.final_layer_norm(x))
  end
  x = self.layer_norm(x + self:attend_all(x, mask))
  return self.final_layer_norm(x + self:feed(x))
end

---@class accel.models.Wav2Vec2Model : accel.models.PreTrainedModel
local Model = Root:define("Wav2Vec2Model", { is_base = true, gradient_checkpointing = false,
  outputs = { "last_hidden_state", "extract_features" } })

function Model:build(c)
  local features, projection, encoder = nn.Module(), nn.Module(), nn.Module()
  features.conv_layers = nn.ModuleList()
  for i = 1, #c.conv_dim do features.conv_layers:append(Conv(c, i)) end
  projection.layer_norm = nn.LayerNorm(c.conv_dim[#c.conv_dim], { eps = c.layer_norm_eps })
  projection.projection = nn.Linear(c.conv_dim[#c.conv_dim], c.hidden_size)
  self.feature_extractor = features
  self.feature_projection = projection
  self.masked_spec_embed = Parameter(accel.zeros(c.hidden_size))
  encoder.pos_conv_embed = Positions(c)
  encoder.layer_norm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  encoder.layers = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do encoder.layers:append(Layer(c)) end
  self.encoder = encoder
  self.projection_dropout = nn.Dropout(c.feat_proj_dropout)
  self.hidden_dropout = nn.Dropout(c.hidden_dropout)
end

--- Features that so many samples give.
---@param n integer
---@return integer
function Model:feature_length(n)
  local c = self.config
  for i = 1, #c.conv_kernel do n = (n - c.conv_kernel[i]) // c.conv_stride[i] + 1 end
  return math.max(n, 0)
end

--- Hidden states [B, features, hidden_size] of waves [B, samples], and the features before the encoder. attention_mask [B, samples] is 1 for
--- samples and 0 for padding at the end.
---@param waves accel.Tensor
---@param opts? {attention_mask: accel.Tensor?}
---@return accel.Tensor, accel.Tensor
function Model:forward(waves, opts, ...)
  check.surplus("forward", ...)
  local o, e = options("wav2vec2", opts, { attention_mask = options.none }), self.encoder
  local c = self.config
  if self.training and c.apply_spec_augment and (c.mask_time_prob > 0 or c.mask_feature_prob > 0) then
    no_effect.once("wav2vec2", "apply_spec_augment",
      "in training: features are not masked, whatever mask_time_prob and mask_feature_prob are; set it to false")
  end
  if waves.ndim ~= 2 then raise("wav2vec2: expected waves [batch, samples], got %s", tostring(waves.shape)) end
  local x = waves:unsqueeze(2)
  for _, conv in ipairs(self.feature_extractor.conv_layers) do x = conv(x) end
  local features = self.feature_projection.layer_norm(x:transpose(2, 3))
  x = self.projection_dropout(self.feature_projection.projection(features))
  local mask
  if o.attention_mask then
    local T, rows = x.shape[2], {}
    for b, n in ipairs(o.attention_mask:ne(0):to("i64"):sum(2):tolist()) do
      rows[b] = {}
      local own = self:feature_length(n)
      for t = 1, T do rows[b][t] = t <= own and 1 or 0 end
    end
    mask = accel.tensor(rows, { dtype = "i64", device = x.device })
    x = x * mask:to(x.dtype):unsqueeze(3)
  end
  x = x + e.pos_conv_embed(x)
  local stable = c.do_stable_layer_norm
  if not stable then x = e.layer_norm(x) end
  x = self.hidden_dropout(x)
  local seen = mask and context.padding("wav2vec2", mask, x.shape[1], x.shape[2])
  for _, layer in ipairs(e.layers) do x = run_layer(self, layer, nil, x, seen) end
  if stable then x = e.layer_norm(x) end
  return x, features
end

---@class accel.models.Wav2Vec2ForCTC : accel.models.PreTrainedModel
local CTC = Root:define("Wav2Vec2ForCTC", { outputs = { "logits" } })

function CTC:build(c)
  self.wav2vec2 = Model:part(c)
  self.dropout = nn.Dropout(c.final_dropout)
  self.lm_head = nn.Linear(c.hidden_size, c.vocab_size)
end

--- Scores of letters [B, features, vocab_size] of waves [B, samples], or with labels [B, letters] (-100: none) the CTC loss, whose blank is
--- pad_token_id.
---@param waves accel.Tensor
---@param opts? {labels: accel.Tensor?, attention_mask: accel.Tensor?}
---@return accel.Tensor
function CTC:forward(waves, opts, ...)
  check.surplus("forward", ...)
  local own, rest = decoder_heads.taken(opts, "labels")
  local logits, c = self.lm_head(self.dropout((self.wav2vec2(waves, rest)))), self.config
  if not own.labels then return logits end
  local samples, inputs, lengths = {}, {}, own.labels:ge(0):to("i64"):sum(2):tolist()
  if rest and rest.attention_mask then samples = rest.attention_mask:ne(0):to("i64"):sum(2):tolist() end
  for b = 1, waves.shape[1] do inputs[b] = self.wav2vec2:feature_length(samples[b] or waves.shape[2]) end
  local wide = logits.dtype == "f64" and logits or logits:to "f32"
  return nn.functional.ctc_loss(wide:log_softmax(3):transpose(1, 2), own.labels, inputs, lengths, {
    blank = c.pad_token_id or 0, reduction = c.ctc_loss_reduction, zero_infinity = c.ctc_zero_infinity })
end

return { Wav2Vec2Model = Model, Wav2Vec2ForCTC = CTC }
