--- Towers of layers with the norm before each part, over patches of an image or over tokens: the common part of ViT's relatives and the two
--- halves of CLIP. Names of weights are paths. Used by the families of images in models/families.
local accel = require "accel"
local Parameter = require "accel.nn.parameter"
local activation = require "accel.models.activation"
local context = require "accel.models.context"
local feed_forward = require "accel.models.feed_forward"
local nn = require "accel.nn"
local paths = require "accel.models.decoder.paths"
local raise = require "accel.util.raise"
local run_layer = require "accel.models.run_layer"
local tensors = require "accel.util.tensors"

local M = {}

---@class accel.models.Tower
---@field width integer
---@field layers integer
---@field heads integer
---@field ffn integer
---@field act string
---@field eps number
---@field dropout number
---@field attention_dropout number
---@field qkv_bias? boolean false: q, k and v have no bias
---@field k_bias? boolean false: keys have none
---@field gated? boolean the feed-forward layer is gated, with both products in one matrix
---@field names table<string, string> layers, norm1, q, k, v, o, norm2, first, second. scale1 and scale2 for scaled parts

--- Registers a parameter under a path.
---@param module accel.nn.Module
---@param path string
---@param t accel.Tensor
function M.put_parameter(module, path, t)
  local at, key = path:match "^(.*)%.([^.]+)$"
  if at then
    local inner = paths.find(module, at)
    if not inner then
      inner = nn.Module()
      paths.put(module, at, inner)
    end
    module = inner
  end
  module[key or path] = Parameter(t)
end

---@class accel.models.TowerLayer : accel.nn.Module
local Layer = nn.Module:extend("TowerLayer")
M.Layer = Layer

---@param t accel.models.Tower
function Layer:init(t)
  local n, W = t.names, t.width
  self.names, self.head_dim, self.attn_pdrop, self.gated = n, W // t.heads, t.attention_dropout or 0.0, t.gated
  self.scaled, self.act = n.scale1 ~= nil, activation.find(t.act)
  paths.put(self, n.norm1, nn.LayerNorm(W, { eps = t.eps }))
  local bias = t.qkv_bias ~= false
  paths.put(self, n.q, nn.Linear(W, W, { bias = bias }))
  paths.put(self, n.k, nn.Linear(W, W, { bias = bias and t.k_bias ~= false }))
  paths.put(self, n.v, nn.Linear(W, W, { bias = bias }))
  paths.put(self, n.o, nn.Linear(W, W))
  paths.put(self, n.norm2, nn.LayerNorm(W, { eps = t.eps }))
  paths.put(self, n.first, nn.Linear(W, t.gated and 2 * t.ffn or t.ffn))
  paths.put(self, n.second, nn.Linear(t.ffn, W))
  if self.scaled then
    M.put_parameter(self, n.scale1, accel.full({ W }, t.scale or 1.0))
    M.put_parameter(self, n.scale2, accel.full({ W }, t.scale or 1.0))
  end
  self.hidden_dropout = nn.Dropout(t.dropout or 0.0)
end

--- x [B, T, width] -> [B, T, width]. o: attn_mask (bool, or float that is added to the scores), is_causal.
---@param x accel.Tensor
---@param o? table
function Layer:forward(x, o)
  local n, D, B, T = self.names, self.head_dim, x.shape[1], x.shape[2]
  local y = paths.get(self, n.norm1)(x)
  local function heads(role) return paths.get(self, n[role])(y):view(B, T, -1, D):transpose(2, 3) end
  local z = context.attend(self, nil, 0, heads "q", heads "k", heads "v", {
    attn_mask = o and o.attn_mask, is_causal = o and o.is_causal, dropout_p = self.training and self.attn_pdrop or 0.0 })
  z = self.hidden_dropout(paths.get(self, n.o)(z:transpose(2, 3):reshape(B, T, -1)))
  x = x + (self.scaled and z * paths.get(self, n.scale1) or z)
  y = paths.get(self, n.norm2)(x)
  if self.gated then
    local gate, up = table.unpack(paths.get(self, n.first)(y):chunk(2, 3))
    z = paths.get(self, n.second)(accel.swiglu(gate, up))
  else
    z = feed_forward(paths.get(self, n.first), self.act, paths.get(self, n.second), y)
  end
  z = self.hidden_dropout(z)
  return x + (self.scaled and z * paths.get(self, n.scale2) or z)
end

--- Makes the layers of a tower.
---@param self accel.nn.Module
---@param t accel.models.Tower
---@param LayerClass? table
function M.build(self, t, LayerClass)
  local list = nn.ModuleList()
  for i = 1, t.layers do list:append((LayerClass or Layer)(t, i)) end
  paths.put(self, t.names.layers, list)
end

--- Runs the layers.
---@param self accel.nn.Module
---@param t accel.models.Tower
---@param x accel.Tensor
---@param o? table|fun(layer: accel.nn.Module, i: integer): table
---@return accel.Tensor
function M.run(self, t, x, o)
  for i, layer in ipairs(paths.get(self, t.names.layers)) do
    x = run_layer(self, layer, nil, x, type(o) == "function" and o(layer, i) or o)
  end
  return x
end

local function sides(size)
  if type(size) == "table" then return size[1], size[2] end
  return size, size
end

--- Rows and columns of patches of an image.
---@param image integer|integer[]
---@param patch integer|integer[]
---@return integer rows, integer columns
function M.grid(image, patch)
  local H, W = sides(image)
  local h, w = sides(patch)
  return H // h, W // w
end

--- Raises unless x is a batch of images of the given size and channels.
---@param who string
---@param x any
---@param channels integer
---@param image integer|integer[]
function M.check_images(who, x, channels, image)
  local H, W = sides(image)
  local shape = tensors.is_tensor(x) and x.shape or {}
  if #shape ~= 4 or shape[2] ~= channels or shape[3] ~= H or shape[4] ~= W then
    raise("%s: expected images [batch, %d, %d, %d], got %s", who, channels, H, W,
      tensors.is_tensor(x) and tensors.shape_string(x) or type(x))
  end
end

--- A convolution that cuts an image into patches.
---@param width integer
---@param channels integer
---@param patch integer|integer[]
---@param bias? boolean
---@return accel.nn.Module
function M.patches(width, channels, patch, bias)
  local h, w = sides(patch)
  return nn.Conv2d(channels, width, { h, w }, { stride = { h, w }, bias = bias ~= false })
end

--- Patches [B, n, width], row by row.
---@param conv accel.nn.Module
---@param x accel.Tensor
---@return accel.Tensor
function M.cut(conv, x) return conv(x):flatten(3):transpose(2, 3) end

--- Names of ViT's layers under files' names. Entries of `own` replace them.
---@param own? table<string, string>
---@return table<string, string>
function M.vit_names(own)
  local names = { layers = "encoder.layer", norm1 = "layernorm_before", q = "attention.attention.query", k = "attention.attention.key",
    v = "attention.attention.value", o = "attention.output.dense", norm2 = "layernorm_after",
      first = "intermediate.dense", second = "output.dense" }
  for role, name in next, own or {} do names[role] = name end
  return names
end

return M
