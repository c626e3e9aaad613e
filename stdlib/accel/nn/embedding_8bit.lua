--- nn.Embedding8bit(num_embeddings, embedding_dim, {dtype=, device=}): an embedding whose table has 8 bits a value.
local accel = require "accel"
local QuantizedEmbedding = require "accel.nn.quantized_embedding"
local arguments = require "accel.nn.arguments"

--- Rows in int8, each with the magnitude of its largest value, as bitsandbytes' layer of this name. The table takes no gradient. It is the
--- weight of nn.Linear8bitLt, so that a tied head and the embedding share one. Its state_dict has that layer's entries (bitsandbytes' own
--- layer cannot be saved).
--- example: accel.nn.Embedding8bit(10, 64)(accel.tensor { { 1, 2 }, { 4, 9 } }).shape --> { 2, 2, 64 }
---@class accel.nn.Embedding8bit : accel.nn.QuantizedEmbedding
local Embedding8bit = QuantizedEmbedding:extend("accel.nn.Embedding8bit")

local parse = arguments("Embedding8bit", { "num_embeddings" }, { "embedding_dim" }, { "device" }, { "dtype" })

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? table
---  dtype string: of the rows that come out (default: f16, through which values are quantised)
---  device string
function Embedding8bit:init(num_embeddings, embedding_dim, opts, ...)
  self:make("Embedding8bit", parse(num_embeddings, embedding_dim, opts, ...), "int8", {})
end

--- Values as this layer keeps them.
---@param values accel.Tensor
---@return accel.Tensor
function Embedding8bit:quantize(values) return accel.quantize_int8(values:to "f16") end

return Embedding8bit
