--- Vision Transformer in Hugging Face's names: patches of an image as tokens, pre-norm layers.
---
---   local model = models.ViTForImageClassification { image_size = 32, patch_size = 4, hidden_size = 64,
---     num_hidden_layers = 4, num_attention_heads = 4, intermediate_size = 128, num_labels = 10 }
---   local logits = model(pixel_values)              -- [B, channels, height, width] -> [B, 10]
local PreTrainedModel = require "accel.models.pretrained_model"
local SelfAttention = require "accel.models.self_attention"
local accel = require "accel"
local add_norm = require "accel.nn.add_norm"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local config = require "accel.models.config"
local feed_forward = require "accel.models.feed_forward"
local heads = require "accel.models.decoder.heads"
local init = require "accel.nn.initialization"
local nn = require "accel.nn"
local options = require "accel.util.options"
local plans = require "accel.models.plans"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"
local tensors = require "accel.util.tensors"

local function sides(size)
  if type(size) == "table" then return size[1], size[2] end
  return size, size
end

local schema = config.schema("vit", {
  hidden_size = config.size(768), num_hidden_layers = config.count(12), num_attention_heads = config.count(12),
  intermediate_size = config.size(3072), hidden_act = config.activation "gelu",
  hidden_dropout_prob = config.rate(0.0), attention_probs_dropout_prob = config.rate(0.0),
  initializer_range = config.number(0.02), layer_norm_eps = config.number(1e-12), image_size = config.pair(224),
  patch_size = config.pair(16), num_channels = config.count(3), qkv_bias = config.flag(true),
  encoder_stride = config.size(16), pooler_output_size = config.size(), pooler_act = config.activation "tanh",
}, function(c)
  local H, W = sides(c.image_size)
  local h, w = sides(c.patch_size)
  if h > H or w > W then
    return ("a patch of %d x %d does not fit an image of %d x %d"):format(h, w, H, W)
  end
  c.pooler_output_size = c.pooler_output_size or c.hidden_size
  return config.not_multiple(c, "hidden_size", "num_attention_heads")
end)

---@class accel.models.ViTPatchEmbeddings : accel.nn.Module
local Patches = nn.Module:extend("ViTPatchEmbeddings")

function Patches:init(c)
  local h, w = sides(c.patch_size)
  self.projection = nn.Conv2d(c.num_channels, c.hidden_size, { h, w }, { stride = { h, w } })
end

--- [B, C, H, W] -> [B, patches, hidden], row by row.
function Patches:forward(x) return self.projection(x):flatten(3):transpose(2, 3) end

---@class accel.models.ViTEmbeddings : accel.nn.Module
local Embeddings = nn.Module:extend("ViTEmbeddings")

function Embeddings:init(c, mask)
  if mask then self.mask_token = nn.Parameter(accel.zeros(1, 1, c.hidden_size)) end
  local H, W = sides(c.image_size)
  local h, w = sides(c.patch_size)
  self.channels, self.height, self.width, self.rows, self.columns = c.num_channels, H, W, H // h, W // w
  self.patch_height, self.patch_width = h, w
  self.cls_token = nn.Parameter(accel.zeros(1, 1, c.hidden_size))
  self.position_embeddings = nn.Parameter(accel.zeros(1, self.rows * self.columns + 1, c.hidden_size))
  self.patch_embeddings = Patches(c)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

--- The learnt positions, resampled for an image of rows x columns patches.
function Embeddings:positions(rows, columns)
  local p = self.position_embeddings
  if rows == self.rows and columns == self.columns then return p end
  local n, width = self.rows * self.columns, p.shape[3]
  local grid = p:narrow(2, 2, n):reshape(1, self.rows, self.columns, width):permute(1, 4, 2, 3)
  grid = accel.interpolate(grid, { rows, columns }, { mode = "bicubic" })
  return accel.cat({ p:narrow(2, 1, 1), grid:permute(1, 3, 4, 2):reshape(1, rows * columns, width) }, 2)
end

function Embeddings:forward(x, interpolate, masked)
  local shape = tensors.is_tensor(x) and x.shape or {}
  if #shape ~= 4 or shape[2] ~= self.channels then
    raise("vit: expected images [batch, %d, %d, %d], got %s", self.channels, self.height, self.width,
      tensors.is_tensor(x) and tensors.shape_string(x) or check.shown(x))
  end
  if not interpolate and (shape[3] ~= self.height or shape[4] ~= self.width) then
    raise("vit: expected images [batch, %d, %d, %d], got %s (interpolate_pos_encoding = true takes other sizes)",
      self.channels, self.height, self.width, tensors.shape_string(x))
  end
  local positions = interpolate and self:positions(shape[3] // self.patch_height, shape[4] // self.patch_width)
    or self.position_embeddings
  local first, patches = self.cls_token:expand(shape[1], 1, -1), self.patch_embeddings(x)
  if masked then
    local m = masked:ne(0):to(patches.dtype):unsqueeze(3)
    patches = patches * (m * -1 + 1) + self.mask_token * m
  end
  return self.dropout(accel.cat({ first, patches }, 2) + positions)
end

--- A linear layer under the name that files give it.
---@class accel.models.ViTDense : accel.nn.Module
local Dense = nn.Module:extend("ViTDense")

function Dense:init(n_in, n_out) self.dense = nn.Linear(n_in, n_out) end

function Dense:forward(x) return self.dense(x) end

---@class accel.models.ViTAttention : accel.nn.Module
local Attention = nn.Module:extend("ViTAttention")

function Attention:init(c)
  self.attention = SelfAttention(c)
  self.output = Dense(c.hidden_size, c.hidden_size)
end

function Attention:forward(x) return self.output(self.attention(x)) end

---@class accel.models.ViTLayer : accel.nn.Module
local Layer = nn.Module:extend("ViTLayer")

function Layer:init(c)
  self.attention = Attention(c)
  self.intermediate = Dense(c.hidden_size, c.intermediate_size)
  self.output = Dense(c.intermediate_size, c.hidden_size)
  self.layernorm_before = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.layernorm_after = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.act = activation.find(c.hidden_act)
end

function Layer:forward(x)
  local y, sum = add_norm(self.layernorm_after, self.dropout(self.attention(self.layernorm_before(x))), x)
  return sum + self.dropout(feed_forward(self.intermediate, self.act, self.output, y))
end

---@class accel.models.ViTEncoder : accel.nn.Module
local Encoder = nn.Module:extend("ViTEncoder")
Encoder.gradient_checkpointing = false

function Encoder:init(c)
  self.layer = nn.ModuleList()
  for _ = 1, c.num_hidden_layers do self.layer:append(Layer(c)) end
end

function Encoder:forward(x)
  for _, layer in ipairs(self.layer) do x = run_layer(self, layer, nil, x) end
  return x
end

---@class accel.models.ViTPooler : accel.nn.Module
local Pooler = nn.Module:extend("ViTPooler")

function Pooler:init(c)
  self.dense = nn.Linear(c.hidden_size, c.pooler_output_size)
  self.act = activation.find(c.pooler_act)
end

function Pooler:forward(x) return self.act(self.dense(x:select(2, 1))) end

local PLAN <const> = plans.family {
  layers = {
    ["encoder.layer.*.attention.attention"] = "attention", ["encoder.layer.*.attention.attention.query"] = "colwise",
    ["encoder.layer.*.attention.attention.key"] = "colwise", ["encoder.layer.*.attention.attention.value"] = "colwise",
    ["encoder.layer.*.attention.output.dense"] = "rowwise", ["encoder.layer.*.intermediate.dense"] = "colwise",
    ["encoder.layer.*.output.dense"] = "rowwise",
  },
}

local Base = PreTrainedModel:define("ViTPreTrainedModel", {
  tp_divides = { "num_attention_heads" }, tp_plan = PLAN.with_prefix,
  pipeline_plan = { "embeddings", "encoder.layer.*", "layernorm" },
  sp_plan = false, -- the class token makes the sequence one longer than a number of patches
  schema = schema, _no_split_modules = { "ViTLayer" }, base_model_prefix = "vit",
  order = { ["layer.*"] = "attention layernorm_before layernorm_after intermediate output",
    embeddings = "cls_token mask_token position_embeddings" },
  ignored_keys = { "embeddings%.mask_token$" }, optional_keys = { "pooler%.dense%." },
})

--- Positions and the class token are drawn from a cut normal distribution.
function Base:initialize(t, at)
  if at.key == "cls_token" or at.key == "position_embeddings" then
    init.trunc_normal_(t, 0, self.config.initializer_range)
  else
    PreTrainedModel.initialize(self, t, at)
  end
end

--- The encoder alone: images [B, C, H, W] -> hidden states [B, patches + 1, hidden_size], and the pooled class token.
--- example: accel.models.ViTModel(accel.models.tiny.vit)(accel.zeros(2, 3, 8, 8)).shape --> { 2, 5, 8 }
---@class accel.models.ViTModel : accel.models.PreTrainedModel
local ViTModel = Base:define("ViTModel", { is_base = true, tp_plan = PLAN.base })

function ViTModel:build(c, add_pooling_layer, mask)
  self.embeddings = Embeddings(c, mask)
  self.encoder = Encoder(c)
  self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  if add_pooling_layer ~= false then self.pooler = Pooler(c) end
end

--- With interpolate_pos_encoding images may have any size. The positions are resampled.
---@param pixel_values accel.Tensor
---@param opts? {interpolate_pos_encoding: boolean?, bool_masked_pos: accel.Tensor?} bool_masked_pos [B, patches]: of models with a mask token
---@return accel.Tensor, accel.Tensor?
function ViTModel:forward(pixel_values, opts, ...)
  check.surplus("forward", ...)
  local o = options("vit", opts, { interpolate_pos_encoding = false, bool_masked_pos = options.none })
  if o.bool_masked_pos and not self.embeddings.mask_token then
    raise "vit: bool_masked_pos needs a mask token, which ViTForMaskedImageModeling has"
  end
  local x = self.layernorm(self.encoder(self.embeddings(pixel_values, o.interpolate_pos_encoding, o.bool_masked_pos)))
  return x, self.pooler and self.pooler(x)
end

--- Classifies images by their class token.
--- example: accel.models.ViTForImageClassification(accel.models.tiny.vit)(accel.zeros(2, 3, 8, 8)).shape --> { 2, 2 }
---@class accel.models.ViTForImageClassification : accel.models.PreTrainedModel
local Classification = Base:define("ViTForImageClassification", {
  pipeline_plan = { "embeddings", "encoder.layer.*", "layernorm", "classifier" },
})

function Classification:build(c)
  self.vit = ViTModel:part(c, false)
  self.classifier = nn.Linear(c.hidden_size, config.labels(c))
end

--- Logits [B, num_labels] of images [B, C, H, W], or with labels their loss. Options of ViTModel.
---@param pixel_values accel.Tensor
---@param opts? {interpolate_pos_encoding: boolean?, labels: accel.Tensor?}
---@return accel.Tensor
function Classification:forward(pixel_values, opts, ...)
  check.surplus("forward", ...)
  local own, rest = heads.taken(opts, "labels")
  local x = self.vit(pixel_values, rest)
  local logits = self.classifier(x:select(2, 1))
  return own.labels and heads.classification_loss(self.config, logits, own.labels) or logits
end

--- Paints masked patches (Xie et al. 2022): images [B, C, H, W] -> images, whose side is encoder_stride times that of
--- the grid of patches.
--- example: local m = accel.models.ViTForMaskedImageModeling(accel.models.tiny.vit)
---   return m(accel.zeros(2, 3, 8, 8)).shape --> { 2, 3, 32, 32 }
---@class accel.models.ViTForMaskedImageModeling : accel.models.PreTrainedModel
local Masked = Base:define("ViTForMaskedImageModeling", { outputs = { "reconstruction" }, ignored_keys = {} })

function Masked:build(c)
  self.vit = ViTModel:part(c, false, true)
  self.decoder = nn.ModuleList()
  self.decoder:append(nn.Conv2d(c.hidden_size, c.encoder_stride ^ 2 // 1 * c.num_channels, 1))
end

--- Images as the model sees them. With return_loss the mean absolute error over the masked patches.
---@param pixel_values accel.Tensor
---@param opts? {bool_masked_pos: accel.Tensor?, interpolate_pos_encoding: boolean?, return_loss: boolean?} bool_masked_pos [B, patches]
---@return accel.Tensor
function Masked:forward(pixel_values, opts, ...)
  check.surplus("forward", ...)
  local own, rest = heads.taken(opts, "return_loss")
  local c, x = self.config, self.vit(pixel_values, rest)
  local B, n, W = x.shape[1], x.shape[2] - 1, x.shape[3]
  local side = math.floor(math.sqrt(n))
  local y = nn.functional.pixel_shuffle(self.decoder[1](x:narrow(2, 2, n):transpose(2, 3):reshape(B, W, side, side)), c.encoder_stride)
  if not own.return_loss then return y end
  local patch, masked = c.patch_size, rest and rest.bool_masked_pos
  if not masked then raise "vit: the loss is over masked patches: give bool_masked_pos" end
  if patch ~= c.encoder_stride then raise("vit: the loss needs patch_size %s equal to encoder_stride %d", tostring(patch), c.encoder_stride) end
  local mask = masked:ne(0):to(y.dtype):reshape(B, side, side):repeat_interleave(patch, 2):repeat_interleave(patch, 3):unsqueeze(2)
  return ((pixel_values - y):abs() * mask):sum() / (mask:sum() + 1e-5) / c.num_channels
end

return { ViTModel = ViTModel, ViTForImageClassification = Classification, ViTForMaskedImageModeling = Masked }
