--- CLIP: a text tower and an image tower whose states are compared. Each tower also has a separate class.
--- example: local c = { text_config = { num_hidden_layers = 1 }, vision_config = { num_hidden_layers = 1 } }
---   return #accel.models.CLIPModel(c, { device = "meta" }):parameters() --> 46
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local check = require "accel.util.check"
local config = require "accel.models.config"
local nn = require "accel.nn"
local options = require "accel.util.options"
local pairs_of_towers = require "accel.models.vision.pairs_of_towers"
local tower = require "accel.models.vision.tower"

local function keys(own)
  local all = {
    hidden_size = config.size(512), intermediate_size = config.size(2048), num_hidden_layers = config.count(12),
    num_attention_heads = config.count(8),
    hidden_act = config.activation "quick_gelu", layer_norm_eps = config.number(1e-5), attention_dropout = config.rate(0.0),
    initializer_range = config.number(0.02), initializer_factor = config.number(1.0), projection_dim = config.size(512),
    dropout = config.unused(),
  }
  for key, field in next, own do all[key] = field end
  return all
end

local function divides(c) return config.not_multiple(c, "hidden_size", "num_attention_heads") end

local TEXT <const> = config.schema("clip_text_model", keys {
  vocab_size = config.size(49408), max_position_embeddings = config.size(77), pad_token_id = config.in_files(config.token(), 1),
  bos_token_id = config.in_files(config.token(), 49406), eos_token_id = config.in_files(config.token(), 49407),
}, divides)
local VISION <const> = config.schema("clip_vision_model", keys {
  hidden_size = config.size(768), intermediate_size = config.size(3072), num_attention_heads = config.count(12),
  image_size = config.size(224),
  patch_size = config.size(32), num_channels = config.count(3),
}, divides)
local BOTH <const> = pairs_of_towers.schema("clip", TEXT, VISION, {
  projection_dim = config.size(512), logit_scale_init_value = config.number(2.6592), initializer_factor = config.number(1.0),
  vision_config_dict = config.unused(), text_config_dict = config.unused() })

local function tower_of(c)
  return { width = c.hidden_size, layers = c.num_hidden_layers, heads = c.num_attention_heads,
    ffn = c.intermediate_size, act = c.hidden_act,
    eps = c.layer_norm_eps, attention_dropout = c.attention_dropout, names = pairs_of_towers.NAMES }
end

local function define(name, schema, fields)
  local all = { schema = schema, _no_split_modules = { "CLIPEncoderLayer" },
    order = { ["layers.*"] = "self_attn layer_norm1 mlp layer_norm2", ["layers.*.self_attn"] = "k_proj v_proj q_proj out_proj" },
    ignored_keys = { "%.embeddings%.position_ids$", "^embeddings%.position_ids$" } }
  for key, value in next, fields do all[key] = value end
  return PreTrainedModel:define(name, all)
end
local Layer = tower.Layer:extend("CLIPEncoderLayer")

--- The state of each text: at the first end token, or in old files (eos_token_id 2) at the largest id.
local function pooled_text(x, ids, eos)
  local at = (eos == 2 and ids or ids:eq(eos):to "i64"):argmax { dim = 2 }
  return x:gather(2, at:reshape(-1, 1, 1):expand(x.shape[1], 1, x.shape[3])):squeeze(2)
end

---@class accel.models.CLIPTextModel : accel.models.PreTrainedModel
local Text = define("CLIPTextModel", TEXT, { is_base = true, gradient_checkpointing = false, base_model_prefix = "text_model" })

function Text:build(c)
  self.t = tower_of(c)
  self.embeddings = nn.Module()
  self.embeddings.token_embedding = nn.Embedding(c.vocab_size, c.hidden_size)
  self.embeddings.position_embedding = nn.Embedding(c.max_position_embeddings, c.hidden_size)
  tower.build(self, self.t, Layer)
  self.final_layer_norm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
end

--- Hidden states [B, T, width] of ids [B, T], and the state of each text [B, width].
---@param ids accel.Tensor
---@param opts? {attention_mask: accel.Tensor?}
---@return accel.Tensor, accel.Tensor
function Text:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local x = pairs_of_towers.read_text(self, ids, options("clip", opts, { attention_mask = options.none }).attention_mask, true)
  return x, pooled_text(x, ids, self.config.eos_token_id)
end

---@class accel.models.CLIPVisionModel : accel.models.PreTrainedModel
local Vision = define("CLIPVisionModel", VISION, { is_base = true, gradient_checkpointing = false, base_model_prefix = "vision_model" })

function Vision:build(c)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  self.t = tower_of(c)
  self.embeddings = nn.Module()
  local e = self.embeddings
  e.class_embedding = nn.Parameter(accel.zeros(c.hidden_size))
  e.patch_embedding = tower.patches(c.hidden_size, c.num_channels, c.patch_size, false)
  e.position_embedding = nn.Embedding(rows * columns + 1, c.hidden_size)
  self.pre_layrnorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps }) -- so in the files
  tower.build(self, self.t, Layer)
  self.post_layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
end

--- Hidden states [B, patches + 1, width] of images, and the state of each image [B, width].
---@param x accel.Tensor [B, C, H, W]
---@return accel.Tensor, accel.Tensor
function Vision:forward(x, ...)
  check.surplus("forward", ...)
  local c, e = self.config, self.embeddings
  tower.check_images("clip", x, c.num_channels, c.image_size)
  x = accel.cat({ e.class_embedding:expand(x.shape[1], 1, -1), tower.cut(e.patch_embedding, x) }, 2) + e.position_embedding.weight
  x = tower.run(self, self.t, self.pre_layrnorm(x))
  return x, self.post_layernorm(x:select(2, 1))
end

--- A tower with its projection: embeds [B, projection_dim] and hidden states.
local function projected(name, schema, Tower, tower_name, projection, output)
  local cls = define(name, schema, { base_model_prefix = tower_name, outputs = { output, "last_hidden_state" } })

  function cls:build(c)
    self[tower_name] = Tower:part(c)
    self[projection] = nn.Linear(c.hidden_size, c.projection_dim, { bias = false })
  end

  ---@return accel.Tensor embeds, accel.Tensor last_hidden_state
  function cls:forward(...)
    local x, pooled = self[tower_name](...)
    return self[projection](pooled), x
  end
  return cls
end

---@class accel.models.CLIPModel : accel.models.PreTrainedModel
local Model = define("CLIPModel", BOTH, { outputs = pairs_of_towers.OUTPUTS })

function Model:build(c)
  self.text_model = Text:part(c.text_config)
  self.vision_model = Vision:part(c.vision_config)
  self.visual_projection = nn.Linear(c.vision_config.hidden_size, c.projection_dim, { bias = false })
  self.text_projection = nn.Linear(c.text_config.hidden_size, c.projection_dim, { bias = false })
  self.logit_scale = nn.Parameter(accel.full({}, c.logit_scale_init_value))
end

--- Similarities of images and texts [images, texts] and [texts, images], and the unit vectors of texts and of images. With return_loss the
--- contrastive loss (Radford et al. 2021), in which image i belongs to text i.
---@param ids accel.Tensor [texts, T]
---@param opts {pixel_values: accel.Tensor, attention_mask: accel.Tensor?, return_loss: boolean?}
---@return accel.Tensor, accel.Tensor?, accel.Tensor?, accel.Tensor?
function Model:forward(ids, opts, ...)
  check.surplus("forward", ...)
  local o = options("clip", opts, { pixel_values = options.none, attention_mask = options.none, return_loss = false })
  local _, image = self.vision_model(o.pixel_values)
  local _, text = self.text_model(ids, { attention_mask = o.attention_mask })
  image, text = pairs_of_towers.unit(self.visual_projection(image)), pairs_of_towers.unit(self.text_projection(text))
  local by_text = accel.matmul(text, image:transpose(1, 2)) * self.logit_scale:exp()
  if not o.return_loss then return by_text:transpose(1, 2), by_text, text, image end
  local own = accel.arange(ids.shape[1], { device = ids.device })
  return (accel.cross_entropy(by_text, own) + accel.cross_entropy(by_text:transpose(1, 2), own)) / 2
end

return { CLIPModel = Model, CLIPTextModel = Text, CLIPVisionModel = Vision,
  CLIPTextModelWithProjection = projected("CLIPTextModelWithProjection", TEXT, Text, "text_model", "text_projection", "text_embeds"),
  CLIPVisionModelWithProjection = projected("CLIPVisionModelWithProjection", VISION, Vision, "vision_model",
    "visual_projection", "image_embeds") }
