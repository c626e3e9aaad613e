--- nn.Embedding(num_embeddings, embedding_dim, {padding_idx=}): a row of the weight for each id (0-based
--- values).
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local embedding = accel.embedding

---@class accel.nn.Embedding : accel.nn.Module
local Embedding = Module:extend("accel.nn.Embedding")

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? {padding_idx: integer?, dtype: string?, device: string?}
function Embedding:init(num_embeddings, embedding_dim, opts)
  local o = options("Embedding", opts, { padding_idx = options.none, dtype = "f32", device = options.none })
  num_embeddings = check.positive("Embedding", "num_embeddings", num_embeddings)
  embedding_dim = check.positive("Embedding", "embedding_dim", embedding_dim)
  self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
  local pad = o.padding_idx
  if pad then
    pad = check.integer("Embedding", "padding_idx", pad)
    if pad < -num_embeddings or pad >= num_embeddings then
      raise("Embedding: padding_idx %d is outside of 0 .. %d", pad, num_embeddings - 1)
    end
    self.padding_idx = pad % num_embeddings
  end
  self.weight = Parameter(accel.empty(num_embeddings, embedding_dim, { dtype = o.dtype, device = o.device }))
  self:reset_parameters()
end

--- Standard normal rows; the padding row is zero and stays so, since it gets no gradient.
function Embedding:reset_parameters()
  local init = require "accel.nn.initialization"
  init.normal_(self.weight)
  if self.padding_idx then init.zeros_(self.weight:detach():select(1, self.padding_idx + 1)) end
end

function Embedding:forward(ids)
  if self.padding_idx then return embedding(ids, self.weight, { padding_idx = self.padding_idx }) end
  return embedding(ids, self.weight)
end

function Embedding:extra_repr()
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  return self.padding_idx and ("%s, padding_idx=%d"):format(text, self.padding_idx) or text
end

return Embedding
