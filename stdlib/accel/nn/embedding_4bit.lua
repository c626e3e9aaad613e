--- nn.Embedding4bit(num_embeddings, embedding_dim, {dtype=, quant_type = "fp4", ...}), EmbeddingNF4 and EmbeddingFP4: embeddings whose
--- table has 4 bits a value.
local accel = require "accel"
local QuantizedEmbedding = require "accel.nn.quantized_embedding"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

--- Rows in blocks of 64 values of 4 bits, as bitsandbytes' layer of this name. The table takes no gradient. It is the weight of
--- nn.Linear4bit, so that a tied head and the embedding share one. Its state_dict has that layer's entries (bitsandbytes' own layer cannot
--- be saved).
--- example: accel.nn.Embedding4bit(10, 64, { quant_type = "nf4" })(accel.tensor { 1, 2 }).shape --> { 2, 64 }
---@class accel.nn.Embedding4bit : accel.nn.QuantizedEmbedding
local Embedding4bit = QuantizedEmbedding:extend("accel.nn.Embedding4bit")

local parse = arguments("Embedding4bit", { "num_embeddings" }, { "embedding_dim" }, { "dtype" }, { "quant_type", "fp4" },
  { "compress_statistics", true }, { "blocksize", 64 }, { "device" })

local function fill(self, who, kind, o)
  self.quant_type, self.compress_statistics, self.blocksize = kind, o.compress_statistics, o.blocksize
  self:make(who, o, kind, { blocksize = o.blocksize, nested = o.compress_statistics })
end

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? table
---  dtype string: of the result's rows (default: the dtype of the quantised values)
---  quant_type string = "fp4": or "nf4"
---  compress_statistics boolean = true: quantise the blocks' largest magnitudes as well
---  blocksize integer = 64: values that share one magnitude
---  device string
function Embedding4bit:init(num_embeddings, embedding_dim, opts, ...)
  local o = parse(num_embeddings, embedding_dim, opts, ...)
  if o.quant_type ~= "nf4" and o.quant_type ~= "fp4" then
    raise("Embedding4bit: quant_type must be 'nf4' or 'fp4', got %s", check.shown(o.quant_type))
  end
  fill(self, "Embedding4bit", o.quant_type, o)
end

--- Values as this layer keeps them.
---@param values accel.Tensor
---@return accel.Tensor
function Embedding4bit:quantize(values)
  return accel.quantize_4bit(values, self.quant_type, self.blocksize, self.compress_statistics)
end

--- The init of a class whose name includes its type: Embedding4bit's arguments without quant_type.
local function typed(who, kind)
  local parse_typed = arguments(who, { "num_embeddings" }, { "embedding_dim" }, { "dtype" },
    { "compress_statistics", true }, { "blocksize", 64 }, { "device" })
  return function(self, ...) fill(self, who, kind, parse_typed(...)) end
end

local nf4, fp4 = typed("EmbeddingNF4", "nf4"), typed("EmbeddingFP4", "fp4")

--- Embedding4bit in NF4: quantiles of a normal distribution.
--- example: accel.nn.EmbeddingNF4(10, 64).weight.quant_state.quant_type --> "nf4"
---@class accel.nn.EmbeddingNF4 : accel.nn.Embedding4bit
local EmbeddingNF4 = Embedding4bit:extend("accel.nn.EmbeddingNF4")

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? table Embedding4bit's, without quant_type
function EmbeddingNF4:init(num_embeddings, embedding_dim, opts, ...) nf4(self, num_embeddings, embedding_dim, opts, ...) end

--- Embedding4bit in FP4: floats of 4 bits.
--- example: accel.nn.EmbeddingFP4(10, 64).weight.quant_state.quant_type --> "fp4"
---@class accel.nn.EmbeddingFP4 : accel.nn.Embedding4bit
local EmbeddingFP4 = Embedding4bit:extend("accel.nn.EmbeddingFP4")

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? table Embedding4bit's, without quant_type
function EmbeddingFP4:init(num_embeddings, embedding_dim, opts, ...) fp4(self, num_embeddings, embedding_dim, opts, ...) end

return { Embedding4bit = Embedding4bit, EmbeddingNF4 = EmbeddingNF4, EmbeddingFP4 = EmbeddingFP4 }
