--- DeiT: ViT with a distillation token next to the class token, and heads for both.
--- example: #accel.models.DeiTModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 25
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local nn = require "accel.nn"
local tower = require "accel.models.vision.tower"

local NAMES <const> = tower.vit_names()
local schema = config.schema("deit", classify.keys(), function(c)
  c.pooler_output_size = c.pooler_output_size or c.hidden_size
  return config.not_multiple(c, "hidden_size", "num_attention_heads")
end)
local Root = PreTrainedModel:define("DeiTPreTrainedModel", { schema = schema, _no_split_modules = { "DeiTLayer" },
  base_model_prefix = "deit",
  order = { ["layer.*"] = "attention layernorm_before layernorm_after intermediate output",
    embeddings = "cls_token position_embeddings distillation_token" },
  ignored_keys = { "embeddings%.mask_token$" }, optional_keys = { "pooler%.dense%." } })
local Layer = tower.Layer:extend("DeiTLayer")

---@class accel.models.DeiTModel : accel.models.PreTrainedModel
local Model = Root:define("DeiTModel", { is_base = true, gradient_checkpointing = false })

function Model:build(c, pooler)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  self.t = classify.tower(c, NAMES)
  self.embeddings = nn.Module()
  local e = self.embeddings
  e.cls_token = nn.Parameter(accel.zeros(1, 1, c.hidden_size))
  e.distillation_token = nn.Parameter(accel.zeros(1, 1, c.hidden_size))
  e.patch_embeddings = nn.Module()
  e.patch_embeddings.projection = tower.patches(c.hidden_size, c.num_channels, c.patch_size)
  e.position_embeddings = nn.Parameter(accel.zeros(1, rows * columns + 2, c.hidden_size))
  tower.build(self, self.t, Layer)
  self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  if pooler ~= false then
    self.pooler = nn.Module()
    self.pooler.dense = nn.Linear(c.hidden_size, c.pooler_output_size)
  end
end

--- Hidden states [B, patches + 2, width] of images, and the pooled class token.
---@param x accel.Tensor [B, C, H, W]
---@return accel.Tensor, accel.Tensor?
function Model:forward(x, ...)
  check.surplus("forward", ...)
  local c, e, B = self.config, self.embeddings, x.shape[1]
  tower.check_images("deit", x, c.num_channels, c.image_size)
  x = accel.cat({ e.cls_token:expand(B, 1, -1), e.distillation_token:expand(B, 1, -1), tower.cut(e.patch_embeddings.projection, x) }, 2)
  x = self.layernorm(tower.run(self, self.t, self.dropout(x + e.position_embeddings)))
  return x, self.pooler and activation.find(c.pooler_act)(self.pooler.dense(x:select(2, 1)))
end

---@class accel.models.DeiTForImageClassification : accel.models.PreTrainedModel
local Classes = Root:define("DeiTForImageClassification", {})
classify.classifier(Classes, "deit", Model, { pool = function(_, x) return x:select(2, 1) end,
  width = function(c) return c.hidden_size end })

--- Two heads: logits are the mean of the class token's and the distillation token's.
---@class accel.models.DeiTForImageClassificationWithTeacher : accel.models.PreTrainedModel
local Teacher = Root:define("DeiTForImageClassificationWithTeacher", { outputs = { "logits", "cls_logits", "distillation_logits" } })

function Teacher:build(c)
  self.deit = Model:part(c, false)
  self.cls_classifier = nn.Linear(c.hidden_size, config.labels(c))
  self.distillation_classifier = nn.Linear(c.hidden_size, config.labels(c))
end

---@param pixel_values accel.Tensor
---@return accel.Tensor logits, accel.Tensor of_class, accel.Tensor of_distillation
function Teacher:forward(pixel_values, ...)
  check.surplus("forward", ...)
  local x = self.deit(pixel_values)
  local a, b = self.cls_classifier(x:select(2, 1)), self.distillation_classifier(x:select(2, 2))
  return (a + b) / 2, a, b
end

return { DeiTModel = Model, DeiTForImageClassification = Classes, DeiTForImageClassificationWithTeacher = Teacher }
