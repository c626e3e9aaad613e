--- nn.TransformerEncoderLayer and nn.TransformerEncoder ("Attention Is All You Need", with PyTorch's names).
local Dropout = require "accel.nn.dropout".Dropout
local Linear = require "accel.nn.linear"
local LayerNorm = require "accel.nn.layer_norm"
local Module = require "accel.nn.module"
local ModuleList = require "accel.nn.module_list"
local MultiheadAttention = require "accel.nn.multihead_attention"
local add_norm = require "accel.nn.add_norm"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local feed_forward = require "accel.nn.transformer_parts"
local raise = require "accel.util.raise"

local M = {}

--- Self-attention and a feed-forward network, each with a residual connection and LayerNorm (after the sum, or
--- with norm_first = true before the branch). Options: dim_feedforward = 2048, dropout = 0.1, activation =
--- "relu", "gelu" or a function, layer_norm_eps = 1e-5, batch_first = false, norm_first = false, bias = true.
--- Input (L, N, d_model), with batch_first (N, L, d_model).
--- example: accel.nn.TransformerEncoderLayer(8, 2, { dim_feedforward = 16 })(accel.ones(5, 3, 8)).shape --> { 5, 3, 8 }
---@class accel.nn.TransformerEncoderLayer : accel.nn.Module
local Layer = Module:extend("accel.nn.TransformerEncoderLayer")
M.TransformerEncoderLayer = Layer

local layer_arguments = feed_forward.layer_arguments("TransformerEncoderLayer")

---@param d_model integer
---@param nhead integer a divisor of d_model
---@param ... any options by position or in one table
function Layer:init(d_model, nhead, ...)
  local o = layer_arguments(d_model, nhead, ...)
  local make = { bias = o.bias, dtype = o.dtype, device = o.device }
  local norm = { eps = o.layer_norm_eps, bias = o.bias, dtype = o.dtype, device = o.device }
  self.self_attn = MultiheadAttention(o.d_model, o.nhead, {
    dropout = o.dropout, bias = o.bias, batch_first = o.batch_first, dtype = o.dtype, device = o.device,
  })
  self.linear1 = Linear(o.d_model, o.dim_feedforward, make)
  self.dropout = Dropout(o.dropout)
  self.linear2 = Linear(o.dim_feedforward, o.d_model, make)
  for i = 1, 2 do self["norm" .. i] = LayerNorm(o.d_model, norm) end
  for i = 1, 2 do self["dropout" .. i] = Dropout(o.dropout) end
  self.norm_first = o.norm_first
  self.activation = feed_forward.activation("TransformerEncoderLayer", o.activation)
end

local function attend(self, x, o)
  local y = self.self_attn(x, x, x, {
    attn_mask = o.src_mask, key_padding_mask = o.src_key_padding_mask, is_causal = o.is_causal,
    need_weights = false,
  })
  return self.dropout1(y)
end

local forward_arguments = arguments("TransformerEncoderLayer", { "src_mask" }, { "src_key_padding_mask" },
  { "is_causal", false })

--- Options, by position or in one table: src_mask, src_key_padding_mask, is_causal = false. See MultiheadAttention.
---@param src accel.Tensor
---@param ... any
---@return accel.Tensor
function Layer:forward(src, ...)
  local o, x = forward_arguments(...), src
  if self.norm_first then
    local y, sum = add_norm(self.norm2, attend(self, self.norm1(x), o), x)
    return sum + feed_forward.run(self, y, self.dropout2)
  end
  x = add_norm(self.norm1, attend(self, x, o), x)
  return (add_norm(self.norm2, feed_forward.run(self, x, self.dropout2), x))
end

--- num_layers copies of a layer in a row, and an optional norm at the end. The copies begin with the values of the
--- layer, as in PyTorch.
--- example: local l = accel.nn.TransformerEncoderLayer(8, 2) return #accel.nn.TransformerEncoder(l, 3).layers --> 3
---@class accel.nn.TransformerEncoder : accel.nn.Module
local Encoder = Module:extend("accel.nn.TransformerEncoder")
M.TransformerEncoder = Encoder

local encoder_arguments = arguments("TransformerEncoder", { "encoder_layer" }, { "num_layers" }, { "norm" })

---@param encoder_layer accel.nn.TransformerEncoderLayer
---@param num_layers integer
---@param norm? accel.nn.Module
function Encoder:init(encoder_layer, num_layers, norm)
  local o = encoder_arguments(encoder_layer, num_layers, norm)
  if not Module.is_module(o.encoder_layer) then
    raise("TransformerEncoder: encoder_layer: %s", Module.not_a_module(o.encoder_layer))
  end
  self.num_layers = check.positive("TransformerEncoder", "num_layers", o.num_layers)
  self.layers = ModuleList()
  for _ = 1, self.num_layers do self.layers:append(o.encoder_layer:clone()) end
  self:register_module("norm", o.norm)
end

local run_arguments = arguments("TransformerEncoder", { "mask" }, { "src_key_padding_mask" },
  { "is_causal", false })

--- Options, by position or in one table: mask, src_key_padding_mask, is_causal = false.
---@param src accel.Tensor
---@param ... any
---@return accel.Tensor
function Encoder:forward(src, ...)
  local o, x = run_arguments(...), src
  local given = { src_mask = o.mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.is_causal }
  for _, layer in ipairs(self.layers) do x = layer(x, given) end
  return self.norm and self.norm(x) or x
end

return M
