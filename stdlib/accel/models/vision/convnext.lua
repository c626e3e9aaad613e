--- ConvNeXt (Liu et al. 2022) and version 2: stages of depthwise convolutions and two linear layers on channels. Used by
--- families/convnext.lua and families/convnextv2.lua.
local accel = require "accel"
local DropPath = require "accel.models.vision.drop_path"
local Parameter = require "accel.nn.parameter"
local PreTrainedModel = require "accel.models.pretrained_model"
local activation = require "accel.models.activation"
local check = require "accel.util.check"
local classify = require "accel.models.vision.classify"
local config = require "accel.models.config"
local nn = require "accel.nn"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"

local EPS <const> = 1e-6

--- A norm over the channels of [B, C, H, W].
---@class accel.models.ChannelNorm : accel.nn.LayerNorm
local ChannelNorm = nn.LayerNorm:extend("ChannelNorm")

function ChannelNorm:forward(x) return nn.LayerNorm.forward(self, x:permute(1, 3, 4, 2)):permute(1, 4, 2, 3) end

--- Global response normalisation (Woo et al. 2023, algorithm 1): x [B, H, W, C].
---@class accel.models.ResponseNorm : accel.nn.Module
local ResponseNorm = nn.Module:extend("ResponseNorm")

function ResponseNorm:init(n)
  self.weight = Parameter(accel.zeros(1, 1, 1, n))
  self.bias = Parameter(accel.zeros(1, 1, 1, n))
end

function ResponseNorm:forward(x)
  local length = x:square():sum({ 2, 3 }, true):sqrt()
  return self.weight * (x * (length / (length:mean(4, true) + 1e-6))) + self.bias + x
end

---@class accel.models.ConvNextLayer : accel.nn.Module
local Layer = nn.Module:extend("ConvNextLayer")

function Layer:init(c, n, rate, v2)
  self.dwconv = nn.Conv2d(n, n, 7, { padding = 3, groups = n })
  self.layernorm = nn.LayerNorm(n, { eps = EPS })
  self.pwconv1 = nn.Linear(n, 4 * n)
  if v2 then self.grn = ResponseNorm(4 * n) end
  self.pwconv2 = nn.Linear(4 * n, n)
  self.act, self.drop_path = activation.find(c.hidden_act), DropPath(rate)
  if not v2 and c.layer_scale_init_value > 0 then
    self.layer_scale_parameter = Parameter(accel.full({ n }, c.layer_scale_init_value))
  end
end

function Layer:forward(x)
  local y = self.act(self.pwconv1(self.layernorm(self.dwconv(x):permute(1, 3, 4, 2))))
  if self.grn then y = self.grn(y) end
  y = self.pwconv2(y)
  if self.layer_scale_parameter then y = y * self.layer_scale_parameter end
  return x + self.drop_path(y:permute(1, 4, 2, 3))
end

--- The classes of a family.
---@param o {model_type: string, prefix: string, v2: boolean}
---@return table<string, table>
return function(o)
  local keys = {
    num_channels = config.count(3), patch_size = config.size(4), num_stages = config.count(4),
    hidden_sizes = config.sizes { 96, 192, 384, 768 },
    depths = config.sizes { 3, 3, 9, 3 }, hidden_act = config.activation "gelu", initializer_range = config.number(0.02),
    layer_norm_eps = config.number(1e-12), drop_path_rate = config.rate(0.0), image_size = config.unused(), out_features = config.unused(),
    out_indices = config.unused(), stage_names = config.unused(),
  }
  if not o.v2 then keys.layer_scale_init_value = config.number(1e-6) end
  local schema = config.schema(o.model_type, keys, function(c)
    if #c.hidden_sizes ~= c.num_stages or #c.depths ~= c.num_stages then
      return ("hidden_sizes and depths must have num_stages %d entries, they have %d and %d"):format(c.num_stages,
        #c.hidden_sizes, #c.depths)
    end
  end)
  local Root = PreTrainedModel:define(o.prefix .. "PreTrainedModel", { schema = schema, _no_split_modules = { o.prefix .. "Layer" },
    base_model_prefix = o.model_type })
  local LayerClass = Layer:extend(o.prefix .. "Layer")
  local Model = Root:define(o.prefix .. "Model", { is_base = true, gradient_checkpointing = false })

  function Model:build(c)
    self.embeddings = nn.Module()
    self.encoder = nn.Module()
    local e, total, done = self.embeddings, 0, 0
    e.patch_embeddings = nn.Conv2d(c.num_channels, c.hidden_sizes[1], c.patch_size, { stride = c.patch_size })
    e.layernorm = ChannelNorm(c.hidden_sizes[1], { eps = EPS })
    for _, n in ipairs(c.depths) do total = total + n end
    self.encoder.stages = nn.ModuleList()
    for s = 1, c.num_stages do
      local stage = nn.Module()
      if s > 1 then
        stage.downsampling_layer = nn.ModuleList()
        stage.downsampling_layer:append(ChannelNorm(c.hidden_sizes[s - 1], { eps = EPS }))
        stage.downsampling_layer:append(nn.Conv2d(c.hidden_sizes[s - 1], c.hidden_sizes[s], 2, { stride = 2 }))
      end
      stage.layers = nn.ModuleList()
      for _ = 1, c.depths[s] do
        stage.layers:append(LayerClass(c, c.hidden_sizes[s], c.drop_path_rate * done / math.max(total - 1, 1), o.v2))
        done = done + 1
      end
      self.encoder.stages:append(stage)
    end
    self.layernorm = nn.LayerNorm(c.hidden_sizes[c.num_stages], { eps = c.layer_norm_eps })
  end

  --- Feature maps [B, C, H, W] of the last stage, and their mean through the last norm, [B, C].
  ---@param x accel.Tensor images [B, C, H, W]
  ---@return accel.Tensor, accel.Tensor
  function Model:forward(x, ...)
    check.surplus("forward", ...)
    if x.ndim ~= 4 or x.shape[2] ~= self.config.num_channels then
      raise("%s: expected images [batch, %d, height, width], got %s", o.model_type, self.config.num_channels, tostring(x.shape))
    end
    x = self.embeddings.layernorm(self.embeddings.patch_embeddings(x))
    for _, stage in ipairs(self.encoder.stages) do
      for _, part in ipairs(stage.downsampling_layer or {}) do x = part(x) end
      for _, layer in ipairs(stage.layers) do x = run_layer(self, layer, nil, x) end
    end
    return x, self.layernorm(x:mean { 3, 4 })
  end

  local Classes = Root:define(o.prefix .. "ForImageClassification", {})
  classify.classifier(Classes, o.model_type, Model, { pool = function(_, _, pooled) return pooled end,
    width = function(c) return c.hidden_sizes[c.num_stages] end })
  return { [o.prefix .. "Model"] = Model, [o.prefix .. "ForImageClassification"] = Classes }
end
