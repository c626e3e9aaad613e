--- Swin Transformer (Liu et al. 2021): attention within windows that shift from layer to layer, and stages that merge patches.
--- example: #accel.models.SwinModel({ num_layers = 1 }, { device = "meta" }):parameters() --> 219
local DropPath = require "accel.models.vision.drop_path"
local Parameter = require "accel.nn.parameter"
local PreTrainedModel = require "accel.models.pretrained_model"
local accel = require "accel"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local context = require "accel.models.context"
local nn = require "accel.nn"
local run_layer = require "accel.models.run_layer"
local tower = require "accel.models.vision.tower"

local schema = config.schema("swin", {
  image_size = config.size(224), patch_size = config.size(4), num_channels = config.count(3), embed_dim = config.size(96),
  depths = config.sizes { 2, 2, 6, 2 }, num_heads = config.sizes { 3, 6, 12, 24 }, window_size = config.size(7),
    mlp_ratio = config.number(4, 1e-6),
  qkv_bias = config.flag(true), hidden_dropout_prob = config.rate(0.0), attention_probs_dropout_prob = config.rate(0.0),
  drop_path_rate = config.rate(0.1), hidden_act = config.activation "gelu", use_absolute_embeddings = config.flag(false),
  initializer_range = config.number(0.02), layer_norm_eps = config.number(1e-5), encoder_stride = config.unused(),
  num_layers = config.unused(),
  hidden_size = config.unused(), out_features = config.unused(), out_indices = config.unused(),
  stage_names = config.unused(), path_norm = config.unused(),
}, function(c)
  if #c.depths ~= #c.num_heads then return ("depths has %d entries, num_heads %d"):format(#c.depths, #c.num_heads) end
  local side = c.image_size // c.patch_size
  if c.image_size % c.patch_size ~= 0 then return ("image_size %d is not a multiple of patch_size %d"):format(c.image_size, c.patch_size) end
  for s, heads in ipairs(c.num_heads) do
    if c.embed_dim * 2 ^ (s - 1) % heads ~= 0 then return ("num_heads[%d] %d does not divide the width of its stage"):format(s, heads) end
    if side < c.window_size then return ("window_size %d is larger than the %d patches of stage %d"):format(c.window_size, side, s), "unsupported" end
    side = (side + 1) // 2
  end
end)
local Root = PreTrainedModel:define("SwinPreTrainedModel", { schema = schema, _no_split_modules = { "SwinStage" },
  base_model_prefix = "swin",
  ignored_keys = { "relative_position_index$", "%.attn_mask$" } })

--- [B, H, W, C] -> [B * windows, w * w, C], and back.
local function windows(x, w)
  local B, H, W, C = table.unpack(x.shape)
  return x:view(B, H // w, w, W // w, w, C):permute(1, 2, 4, 3, 5, 6):reshape(-1, w * w, C)
end
local function whole(x, w, B, H, W) return x:view(B, H // w, W // w, w, w, -1):permute(1, 2, 4, 3, 5, 6):reshape(B, H, W, -1) end

--- Rows of the table of biases for each pair of places in a window.
local function indices(w, device)
  local list = {}
  for q = 0, w * w - 1 do
    for k = 0, w * w - 1 do
      list[#list + 1] = (q // w - k // w + w - 1) * (2 * w - 1) + q % w - k % w + w - 1
    end
  end
  return accel.tensor(list, { dtype = "i64", device = device })
end

--- Pairs that lie in one region of the shifted image, [windows, w * w, w * w]: others must not see each other.
local function same_region(H, W, w, shift, device)
  local function region(n)
    local at = accel.arange(n, { device = device })
    return at:ge(n - w):to "i64" + at:ge(n - shift):to "i64"
  end
  local map = (region(H):unsqueeze(2) * 3 + region(W):unsqueeze(1)):reshape(1, H, W, 1)
  local by_window = windows(map, w):reshape(-1, w * w)
  return by_window:unsqueeze(2):eq(by_window:unsqueeze(3))
end

---@class accel.models.SwinLayer : accel.nn.Module
local Layer = nn.Module:extend("SwinLayer")

function Layer:init(c, width, heads, shift, rate)
  local a, hidden = nn.Module(), math.floor(c.mlp_ratio * width)
  self.heads, self.w, self.shift, self.attn_pdrop = heads, c.window_size, shift, c.attention_probs_dropout_prob
  a.query = nn.Linear(width, width, { bias = c.qkv_bias })
  a.key = nn.Linear(width, width, { bias = c.qkv_bias })
  a.value = nn.Linear(width, width, { bias = c.qkv_bias })
  a.relative_position_bias_table = Parameter(accel.zeros((2 * self.w - 1) ^ 2 // 1, heads))
  self.attention = nn.Module()
  self.attention.self = a
  self.attention.output = nn.Module()
  self.attention.output.dense = nn.Linear(width, width)
  self.layernorm_before = nn.LayerNorm(width, { eps = c.layer_norm_eps })
  self.layernorm_after = nn.LayerNorm(width, { eps = c.layer_norm_eps })
  self.intermediate = nn.Module()
  self.output = nn.Module()
  self.intermediate.dense = nn.Linear(width, hidden)
  self.output.dense = nn.Linear(hidden, width)
  self.act = activation.find(c.hidden_act)
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.drop_path = DropPath(rate)
end

function Layer:attend_windows(x, H, W)
  local a, w, B = self.attention.self, self.w, x.shape[1]
  local n, D = w * w, x.shape[4] // self.heads
  local rows = windows(x, w)
  local function heads(linear) return linear(rows):view(-1, n, self.heads, D):transpose(2, 3) end
  local bias = a.relative_position_bias_table:index_select(1, indices(w, x.device)):reshape(n, n, -1):permute(3, 1,
    2):unsqueeze(1):to(x.dtype)
  if self.shift > 0 then
    local seen = same_region(H, W, w, self.shift, x.device)
    bias = bias:expand(seen.shape[1], -1, -1, -1):masked_fill(seen:eq(0):unsqueeze(2), -math.huge)
    bias = bias:unsqueeze(1):expand(B, -1, -1, -1, -1):reshape(-1, self.heads, n, n)
  end
  local y = context.attend(self, nil, 0, heads(a.query), heads(a.key), heads(a.value),
    { attn_mask = bias, dropout_p = self.training and self.attn_pdrop or 0.0 })
  return whole(self.attention.output.dense(y:transpose(2, 3):reshape(-1, n, x.shape[4])), w, B, H, W)
end

--- x [B, H * W, width] of an image of H x W patches.
function Layer:forward(x, H, W)
  local B, C, w = x.shape[1], x.shape[3], self.w
  local y = self.layernorm_before(x):view(B, H, W, C)
  local down, right = -H % w, -W % w
  if down > 0 or right > 0 then y = nn.functional.pad(y, { 0, 0, 0, right, 0, down }) end
  if self.shift > 0 then y = y:roll({ -self.shift, -self.shift }, { 2, 3 }) end
  y = self:attend_windows(y, H + down, W + right)
  if self.shift > 0 then y = y:roll({ self.shift, self.shift }, { 2, 3 }) end
  if down > 0 or right > 0 then y = y:narrow(2, 1, H):narrow(3, 1, W) end
  x = x + self.drop_path(self.dropout(y:reshape(B, H * W, C)))
  return x + self.dropout(self.output.dense(self.act(self.intermediate.dense(self.layernorm_after(x)))))
end

--- Four neighbouring patches become one of twice the width.
---@class accel.models.SwinPatchMerging : accel.nn.Module
local Merging = nn.Module:extend("SwinPatchMerging")

function Merging:init(width)
  self.reduction = nn.Linear(4 * width, 2 * width, { bias = false })
  self.norm = nn.LayerNorm(4 * width, { eps = 1e-5 })
end

function Merging:forward(x, H, W)
  local B, C = x.shape[1], x.shape[3]
  x = x:view(B, H, W, C)
  if H % 2 == 1 or W % 2 == 1 then x = nn.functional.pad(x, { 0, 0, 0, W % 2, 0, H % 2 }) end
  H, W = (H + 1) // 2, (W + 1) // 2
  x = x:view(B, H, 2, W, 2, C):permute(1, 2, 4, 5, 3, 6):reshape(B, H * W, 4 * C)
  return self.reduction(self.norm(x))
end

---@class accel.models.SwinModel : accel.models.PreTrainedModel
local Model = Root:define("SwinModel", { is_base = true, gradient_checkpointing = false })

function Model:build(c, pooler)
  local side, total, done = c.image_size // c.patch_size, 0, 0
  self.embeddings = nn.Module()
  self.encoder = nn.Module()
  local e = self.embeddings
  e.patch_embeddings = nn.Module()
  e.patch_embeddings.projection = tower.patches(c.embed_dim, c.num_channels, c.patch_size)
  if c.use_absolute_embeddings then e.position_embeddings = Parameter(accel.zeros(1, side * side, c.embed_dim)) end
  e.norm = nn.LayerNorm(c.embed_dim, { eps = 1e-5 })
  self.dropout = nn.Dropout(c.hidden_dropout_prob)
  self.encoder.layers = nn.ModuleList()
  for _, n in ipairs(c.depths) do total = total + n end
  local width = c.embed_dim
  for s, depth in ipairs(c.depths) do
    local stage = nn.Module()
    stage.blocks = nn.ModuleList()
    for i = 1, depth do
      local shift = i % 2 == 0 and side > c.window_size and c.window_size // 2 or 0
      stage.blocks:append(Layer(c, width, c.num_heads[s], shift, c.drop_path_rate * done / math.max(total - 1, 1)))
      done = done + 1
    end
    if s < #c.depths then
      stage.downsample = Merging(width)
      width, side = 2 * width, (side + 1) // 2
    end
    self.encoder.layers:append(stage)
  end
  self.layernorm, self.pooled = nn.LayerNorm(width, { eps = c.layer_norm_eps }), pooler ~= false
end

--- Hidden states [B, patches, width] of the last stage, and their mean [B, width].
---@param x accel.Tensor images [B, C, H, W]
---@return accel.Tensor, accel.Tensor
function Model:forward(x, ...)
  check.surplus("forward", ...)
  local c, e = self.config, self.embeddings
  tower.check_images("swin", x, c.num_channels, c.image_size)
  local side = c.image_size // c.patch_size
  x = e.norm(tower.cut(e.patch_embeddings.projection, x))
  if e.position_embeddings then x = x + e.position_embeddings end
  x = self.dropout(x)
  for _, stage in ipairs(self.encoder.layers) do
    for _, layer in ipairs(stage.blocks) do x = run_layer(self, layer, nil, x, side, side) end
    if stage.downsample then
      x = stage.downsample(x, side, side)
      side = (side + 1) // 2
    end
  end
  x = self.layernorm(x)
  return x, x:mean(2)
end

---@class accel.models.SwinForImageClassification : accel.models.PreTrainedModel
local Classes = Root:define("SwinForImageClassification", {})
classify.classifier(Classes, "swin", Model, { pool = function(_, _, pooled) return pooled end,
  width = function(c) return c.embed_dim * 2 ^ (#c.depths - 1) // 1 end })

return { SwinModel = Model, SwinForImageClassification = Classes }
