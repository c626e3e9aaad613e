--- BEiT: ViT with a table of biases by distance in each layer, scaled parts, keys without bias, and the mean of patches for classes.
--- example: #accel.models.BeitModel({ num_hidden_layers = 1 }, { device = "meta" }):parameters() --> 22
local Parameter = require "accel.nn.parameter"
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local nn = require "accel.nn"
local paths = require "accel.models.decoder.paths"
local tower = require "accel.models.vision.tower"

local TABLE <const> = "attention.attention.relative_position_bias"

local schema = config.schema("beit", classify.keys {
  qkv_bias = false, encoder_stride = false, pooler_output_size = false, pooler_act = false, vocab_size = config.size(8192),
  use_mask_token = config.flag(false), use_absolute_position_embeddings = config.flag(false),
  use_relative_position_bias = config.flag(false),
  use_shared_relative_position_bias = config.fixed(false), layer_scale_init_value = config.number(0.1),
  drop_path_rate = config.only(function(v) return v == 0 end, "0 (set drop_path_rate = 0 in config)"), use_mean_pooling = config.flag(true),
  pool_scales = config.unused(), use_auxiliary_head = config.unused(), auxiliary_loss_weight = config.unused(),
  auxiliary_channels = config.unused(),
  auxiliary_num_convs = config.unused(), auxiliary_concat_input = config.unused(),
  semantic_loss_ignore_index = config.unused(), add_fpn = config.unused(),
}, function(c) return config.not_multiple(c, "hidden_size", "num_attention_heads") end)
local Root = PreTrainedModel:define("BeitPreTrainedModel", { schema = schema, _no_split_modules = { "BeitLayer" },
  base_model_prefix = "beit", -- Transformers lists tables of biases last, where no order of fields leads
  order = { ["layer.*"] = "attention layernorm_before layernorm_after intermediate output" },
  ignored_keys = { "relative_position_index$" } })

---@class accel.models.BeitLayer : accel.models.TowerLayer
local Layer = tower.Layer:extend("BeitLayer")

function Layer:init(t)
  tower.Layer.init(self, t)
  if t.grid then
    local n = (2 * t.grid[1] - 1) * (2 * t.grid[2] - 1) + 3
    local bias = nn.Module()
    bias.relative_position_bias_table = Parameter(accel.zeros(n, t.heads))
    paths.put(self, TABLE, bias)
  end
end

--- Rows of the table for each pair of places, the class token first: [T * T].
local function indices(rows, columns, device)
  local list, last = {}, (2 * rows - 1) * (2 * columns - 1)
  local n = rows * columns
  for q = 0, n do
    for k = 0, n do
      local at
      if q == 0 and k == 0 then at = last + 2 elseif q == 0 then at = last elseif k == 0 then at = last + 1
      else
        local dy, dx = (q - 1) // columns - (k - 1) // columns, (q - 1) % columns - (k - 1) % columns
        at = (dy + rows - 1) * (2 * columns - 1) + dx + columns - 1
      end
      list[#list + 1] = at
    end
  end
  return accel.tensor(list, { dtype = "i64", device = device })
end

---@class accel.models.BeitModel : accel.models.PreTrainedModel
local Model = Root:define("BeitModel", { is_base = true, gradient_checkpointing = false })

function Model:build(c)
  local rows, columns = tower.grid(c.image_size, c.patch_size)
  local t = classify.tower(c, tower.vit_names { scale1 = c.layer_scale_init_value > 0 and "lambda_1" or nil,
    scale2 = c.layer_scale_init_value > 0 and "lambda_2" or nil })
  t.k_bias, t.scale, t.grid = false, c.layer_scale_init_value, c.use_relative_position_bias and { rows, columns } or nil
  self.t = t
  self.embeddings = nn.Module()
  local e = self.embeddings
  e.cls_token = Parameter(accel.zeros(1, 1, c.hidden_size))
  if c.use_mask_token then e.mask_token = Parameter(accel.zeros(1, 1, c.hidden_size)) end
  if c.use_absolute_position_embeddings then e.position_embeddings = Parameter(accel.zeros(1, rows * columns + 1, c.hidden_size)) end
  e.patch_embeddings = nn.Module()
  e.patch_embeddings.projection = tower.patches(c.hidden_size, c.num_channels, c.patch_size)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  tower.build(self, t, Layer)
  if c.use_mean_pooling then
    self.pooler = nn.Module()
    self.pooler.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  else
    self.layernorm = nn.LayerNorm(c.hidden_size, { eps = c.layer_norm_eps })
  end
end

--- Hidden states [B, patches + 1, width] of images, and the pooled state [B, width]: the mean of patches, or the class token.
---@param x accel.Tensor [B, C, H, W]
---@return accel.Tensor, accel.Tensor
function Model:forward(x, ...)
  check.surplus("forward", ...)
  local c, e, t = self.config, self.embeddings, self.t
  tower.check_images("beit", x, c.num_channels, c.image_size)
  x = accel.cat({ e.cls_token:expand(x.shape[1], 1, -1), tower.cut(e.patch_embeddings.projection, x) }, 2)
  if e.position_embeddings then x = x + e.position_embeddings end
  local T, at = x.shape[2], t.grid and indices(t.grid[1], t.grid[2], x.device)
  x = tower.run(self, t, self.dropout(x), at and function(layer)
    local bias = paths.get(layer, TABLE).relative_position_bias_table:index_select(1, at)
    return { attn_mask = bias:reshape(T, T, -1):permute(3, 1, 2):unsqueeze(1):to(x.dtype) }
  end or nil)
  if not self.pooler then
    x = self.layernorm(x)
    return x, x:select(2, 1)
  end
  return x, self.pooler.layernorm(x:narrow(2, 2, T - 1):mean(2))
end

---@class accel.models.BeitForImageClassification : accel.models.PreTrainedModel
local Classes = Root:define("BeitForImageClassification", {})
classify.classifier(Classes, "beit", Model, { pool = function(_, _, pooled) return pooled end,
  width = function(c) return c.hidden_size end })

return { BeitModel = Model, BeitForImageClassification = Classes }
