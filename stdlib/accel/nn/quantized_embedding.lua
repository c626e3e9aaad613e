--- The common part of nn.Embedding8bit and nn.Embedding4bit: a quantised table of rows. A lookup dequantises only the rows it needs.
local accel = require "accel"
local Parameter = require "accel.nn.parameter"
local Quantized = require "accel.nn.quantized"
local check = require "accel.util.check"

local embedding_quantized = accel.embedding_quantized

---@class accel.nn.QuantizedEmbedding : accel.nn.Quantized
---@field num_embeddings integer
---@field embedding_dim integer
---@field dtype string? of the result's rows. nil: the original dtype
local QuantizedEmbedding = Quantized:extend("accel.nn.QuantizedEmbedding")

--- Checks the sizes, and makes the weight: standard normal rows, or without values on the meta device.
function QuantizedEmbedding:make(who, o, kind, opts)
  self.num_embeddings = check.positive(who, "num_embeddings", o.num_embeddings)
  self.embedding_dim = check.positive(who, "embedding_dim", o.embedding_dim)
  self.dtype = o.dtype
  if o.device == "meta" then
    opts.dtype, opts.device = o.dtype or "f16", "meta"
    self.weight = Parameter(accel.empty_quantized(kind, { self.num_embeddings, self.embedding_dim }, opts), false)
  else
    self:take(accel.randn(self.num_embeddings, self.embedding_dim, { device = o.device }))
  end
end

--- Takes over the table of an embedding: floats are quantised. A quantised one, as a tied head's, is shared.
---@param weight accel.Tensor
function QuantizedEmbedding:take(weight)
  local _ <close> = accel.no_grad()
  if weight.quant_state then self.weight = weight
  else self.weight = Parameter(self:quantize(weight:detach()), false) end
end

function QuantizedEmbedding:forward(ids) return embedding_quantized(ids, self.weight, self.dtype) end

function QuantizedEmbedding:extra_repr()
  return ("%d, %d, quant_type=%s"):format(self.num_embeddings, self.embedding_dim, self.weight.quant_state.quant_type)
end

return QuantizedEmbedding
