--- nn.EmbeddingBag(num_embeddings, embedding_dim, {mode = "mean", ...}): sums, means or maxima of embeddings.
local accel = require "accel"
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"

--- One row per bag of ids: the mean (default), sum or largest values of their embeddings. Ids (B, N) are B bags of N.
--- Ids (N) with offsets (B) are bags that begin at the offsets. See nn.functional.embedding_bag. Initial values:
--- standard normal, the row of padding_idx zero.
--- example: accel.nn.EmbeddingBag(10, 3)(accel.tensor { { 1, 2 }, { 4, 9 } }).shape --> { 2, 3 }
--- example: accel.nn.EmbeddingBag(10, 3)(accel.tensor { 1, 2, 4 }, accel.tensor { 0, 2 }).shape --> { 2, 3 }
---@class accel.nn.EmbeddingBag : accel.nn.Module
---@field weight accel.Tensor
local EmbeddingBag = Module:extend("accel.nn.EmbeddingBag")

local parse = arguments("EmbeddingBag", { "num_embeddings" }, { "embedding_dim" }, { "max_norm" },
  { "norm_type", 2.0 }, { "mode", "mean" }, { "include_last_offset", false }, { "padding_idx" },
  { "device" }, { "dtype", "f32" })

---@param num_embeddings integer
---@param embedding_dim integer
---@param ... any options by position or in one table
function EmbeddingBag:init(num_embeddings, embedding_dim, ...)
  local o = parse(num_embeddings, embedding_dim, ...)
  self.num_embeddings = check.positive("EmbeddingBag", "num_embeddings", o.num_embeddings)
  self.embedding_dim = check.positive("EmbeddingBag", "embedding_dim", o.embedding_dim)
  self.mode = check.word("EmbeddingBag", "mode", o.mode, { "sum", "mean", "max" })
  self.padding_idx = o.padding_idx and check.integer("EmbeddingBag", "padding_idx", o.padding_idx)
  self.max_norm, self.norm_type = o.max_norm, o.norm_type
  if o.norm_type ~= 2 and o.max_norm == nil then
    no_effect.once("EmbeddingBag", "norm_type", "without max_norm; give it, or leave norm_type out")
  end
  self.include_last_offset = o.include_last_offset
  local make = { dtype = o.dtype, device = o.device }
  self.weight = Parameter(accel.empty(self.num_embeddings, self.embedding_dim, make))
  self:reset_parameters()
end

--- Draws the initial values again.
function EmbeddingBag:reset_parameters()
  local init = require "accel.nn.initialization"
  init.normal_(self.weight)
  if self.padding_idx then
    init.zeros_(self.weight:detach():select(1, self.padding_idx % self.num_embeddings + 1))
  end
end

---@param ids accel.Tensor
---@param offsets? accel.Tensor
---@param per_sample_weights? accel.Tensor
function EmbeddingBag:forward(ids, offsets, per_sample_weights)
  return F.embedding_bag(ids, self.weight, {
    offsets = offsets, per_sample_weights = per_sample_weights, mode = self.mode, max_norm = self.max_norm,
    norm_type = self.norm_type, include_last_offset = self.include_last_offset,
    padding_idx = self.padding_idx,
  })
end

function EmbeddingBag:extra_repr()
  local text = ("%d, %d, mode='%s'"):format(self.num_embeddings, self.embedding_dim, self.mode)
  return self.padding_idx and ("%s, padding_idx=%d"):format(text, self.padding_idx) or text
end

return EmbeddingBag
