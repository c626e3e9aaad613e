--- DINOv2: ViT with scaled parts, and optionally gated feed-forward layers.
--- example: #accel.models.Dinov2Model({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 25
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local nn = require "accel.nn"
local tower = require "accel.models.vision.tower"

local schema = config.schema("dinov2", classify.keys {
  intermediate_size = false, encoder_stride = false, pooler_output_size = false, pooler_act = false, mlp_ratio = config.number(4, 1e-6),
  layer_norm_eps = config.number(1e-6), layerscale_value = config.number(1.0), use_swiglu_ffn = config.flag(false),
  use_mask_token = config.flag(true),
  drop_path_rate = config.only(function(v) return v == 0 end, "0"), image_size = config.pair(518), patch_size = config.pair(14),
}, function(c) return config.not_multiple(c, "hidden_size", "num_attention_heads") end)
local Root = PreTrainedModel:define("Dinov2PreTrainedModel", { schema = schema, _no_split_modules = { "Dinov2Layer" },
  base_model_prefix = "dinov2", order = { ["layer.*"] = "norm1 attention layer_scale1 norm2 mlp layer_scale2" },
  optional_keys = { "embeddings%.mask_token$" } })
local Layer = tower.Layer:extend("Dinov2Layer")

local function tower_of(c)
  local gated = c.use_swiglu_ffn
  local t = classify.tower(c, tower.vit_names { norm1 = "norm1", norm2 = "norm2", first = gated and "mlp.weights_in" or "mlp.fc1",
    second = gated and "mlp.weights_out" or "mlp.fc2", scale1 = "layer_scale1.lambda1", scale2 = "layer_scale2.lambda1" })
  t.ffn, t.gated, t.scale = math.floor(c.hidden_size * c.mlp_ratio), gated, c.layerscale_value
  if gated then t.ffn = (math.floor(t.ffn * 2 / 3) + 7) // 8 * 8 end
  return t
end

---@class accel.models.Dinov2Model : accel.models.PreTrainedModel
local Model = Root:define("Dinov2Model", { is_base = true, gradient_checkpointing = false })

function Model:build(c)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  self.t = tower_of(c)
  self.embeddings = nn.Module()
  local e = self.embeddings
  e.cls_token = nn.Parameter(accel.zeros(1, 1, c.hidden_size))
  if c.use_mask_token then e.mask_token = nn.Parameter(accel.zeros(1, c.hidden_size)) end
  e.position_embeddings = nn.Parameter(accel.zeros(1, rows * columns + 1, c.hidden_size))
  e.patch_embeddings = nn.Module()
  e.patch_embeddings.projection = tower.patches(c.hidden_size, c.num_channels, c.patch_size)
  tower.build(self, self.t, Layer)
  self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
end

--- Hidden states [B, patches + 1, width] of images, and the class token's.
---@param x accel.Tensor [B, C, H, W]
---@return accel.Tensor, accel.Tensor
function Model:forward(x, ...)
  check.surplus("forward", ...)
  local c, e = self.config, self.embeddings
  tower.check_images("dinov2", x, c.num_channels, c.image_size)
  x = accel.cat({ e.cls_token:expand(x.shape[1], 1, -1), tower.cut(e.patch_embeddings.projection, x) }, 2) + e.position_embeddings
  x = self.layernorm(tower.run(self, self.t, self.dropout(x)))
  return x, x:select(2, 1)
end

---@class accel.models.Dinov2ForImageClassification : accel.models.PreTrainedModel
local Classes = Root:define("Dinov2ForImageClassification", {})
classify.classifier(Classes, "dinov2", Model, {
  pool = function(_, x) return accel.cat({ x:select(2, 1), x:narrow(2, 2, x.shape[2] - 1):mean(2) }, 2) end,
  width = function(c) return 2 * c.hidden_size end })

return { Dinov2Model = Model, Dinov2ForImageClassification = Classes }
