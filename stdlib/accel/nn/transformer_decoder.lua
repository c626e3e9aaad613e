--- nn.TransformerDecoderLayer and nn.TransformerDecoder.
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

--- Self-attention, attention to the encoder's output (memory) and a feed-forward network, each with a residual
--- connection and LayerNorm. Options as TransformerEncoderLayer's. Inputs (L, N, d_model) and (S, N, d_model),
--- with batch_first the batch first.
--- example: accel.nn.TransformerDecoderLayer(8, 2)(accel.ones(4, 3, 8), accel.ones(5, 3, 8)).shape --> { 4, 3, 8 }
---@class accel.nn.TransformerDecoderLayer : accel.nn.Module
local Layer = Module:extend("accel.nn.TransformerDecoderLayer")
M.TransformerDecoderLayer = Layer

local layer_arguments = feed_forward.layer_arguments("TransformerDecoderLayer")

---@param d_model integer
---@param nhead integer a divisor of d_model
---@param ... any options by position or in one table
function Layer:init(d_model, nhead, ...)
  local o = layer_arguments(d_model, nhead, ...)
  local linear = { bias = o.bias, dtype = o.dtype, device = o.device }
  local norm = { eps = o.layer_norm_eps, bias = o.bias, dtype = o.dtype, device = o.device }
  local attention = { dropout = o.dropout, bias = o.bias, batch_first = o.batch_first, dtype = o.dtype,
    device = o.device }
  self.self_attn = MultiheadAttention(o.d_model, o.nhead, attention)
  self.multihead_attn = MultiheadAttention(o.d_model, o.nhead, attention)
  self.linear1 = Linear(o.d_model, o.dim_feedforward, linear)
  self.dropout = Dropout(o.dropout)
  self.linear2 = Linear(o.dim_feedforward, o.d_model, linear)
  for i = 1, 3 do self["norm" .. i] = LayerNorm(o.d_model, norm) end
  for i = 1, 3 do self["dropout" .. i] = Dropout(o.dropout) end
  self.norm_first = o.norm_first
  self.activation = feed_forward.activation("TransformerDecoderLayer", o.activation)
end

local function attend_self(self, x, o)
  local y = self.self_attn(x, x, x, {
    attn_mask = o.tgt_mask, key_padding_mask = o.tgt_key_padding_mask, is_causal = o.tgt_is_causal,
    need_weights = false,
  })
  return self.dropout1(y)
end

local function attend_memory(self, x, memory, o)
  local y = self.multihead_attn(x, memory, memory, {
    attn_mask = o.memory_mask, key_padding_mask = o.memory_key_padding_mask, is_causal = o.memory_is_causal,
    need_weights = false,
  })
  return self.dropout2(y)
end

local run = { { "tgt_mask" }, { "memory_mask" }, { "tgt_key_padding_mask" }, { "memory_key_padding_mask" },
  { "tgt_is_causal", false }, { "memory_is_causal", false } }

local forward_arguments = arguments("TransformerDecoderLayer", table.unpack(run))

--- Options, by position or in one table: tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
--- tgt_is_causal = false, memory_is_causal = false. See MultiheadAttention.
---@param tgt accel.Tensor
---@param memory accel.Tensor
---@param ... any
---@return accel.Tensor
function Layer:forward(tgt, memory, ...)
  local o, x = forward_arguments(...), tgt
  if self.norm_first then
    local y
    y, x = add_norm(self.norm2, attend_self(self, self.norm1(x), o), x)
    y, x = add_norm(self.norm3, attend_memory(self, y, memory, o), x)
    return x + feed_forward.run(self, y, self.dropout3)
  end
  x = add_norm(self.norm1, attend_self(self, x, o), x)
  x = add_norm(self.norm2, attend_memory(self, x, memory, o), x)
  return (add_norm(self.norm3, feed_forward.run(self, x, self.dropout3), x))
end

--- num_layers copies of a layer in a row, and an optional norm at the end.
--- example: local l = accel.nn.TransformerDecoderLayer(8, 2) return #accel.nn.TransformerDecoder(l, 2).layers --> 2
---@class accel.nn.TransformerDecoder : accel.nn.Module
local Decoder = Module:extend("accel.nn.TransformerDecoder")
M.TransformerDecoder = Decoder

local decoder_arguments = arguments("TransformerDecoder", { "decoder_layer" }, { "num_layers" }, { "norm" })

---@param decoder_layer accel.nn.TransformerDecoderLayer
---@param num_layers integer
---@param norm? accel.nn.Module
function Decoder:init(decoder_layer, num_layers, norm)
  local o = decoder_arguments(decoder_layer, num_layers, norm)
  if not Module.is_module(o.decoder_layer) then
    raise("TransformerDecoder: decoder_layer: %s", Module.not_a_module(o.decoder_layer))
  end
  self.num_layers = check.positive("TransformerDecoder", "num_layers", o.num_layers)
  self.layers = ModuleList()
  for _ = 1, self.num_layers do self.layers:append(o.decoder_layer:clone()) end
  self:register_module("norm", o.norm)
end

local decode_arguments = arguments("TransformerDecoder", table.unpack(run))

--- Options as TransformerDecoderLayer's forward.
---@param tgt accel.Tensor
---@param memory accel.Tensor
---@param ... any
---@return accel.Tensor
function Decoder:forward(tgt, memory, ...)
  local o, x = decode_arguments(...), tgt
  for _, layer in ipairs(self.layers) do x = layer(x, memory, o) end
  return self.norm and self.norm(x) or x
end

return M
