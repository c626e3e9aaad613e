--- SegFormer (Xie et al. 2021): stages of attention with reduced keys, mixed by convolutions, and a decoder of linear layers for each pixel.
--- example: #accel.models.SegformerModel({}, { device = "meta" }):parameters() --> 192
local DropPath = require "accel.models.vision.drop_path"
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local context = require "accel.models.context"
local decoder_heads = require "accel.models.decoder.heads"
local means = require "accel.autograd.means"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local STAGES <const> = { "depths", "sr_ratios", "hidden_sizes", "patch_sizes", "strides", "num_attention_heads", "mlp_ratios" }
local schema = config.schema("segformer", {
  num_channels = config.count(3), num_encoder_blocks = config.count(4), depths = config.sizes { 2, 2, 2, 2 },
  sr_ratios = config.sizes { 8, 4, 2, 1 },
  hidden_sizes = config.sizes { 32, 64, 160, 256 }, patch_sizes = config.sizes { 7, 3, 3, 3 }, strides = config.sizes { 4, 2, 2, 2 },
  num_attention_heads = config.sizes { 1, 2, 5, 8 }, mlp_ratios = config.sizes { 4, 4, 4, 4 }, hidden_act = config.activation "gelu",
  hidden_dropout_prob = config.rate(0.0), attention_probs_dropout_prob = config.rate(0.0), classifier_dropout_prob = config.rate(0.1),
  initializer_range = config.number(0.02), drop_path_rate = config.rate(0.1), layer_norm_eps = config.unused(),
  -- norms keep 1e-5, as in Transformers
  decoder_hidden_size = config.size(256), semantic_loss_ignore_index = config.number(255, -2 ^ 31, 2 ^ 31),
  reshape_last_stage = config.fixed(true),
  image_size = config.unused(), downsampling_rates = config.unused(),
}, function(c)
  for _, key in ipairs(STAGES) do
    if #c[key] ~= c.num_encoder_blocks then return ("%s has %d entries for %d stages"):format(key, #c[key], c.num_encoder_blocks) end
  end
  for s, heads in ipairs(c.num_attention_heads) do
    if c.hidden_sizes[s] % heads ~= 0 then
      return ("num_attention_heads[%d] %d does not divide hidden_sizes %d"):format(s, heads, c.hidden_sizes[s])
    end
  end
end)
local Root = PreTrainedModel:define("SegformerPreTrainedModel", { schema = schema, _no_split_modules = { "SegformerLayer" },
  base_model_prefix = "segformer" })

---@class accel.models.SegformerLayer : accel.nn.Module
local Layer = nn.Module:extend("SegformerLayer")

function Layer:init(c, s, rate)
  local W, hidden, ratio = c.hidden_sizes[s], c.hidden_sizes[s] * c.mlp_ratios[s], c.sr_ratios[s]
  self.heads, self.attn_pdrop = c.num_attention_heads[s], c.attention_probs_dropout_prob
  self.layer_norm_1 = nn.LayerNorm(W, { eps = 1e-5 })
  self.attention = nn.Module()
  local a = nn.Module()
  a.query = nn.Linear(W, W)
  a.key = nn.Linear(W, W)
  a.value = nn.Linear(W, W)
  if ratio > 1 then a.sr, a.layer_norm = nn.Conv2d(W, W, ratio, { stride = ratio }), nn.LayerNorm(W, { eps = 1e-5 }) end
  self.attention.self = a
  self.attention.output = nn.Module()
  self.attention.output.dense = nn.Linear(W, W)
  self.layer_norm_2 = nn.LayerNorm(W, { eps = 1e-5 })
  self.mlp = nn.Module()
  self.mlp.dense1 = nn.Linear(W, hidden)
  self.mlp.dwconv = nn.Module()
  self.mlp.dwconv.dwconv = nn.Conv2d(hidden, hidden, 3, { padding = 1, groups = hidden })
  self.mlp.dense2 = nn.Linear(hidden, W)
  self.act = activation.find(c.hidden_act)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.drop_path = DropPath(rate)
end

local function map_of(x, H, W) return x:transpose(2, 3):reshape(x.shape[1], x.shape[3], H, W) end
local function rows_of(x) return x:flatten(3):transpose(2, 3) end

--- x [B, H * W, width].
function Layer:forward(x, H, W)
  local a, B = self.attention.self, x.shape[1]
  local y = self.layer_norm_1(x)
  local from = a.sr and a.layer_norm(rows_of(a.sr(map_of(y, H, W)))) or y
  local function heads(t) return t:view(B, t.shape[2], self.heads, -1):transpose(2, 3) end
  local z = context.attend(self, nil, 0, heads(a.query(y)), heads(a.key(from)), heads(a.value(from)),
    { dropout_p = self.training and self.attn_pdrop or 0.0 })
  x = x + self.drop_path(self.dropout(self.attention.output.dense(z:transpose(2, 3):reshape(B, H * W, -1))))
  local m = self.mlp
  z = rows_of(m.dwconv.dwconv(map_of(m.dense1(self.layer_norm_2(x)), H, W)))
  return x + self.drop_path(self.dropout(m.dense2(self.dropout(self.act(z)))))
end

---@class accel.models.SegformerModel : accel.models.PreTrainedModel
local Model = Root:define("SegformerModel", { is_base = true, gradient_checkpointing = false, outputs = { "last_hidden_state" } })

function Model:build(c)
  local e, total, done = nn.Module(), 0, 0
  self.encoder = e
  e.patch_embeddings = nn.ModuleList()
  e.block = nn.ModuleList()
  e.layer_norm = nn.ModuleList()
  for _, n in ipairs(c.depths) do total = total + n end
  for s = 1, c.num_encoder_blocks do
    local patches, blocks, k = nn.Module(), nn.ModuleList(), c.patch_sizes[s]
    patches.proj = nn.Conv2d(s == 1 and c.num_channels or c.hidden_sizes[s - 1], c.hidden_sizes[s], k,
      { stride = c.strides[s], padding = k // 2 })
    patches.layer_norm = nn.LayerNorm(c.hidden_sizes[s], { eps = 1e-5 })
    for _ = 1, c.depths[s] do
      blocks:append(Layer(c, s, c.drop_path_rate * done / math.max(total - 1, 1)))
      done = done + 1
    end
    e.patch_embeddings:append(patches)
    e.block:append(blocks)
    e.layer_norm:append(nn.LayerNorm(c.hidden_sizes[s], { eps = 1e-5 }))
  end
end

--- The feature maps of all stages, [B, width, H, W] each. The last stage is first.
---@param x accel.Tensor images [B, C, H, W]
---@return accel.Tensor last, accel.Tensor[] all
function Model:forward(x, ...)
  check.surplus("forward", ...)
  if x.ndim ~= 4 or x.shape[2] ~= self.config.num_channels then
    raise("segformer: expected images [batch, %d, height, width], got %s", self.config.num_channels, tostring(x.shape))
  end
  local e, maps = self.encoder, {}
  for s, blocks in ipairs(e.block) do
    x = e.patch_embeddings[s].proj(x)
    local H, W = x.shape[3], x.shape[4]
    x = e.patch_embeddings[s].layer_norm(rows_of(x))
    for _, layer in ipairs(blocks) do x = run_layer(self, layer, nil, x, H, W) end
    x = map_of(e.layer_norm[s](x), H, W)
    maps[s] = x
  end
  return x, maps
end

--- Classes of images by the mean of the last stage.
---@class accel.models.SegformerForImageClassification : accel.models.PreTrainedModel
local Classes = Root:define("SegformerForImageClassification", {})
classify.classifier(Classes, "segformer", Model, { pool = function(_, x) return rows_of(x):mean(2) end,
  width = function(c) return c.hidden_sizes[c.num_encoder_blocks] end })

---@class accel.models.SegformerDecodeHead : accel.nn.Module
local Head = nn.Module:extend("SegformerDecodeHead")

function Head:init(c)
  self.linear_c = nn.ModuleList()
  for s = 1, c.num_encoder_blocks do
    local m = nn.Module()
    m.proj = nn.Linear(c.hidden_sizes[s], c.decoder_hidden_size)
    self.linear_c:append(m)
  end
  self.linear_fuse = nn.Conv2d(c.decoder_hidden_size * c.num_encoder_blocks, c.decoder_hidden_size, 1, { bias = false })
  self.batch_norm = nn.BatchNorm2d(c.decoder_hidden_size)
  self.dropout = nn.Dropout(c.classifier_dropout_prob)
  self.classifier = nn.Conv2d(c.decoder_hidden_size, config.labels(c), 1)
end

function Head:forward(maps)
  local size, all = { maps[1].shape[3], maps[1].shape[4] }, {}
  for s, map in ipairs(maps) do
    local y = map_of(self.linear_c[s].proj(rows_of(map)), map.shape[3], map.shape[4])
    all[#maps - s + 1] = accel.interpolate(y, size, { mode = "bilinear" })
  end
  return self.classifier(self.dropout(accel.relu(self.batch_norm(self.linear_fuse(accel.cat(all, 2))))))
end

--- Classes of pixels.
---@class accel.models.SegformerForSemanticSegmentation : accel.models.PreTrainedModel
local Segmentation = Root:define("SegformerForSemanticSegmentation", {})

function Segmentation:build(c)
  self.segformer = Model:part(c)
  self.decode_head = Head(c)
end

--- Scores [B, num_labels, H / 4, W / 4] of images, or with labels [B, H, W] their loss at the size of the labels.
--- semantic_loss_ignore_index does not count.
---@param pixel_values accel.Tensor
---@param opts? {labels: accel.Tensor?}
---@return accel.Tensor
function Segmentation:forward(pixel_values, opts, ...)
  check.surplus("forward", ...)
  local own, rest = decoder_heads.taken(opts, "labels")
  if rest then raise("segformer: unknown option '%s'", tostring(next(rest))) end
  local _, maps = self.segformer(pixel_values)
  local logits, labels = self.decode_head(maps), own.labels
  if not labels then return logits end
  local ignored = math.tointeger(self.config.semantic_loss_ignore_index)
  logits = accel.interpolate(logits, { labels.shape[2], labels.shape[3] }, { mode = "bilinear" })
  if logits.shape[2] > 1 then return means.over(accel.cross_entropy(logits, labels, { ignore_index = ignored }), labels, ignored) end
  local counts = (labels:ge(0) * labels:ne(ignored)):to(logits.dtype)
  return (accel.binary_cross_entropy_with_logits(logits:squeeze(2), labels:to(logits.dtype), { reduction = "none" }) * counts):mean()
end

return { SegformerModel = Model, SegformerForImageClassification = Classes, SegformerForSemanticSegmentation = Segmentation }
