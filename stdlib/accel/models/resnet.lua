--- ResNet in Hugging Face's names, with basic or bottleneck layers.
---
---   local model = models.ResNetForImageClassification { embedding_size = 16, hidden_sizes = { 16, 32 },
---     depths = { 2, 2 }, layer_type = "basic", num_labels = 10 }
---   local logits = model(pixel_values)              -- [B, channels, height, width] -> [B, 10]
local PreTrainedModel = require "accel.models.pretrained_model"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local config = require "accel.models.config"
local init = require "accel.nn.initialization"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local REDUCTION = 4 -- a bottleneck is so much narrower than its output

local schema = config.schema("resnet", {
  num_channels = config.count(3), embedding_size = config.size(64),
  hidden_sizes = config.sizes { 256, 512, 1024, 2048 },
  depths = config.sizes { 3, 4, 6, 3 }, layer_type = config.word("bottleneck", { "basic", "bottleneck" }),
  hidden_act = config.activation "relu", downsample_in_first_stage = config.flag(false),
  downsample_in_bottleneck = config.flag(false),
  out_features = config.unused(), out_indices = config.unused(), stage_names = config.unused(), -- of backbones
}, function(c)
  if #c.depths ~= #c.hidden_sizes then
    return ("depths has %d entries, hidden_sizes %d"):format(#c.depths, #c.hidden_sizes)
  end
  for i, depth in ipairs(c.depths) do
    if depth > 4096 then return ("depths[%d] must be at most 4096, got %d"):format(i, depth) end
    if c.layer_type == "bottleneck" and c.hidden_sizes[i] < REDUCTION then
      return ("hidden_sizes[%d] must be at least %d for bottlenecks, got %d"):format(i, REDUCTION, c.hidden_sizes[i])
    end
  end
end)

--- Convolution, batch norm and, with a name, an activation.
---@class accel.models.ResNetConvLayer : accel.nn.Module
local ConvLayer = nn.Module:extend("ResNetConvLayer")

function ConvLayer:init(n_in, n_out, kernel, stride, act)
  self.convolution = nn.Conv2d(n_in, n_out, kernel, { stride = stride, padding = kernel // 2, bias = false })
  self.normalization = nn.BatchNorm2d(n_out)
  self.act = act and activation.find(act)
end

function ConvLayer:forward(x)
  x = self.normalization(self.convolution(x))
  return self.act and self.act(x) or x
end

---@class accel.models.ResNetEmbeddings : accel.nn.Module
local Embeddings = nn.Module:extend("ResNetEmbeddings")

function Embeddings:init(c)
  self.embedder = ConvLayer(c.num_channels, c.embedding_size, 7, 2, c.hidden_act)
  self.pooler = nn.MaxPool2d(3, { stride = 2, padding = 1 })
  self.channels = c.num_channels
end

function Embeddings:forward(x)
  local shape = tensors.is_tensor(x) and x.shape or {}
  if #shape ~= 4 or shape[2] ~= self.channels then
    raise("resnet: expected images [batch, %d, height, width], got %s", self.channels,
      tensors.is_tensor(x) and tensors.shape_string(x) or check.shown(x))
  end
  return self.pooler(self.embedder(x))
end

--- One residual layer. `parts` lists its convolutions as {in, out, kernel, stride}.
---@class accel.models.ResNetLayer : accel.nn.Module
local Layer = nn.Module:extend("ResNetLayer")

function Layer:init(c, n_in, n_out, stride)
  local parts
  if c.layer_type == "basic" then
    parts = { { n_in, n_out, 3, stride }, { n_out, n_out, 3, 1 } }
  else
    local narrow, early = n_out // REDUCTION, c.downsample_in_bottleneck
    parts = {
      { n_in, narrow, 1, early and stride or 1 }, { narrow, narrow, 3, early and 1 or stride },
      { narrow, n_out, 1, 1 },
    }
  end
  local layers = {}
  for i, p in ipairs(parts) do
    -- the inner activation of both kinds is relu regardless of the configuration, as in Transformers
    layers[i] = ConvLayer(p[1], p[2], p[3], p[4], i < #parts and "relu" or nil)
  end
  if n_in ~= n_out or stride ~= 1 then self.shortcut = ConvLayer(n_in, n_out, 1, stride) end
  self.layer = nn.Sequential(table.unpack(layers))
  self.act = activation.find(c.hidden_act)
end

function Layer:forward(x)
  local before = self.shortcut and self.shortcut(x) or x
  return self.act(self.layer(x) + before)
end

---@class accel.models.ResNetStage : accel.nn.Module
local Stage = nn.Module:extend("ResNetStage")

function Stage:init(c, n_in, n_out, stride, depth)
  self.layers = nn.Sequential()
  for i = 1, depth do
    self.layers:append(Layer(c, i == 1 and n_in or n_out, n_out, i == 1 and stride or 1))
  end
end

function Stage:forward(x) return self.layers(x) end

---@class accel.models.ResNetEncoder : accel.nn.Module
local Encoder = nn.Module:extend("ResNetEncoder")

function Encoder:init(c)
  self.stages = nn.ModuleList()
  local width = c.embedding_size
  for i, depth in ipairs(c.depths) do
    local stride = (i > 1 or c.downsample_in_first_stage) and 2 or 1
    self.stages:append(Stage(c, width, c.hidden_sizes[i], stride, depth))
    width = c.hidden_sizes[i]
  end
end

function Encoder:forward(x)
  for _, stage in ipairs(self.stages) do x = stage(x) end
  return x
end

local Base = PreTrainedModel:define("ResNetPreTrainedModel", {
  schema = schema, _no_split_modules = { "ResNetLayer" }, base_model_prefix = "resnet",
})

--- Kernels by He et al., normal over the outgoing connections. Linear layers as in nn.Linear.
function Base:initialize(t, at)
  if t.ndim == 4 then
    init.kaiming_normal_(t, { mode = "fan_out", nonlinearity = "relu" })
  elseif at.module.in_features then
    local bound = 1 / math.sqrt(at.module.in_features)
    init.uniform_(t, -bound, bound)
  else
    PreTrainedModel.initialize(self, t, at)
  end
end

--- The convolutions alone: images [B, C, H, W] -> features [B, hidden_sizes[#hidden_sizes], h, w], and their
--- mean over the image, [B, .., 1, 1].
--- example: accel.models.ResNetModel(accel.models.tiny.resnet)(accel.zeros(2, 3, 32, 32)).shape --> { 2, 8, 4, 4 }
---@class accel.models.ResNetModel : accel.models.PreTrainedModel
local ResNetModel = Base:define("ResNetModel", { is_base = true })

function ResNetModel:build(c)
  self.embedder = Embeddings(c)
  self.encoder = Encoder(c)
end

---@param pixel_values accel.Tensor
---@return accel.Tensor, accel.Tensor
function ResNetModel:forward(pixel_values)
  local x = self.encoder(self.embedder(pixel_values))
  return x, x:mean({ 3, 4 }, true)
end

--- Classifies images by the mean of their features.
--- example: accel.models.ResNetForImageClassification(accel.models.tiny.resnet)(accel.zeros(2, 3, 8, 8)).shape --> { 2, 2 }
---@class accel.models.ResNetForImageClassification : accel.models.PreTrainedModel
local Classification = Base:define("ResNetForImageClassification")

function Classification:build(c)
  self.resnet = ResNetModel:part(c)
  self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(c.hidden_sizes[#c.hidden_sizes], config.labels(c)))
end

--- Logits [B, num_labels] of images [B, C, H, W].
---@param pixel_values accel.Tensor
---@return accel.Tensor
function Classification:forward(pixel_values)
  local _, pooled = self.resnet(pixel_values)
  return self.classifier(pooled)
end

return { ResNetModel = ResNetModel, ResNetForImageClassification = Classification }
