--- nn.Transformer: encoder and decoder.
local accel = require "accel"
local LayerNorm = require "accel.nn.layer_norm"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local decoder = require "accel.nn.transformer_decoder"
local encoder = require "accel.nn.transformer_encoder"

--- An encoder and a decoder of Transformer layers, without embeddings and head. Options: d_model = 512, nhead = 8,
--- num_encoder_layers = 6, num_decoder_layers = 6, dim_feedforward = 2048, dropout = 0.1, activation, layer_norm_eps,
--- batch_first, norm_first, bias as in TransformerEncoderLayer, custom_encoder, custom_decoder. Initial values: all
--- matrices Xavier uniform.
--- example: accel.nn.Transformer(8, 2, 1, 1, 16)(accel.ones(5, 3, 8), accel.ones(4, 3, 8)).shape --> { 4, 3, 8 }
---@class accel.nn.Transformer : accel.nn.Module
local Transformer = Module:extend("accel.nn.Transformer")

local parse = arguments("Transformer", { "d_model", 512 }, { "nhead", 8 }, { "num_encoder_layers", 6 },
  { "num_decoder_layers", 6 }, { "dim_feedforward", 2048 }, { "dropout", 0.1 },
  { "activation", "relu", any = true }, { "custom_encoder" }, { "custom_decoder" },
  { "layer_norm_eps", 1e-5 }, { "batch_first", false }, { "norm_first", false }, { "bias", true },
  { "device" }, { "dtype", "f32" })

---@param ... any options by position or in one table
function Transformer:init(...)
  local o = parse(...)
  local layer = {
    dim_feedforward = o.dim_feedforward, dropout = o.dropout, activation = o.activation,
    layer_norm_eps = o.layer_norm_eps, batch_first = o.batch_first, norm_first = o.norm_first, bias = o.bias,
    dtype = o.dtype, device = o.device,
  }
  local norm = { eps = o.layer_norm_eps, bias = o.bias, dtype = o.dtype, device = o.device }
  self.encoder = o.custom_encoder or encoder.TransformerEncoder(
    encoder.TransformerEncoderLayer(o.d_model, o.nhead, layer), o.num_encoder_layers, LayerNorm(o.d_model, norm))
  self.decoder = o.custom_decoder or decoder.TransformerDecoder(
    decoder.TransformerDecoderLayer(o.d_model, o.nhead, layer), o.num_decoder_layers, LayerNorm(o.d_model, norm))
  self.d_model, self.nhead, self.batch_first = o.d_model, o.nhead, o.batch_first
  self:reset_parameters()
end

--- Draws the initial values of all matrices again.
function Transformer:reset_parameters()
  local init = require "accel.nn.initialization"
  for _, p in ipairs(self:parameters()) do
    if p.ndim > 1 then init.xavier_uniform_(p) end
  end
end

local forward_arguments = arguments("Transformer", { "src_mask" }, { "tgt_mask" }, { "memory_mask" },
  { "src_key_padding_mask" }, { "tgt_key_padding_mask" }, { "memory_key_padding_mask" },
  { "src_is_causal", false }, { "tgt_is_causal", false }, { "memory_is_causal", false })

--- Options, by position or in one table: src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask,
--- memory_key_padding_mask, src_is_causal, tgt_is_causal, memory_is_causal. See MultiheadAttention.
---@param src accel.Tensor
---@param tgt accel.Tensor
---@param ... any
---@return accel.Tensor
function Transformer:forward(src, tgt, ...)
  local o = forward_arguments(...)
  local memory = self.encoder(src,
    { mask = o.src_mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.src_is_causal })
  return self.decoder(tgt, memory, {
    tgt_mask = o.tgt_mask, memory_mask = o.memory_mask, tgt_key_padding_mask = o.tgt_key_padding_mask,
    memory_key_padding_mask = o.memory_key_padding_mask, tgt_is_causal = o.tgt_is_causal,
    memory_is_causal = o.memory_is_causal,
  })
end

--- (n, n): 0 on and below the diagonal, -infinity above: the mask of a causal decoder, as a float mask.
---@param n integer
---@param opts? {dtype: string?, device: string?}
---@return accel.Tensor
function Transformer.generate_square_subsequent_mask(n, opts, ...)
  check.surplus("generate_square_subsequent_mask", ...)
  n = check.positive("generate_square_subsequent_mask", "n", n)
  return accel.full({ n, n }, -math.huge, opts):triu(1)
end

return Transformer
