--- SigLIP: two towers compared by a sigmoid for each pair, with attention pooling of images and the last position of texts.
--- example: local c = { text_config = { num_hidden_layers = 1 }, vision_config = { num_hidden_layers = 1 } }
---   return #accel.models.SiglipModel(c, { device = "meta" }):parameters() --> 56
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local config = require "accel.models.config"
local nn = require "accel.nn"
local options = require "accel.util.options"
local pairs_of_towers = require "accel.models.vision.pairs_of_towers"
local tower = require "accel.models.vision.tower"

local function keys(own)
  local all = {
    hidden_size = config.size(768), intermediate_size = config.size(3072), num_hidden_layers = config.count(12),
    num_attention_heads = config.count(12),
    hidden_act = config.activation "gelu_pytorch_tanh", layer_norm_eps = config.number(1e-6), attention_dropout = config.rate(0.0),
  }
  for key, field in next, own do all[key] = field end
  return all
end

local TEXT <const> = config.schema("siglip_text_model", keys {
  vocab_size = config.size(32000), max_position_embeddings = config.size(64), projection_size = config.size(),
  pad_token_id = config.in_files(config.token(), 1),
  bos_token_id = config.in_files(config.token(), 49406), eos_token_id = config.in_files(config.token(), 49407),
}, function(c)
  c.projection_size = c.projection_size or c.hidden_size
  return config.not_multiple(c, "hidden_size", "num_attention_heads")
end)
local VISION <const> = config.schema("siglip_vision_model", keys {
  image_size = config.size(224), patch_size = config.size(16), num_channels = config.count(3), vision_use_head = config.flag(true),
}, function(c) return config.not_multiple(c, "hidden_size", "num_attention_heads") end)
local BOTH <const> = pairs_of_towers.schema("siglip", TEXT, VISION, { initializer_factor = config.number(1.0) })

local function tower_of(c)
  return { width = c.hidden_size, layers = c.num_hidden_layers, heads = c.num_attention_heads,
    ffn = c.intermediate_size, act = c.hidden_act,
    eps = c.layer_norm_eps, attention_dropout = c.attention_dropout, names = pairs_of_towers.NAMES }
end

local function define(name, schema, fields)
  local all = { schema = schema, _no_split_modules = { "SiglipEncoderLayer" },
    order = { ["layers.*.self_attn"] = "k_proj v_proj q_proj out_proj" }, ignored_keys = { "embeddings%.position_ids$" } }
  for key, value in next, fields do all[key] = value end
  return PreTrainedModel:define(name, all)
end
local Layer = tower.Layer:extend("SiglipEncoderLayer")

---@class accel.models.SiglipTextModel : accel.models.PreTrainedModel
local Text = define("SiglipTextModel", TEXT, { is_base = true, gradient_checkpointing = false, base_model_prefix = "text_model" })

function Text:build(c)
  self.t = tower_of(c)
  self.embeddings = nn.Module()
  self.embeddings.token_embedding = nn.Embedding(c.vocab_size, c.hidden_size)
  self.embeddings.position_embedding = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  tower.build(self, self.t, Layer)
  self.final_layer_norm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.head = nn.Linear(c.hidden_size, c.projection_size)
end

--- Hidden states [B, T, width] of ids [B, T], and the state of each text [B, projection_size].
---@param ids accel.Tensor
---@param opts? {attention_mask: accel.Tensor?}
---@return accel.Tensor, accel.Tensor
function Text:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local x = pairs_of_towers.read_text(self, ids, options("siglip", opts, { attention_mask = options.none }).attention_mask, false)
  return x, self.head(x:select(2, x.shape[2]))
end

--- One learnt query that attends to all patches, then a feed-forward layer.
---@class accel.models.SiglipMultiheadAttentionPoolingHead : accel.nn.Module
local Pooling = nn.Module:extend("SiglipMultiheadAttentionPoolingHead")

function Pooling:init(c)
  self.probe = nn.Parameter(accel.zeros(1, 1, c.hidden_size))
  self.attention = nn.MultiheadAttention(c.hidden_size, c.num_attention_heads, { batch_first = true })
  self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  self.mlp = nn.Module()
  self.mlp.fc1 = nn.Linear(c.hidden_size, c.intermediate_size)
  self.mlp.fc2 = nn.Linear(c.intermediate_size, c.hidden_size)
  self.act = activation.find(c.hidden_act)
end

function Pooling:forward(x)
  local y = self.attention(self.probe:expand(x.shape[1], 1, x.shape[3]), x, x, { need_weights = false })
  y = y + self.mlp.fc2(self.act(self.mlp.fc1(self.layernorm(y))))
  return y:select(2, 1)
end

---@class accel.models.SiglipVisionModel : accel.models.PreTrainedModel
local Vision = define("SiglipVisionModel", VISION, { is_base = true, gradient_checkpointing = false, base_model_prefix = "vision_model" })

function Vision:build(c)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  self.t = tower_of(c)
  self.embeddings = nn.Module()
  self.embeddings.patch_embedding = tower.patches(c.hidden_size, c.num_channels, c.patch_size)
  self.embeddings.position_embedding = nn.Embedding(rows * columns, c.hidden_size)
  tower.build(self, self.t, Layer)
  self.post_layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  if c.vision_use_head then self.head = Pooling(c) end
end

--- Hidden states [B, patches, width] of images, and the pooled state of each image [B, width].
---@param x accel.Tensor [B, C, H, W]
---@return accel.Tensor, accel.Tensor?
function Vision:forward(x, ...)
  check.surplus("forward", ...)
  local c, e = self.config, self.embeddings
  tower.check_images("siglip", x, c.num_channels, c.image_size)
  x = self.post_layernorm(tower.run(self, self.t, tower.cut(e.patch_embedding, x) + e.position_embedding.weight))
  return x, self.head and self.head(x)
end

---@class accel.models.SiglipModel : accel.models.PreTrainedModel
local Model = define("SiglipModel", BOTH, { outputs = pairs_of_towers.OUTPUTS })

function Model:build(c)
  self.text_model = Text:part(c.text_config)
  self.vision_model = Vision:part(c.vision_config)
  self.logit_scale = nn.Parameter(accel.zeros(1))
  self.logit_bias = nn.Parameter(accel.zeros(1))
end

--- Scores of images and texts [images, texts] and [texts, images], and the unit vectors of texts and of images. With return_loss the
--- sigmoid loss (Zhai et al. 2023), in which image i belongs to text i.
---@param ids accel.Tensor [texts, T]
---@param opts {pixel_values: accel.Tensor, attention_mask: accel.Tensor?, return_loss: boolean?}
---@return accel.Tensor, accel.Tensor?, accel.Tensor?, accel.Tensor?
function Model:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local o = options("siglip", opts, { pixel_values = options.none, attention_mask = options.none, return_loss = false })
  local _, image = self.vision_model(o.pixel_values)
  local _, text = self.text_model(ids, { attention_mask = o.attention_mask })
  image, text = pairs_of_towers.unit(image), pairs_of_towers.unit(text)
  local by_text = accel.matmul(text, image:transpose(1, 2)) * self.logit_scale:exp() + self.logit_bias
  if not o.return_loss then return by_text:transpose(1, 2), by_text, text, image end
  local n = ids.shape[1]
  local sign = accel.eye(n, { device = ids.device }):to(by_text.dtype) * 2 - 1
  return -accel.logsigmoid(sign * by_text):sum(2):mean()
end

return { SiglipModel = Model, SiglipTextModel = Text, SiglipVisionModel = Vision }
