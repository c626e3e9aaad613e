--- ViT-MAE: an encoder that sees a quarter of the patches, and a decoder that paints the others.
--- example: #accel.models.ViTMAEModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 22
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local nn = require "accel.nn"
local options = require "accel.util.options"
local tower = require "accel.models.vision.tower"

local schema = config.schema("vit_mae", classify.keys {
  encoder_stride = false, pooler_output_size = false, pooler_act = false, decoder_num_attention_heads = config.count(16),
  decoder_hidden_size = config.size(512), decoder_num_hidden_layers = config.count(8), decoder_intermediate_size = config.size(2048),
  mask_ratio = config.rate(0.75), norm_pix_loss = config.flag(false), image_size = config.size(224), patch_size = config.size(16),
}, function(c)
  return config.not_multiple(c, "hidden_size", "num_attention_heads") or config.not_multiple(c, "decoder_hidden_size",
    "decoder_num_attention_heads")
end)
local Root = PreTrainedModel:define("ViTMAEPreTrainedModel", { schema = schema, _no_split_modules = { "ViTMAELayer" },
  base_model_prefix = "vit",
  order = { ["layer.*"] = "attention layernorm_before layernorm_after intermediate output", embeddings = "cls_token position_embeddings" } })
local Layer = tower.Layer:extend("ViTMAELayer")

local function frozen(shape)
  local p = nn.Parameter(accel.zeros(shape), false)
  return p
end

---@class accel.models.ViTMAEModel : accel.models.PreTrainedModel
local Model = Root:define("ViTMAEModel", { is_base = true, gradient_checkpointing = false,
  outputs = { "last_hidden_state", "mask", "ids_restore" } })

function Model:build(c)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  self.t = classify.tower(c, tower.vit_names())
  self.embeddings = nn.Module()
  local e = self.embeddings
  e.cls_token, e.position_embeddings = nn.Parameter(accel.zeros(1, 1, c.hidden_size)), frozen { 1, rows * columns + 1, c.hidden_size }
  e.patch_embeddings = nn.Module()
  e.patch_embeddings.projection = tower.patches(c.hidden_size, c.num_channels, c.patch_size)
  tower.build(self, self.t, Layer)
  self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
end

--- Patches that stay, by the order of noise [B, patches]: the kept ones, the mask (1: taken out) and the way back.
local function masked(x, noise, ratio)
  local B, T, W = x.shape[1], x.shape[2], x.shape[3]
  local keep = math.floor(T * (1 - ratio))
  local order = noise:argsort { dim = 2 }
  local back = order:argsort { dim = 2 }
  local kept = order:narrow(2, 1, keep)
  local mask = back:ge(keep):to(x.dtype)
  return x:gather(2, kept:unsqueeze(3):expand(B, keep, W)), mask, back
end

--- Hidden states [B, kept + 1, width], the mask [B, patches] (1: taken out), and the places of patches in the shuffled order.
---@param x accel.Tensor [B, C, H, W]
---@param opts? {noise: accel.Tensor?} [B, patches]: the smallest stay. Random by default
---@return accel.Tensor, accel.Tensor, accel.Tensor
function Model:forward(x, opts, ...)
  check.surplus("forward", ...)
  local o = options("vit_mae", opts, { noise = options.none })
  local c, e, B = self.config, self.embeddings, x.shape[1]
  tower.check_images("vit_mae", x, c.num_channels, c.image_size)
  local p = e.position_embeddings
  local n = p.shape[2] - 1
  local y, mask, back = masked(tower.cut(e.patch_embeddings.projection, x) + p:narrow(2, 2, n),
    o.noise or accel.rand({ B, n }, { device = x.device }), c.mask_ratio)
  local first = (e.cls_token + p:narrow(2, 1, 1)):expand(B, 1, -1)
  return self.layernorm(tower.run(self, self.t, accel.cat({ first, y }, 2))), mask, back
end

---@class accel.models.ViTMAEForPreTraining : accel.models.PreTrainedModel
local PreTraining = Root:define("ViTMAEForPreTraining", { outputs = { "logits", "mask", "ids_restore" } })

function PreTraining:build(c)
  self.vit = Model:part(c)
  self.decoder = nn.Module()
  local d, W = self.decoder, c.decoder_hidden_size
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  d.decoder_embed = nn.Linear(c.hidden_size, W)
  d.mask_token = nn.Parameter(accel.zeros(1, 1, W))
  d.decoder_pos_embed = frozen { 1, rows * columns + 1, W }
  local t = classify.tower(c, tower.vit_names { layers = "decoder_encoder.layer" })
  t.width, t.layers, t.heads, t.ffn = W, c.decoder_num_hidden_layers, c.decoder_num_attention_heads, c.decoder_intermediate_size
  self.decoder_tower = t
  d.gradient_checkpointing = false
  tower.build(d, t, Layer)
  d.decoder_norm = nn.LayerNorm(W, { eps = c.layer_norm_eps })
  d.decoder_pred = nn.Linear(W, c.patch_size ^ 2 // 1 * c.num_channels)
end

--- Older files call the layers of the decoder decoder_layers.
---@param name string
function PreTraining:rename(name) return (name:gsub("^decoder%.decoder_layers%.", "decoder.decoder_encoder.layer.")) end

--- Pixels of each patch, [B, patches, patch * patch * C].
local function patches_of(x, s)
  local B, C, H, W = table.unpack(x.shape)
  return x:view(B, C, H // s, s, W // s, s):permute(1, 3, 5, 4, 6, 2):reshape(B, H // s * (W // s), s * s * C)
end

--- Pixels of all patches [B, patches, patch * patch * C], the mask and the positions of patches. With return_loss the mean squared error
--- over the removed patches.
---@param pixel_values accel.Tensor
---@param opts? {noise: accel.Tensor?, return_loss: boolean?}
---@return accel.Tensor, accel.Tensor?, accel.Tensor?
function PreTraining:forward(pixel_values, opts, ...)
  check.surplus("forward", ...)
  local o = options("vit_mae", opts, { noise = options.none, return_loss = false })
  local c, d = self.config, self.decoder
  local x, mask, back = self.vit(pixel_values, { noise = o.noise })
  x = d.decoder_embed(x)
  local B, n, W = x.shape[1], back.shape[2], x.shape[3]
  local kept = x.shape[2] - 1
  local all = accel.cat({ x:narrow(2, 2, kept), d.mask_token:expand(B, n - kept, W) }, 2):gather(2, back:unsqueeze(3):expand(B, n, W))
  x = accel.cat({ x:narrow(2, 1, 1), all }, 2) + d.decoder_pos_embed
  x = d.decoder_pred(d.decoder_norm(tower.run(d, self.decoder_tower, x))):narrow(2, 2, n)
  if not o.return_loss then return x, mask, back end
  local want = patches_of(pixel_values, c.patch_size)
  if c.norm_pix_loss then
    local mean, var = want:mean(3, true), want:var(3, { keepdim = true })
    want = (want - mean) / (var + 1e-6):sqrt()
  end
  return ((x - want):square():mean(3) * mask):sum() / mask:sum()
end

return { ViTMAEModel = Model, ViTMAEForPreTraining = PreTraining }
