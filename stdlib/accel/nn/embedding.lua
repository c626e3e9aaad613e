--- nn.Embedding(num_embeddings, embedding_dim, {padding_idx=, max_norm=, norm_type = 2}).
local accel = require "accel"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local embedding = accel.embedding

--- A row of the weight for each id (0-based values): ids of any shape -> (ids' shape, embedding_dim).
--- padding_idx: a row that starts as zeros and gets no gradient. max_norm: rows that are used and longer (norm
--- of order norm_type) are first shortened to it, in place, as in PyTorch.
--- Initial values: standard normal.
--- example: accel.nn.Embedding(10, 3)(accel.tensor { { 1, 2 }, { 4, 9 } }).shape --> { 2, 2, 3 }
--- example: accel.nn.Embedding(4, 2, { padding_idx = 0 })(accel.tensor { 0 }) --> { { 0, 0 } }
---@class accel.nn.Embedding : accel.nn.Module
---@field weight accel.Tensor
local Embedding = Module:extend("accel.nn.Embedding")

local parse = arguments("Embedding", { "num_embeddings" }, { "embedding_dim" }, { "padding_idx" },
  { "max_norm" }, { "norm_type", 2.0 }, { "weight" }, { "device" }, { "dtype" })
local parse_pretrained = arguments("Embedding.from_pretrained", { "freeze", true }, { "padding_idx" }, { "max_norm" }, { "norm_type", 2.0 })

---@param num_embeddings integer
---@param embedding_dim integer
---@param opts? {padding_idx: integer?, max_norm: number?, norm_type: number?, dtype: string?, device: string?}
function Embedding:init(num_embeddings, embedding_dim, opts, ...)
  local o = parse(num_embeddings, embedding_dim, opts, ...)
  local rows = check.positive("Embedding", "num_embeddings", o.num_embeddings)
  local width = check.positive("Embedding", "embedding_dim", o.embedding_dim)
  self.num_embeddings, self.embedding_dim = rows, width
  local pad = o.padding_idx
  if pad ~= nil then
    pad = check.integer("Embedding", "padding_idx", pad)
    if pad < -rows or pad >= rows then
      raise("Embedding: padding_idx %d is outside of 0 .. %d", pad, rows - 1)
    end
    self.padding_idx = pad % rows
  end
  self.norm_type = o.norm_type
  if o.norm_type ~= 2 and o.max_norm == nil then
    require "accel.util.no_effect".once("Embedding", "norm_type", "without max_norm; give it, or leave norm_type out")
  end
  if o.max_norm ~= nil then
    self.max_norm = check.number("Embedding", "max_norm", o.max_norm, 0)
    self.norms = { padding_idx = self.padding_idx, max_norm = self.max_norm, norm_type = self.norm_type }
  end
  if o.weight ~= nil then
    local shape = tensors.is_tensor(o.weight) and o.weight.shape or {}
    if #shape ~= 2 or shape[1] ~= rows or shape[2] ~= width then
      raise("Embedding: weight must be a tensor of shape (%d, %d), got %s", rows, width,
        tensors.is_tensor(o.weight) and tensors.shape_string(o.weight) or check.shown(o.weight))
    end
    for _, name in ipairs { "dtype", "device" } do
      if o[name] ~= nil and o[name] ~= o.weight[name] then
        raise("Embedding: %s = %s with a weight of %s; convert the weight, or leave the option out", name, check.shown(o[name]), o.weight[name])
      end
    end
    self.weight = Parameter(o.weight)
    return
  end
  self.weight = Parameter(accel.empty(rows, width, { dtype = o.dtype or "f32", device = o.device }))
  self:reset_parameters()
end

--- Standard normal rows. The padding row is zero and stays zero, since it gets no gradient.
function Embedding:reset_parameters()
  local init = require "accel.nn.initialization"
  init.normal_(self.weight)
  if self.padding_idx then init.zeros_(self.weight:detach():select(1, self.padding_idx + 1)) end
end

function Embedding:forward(ids)
  if self.norms then return require("accel.nn.functional").embedding(ids, self.weight, self.norms) end
  return embedding(ids, self.weight, self.padding_idx)
end

--- A layer around an existing table, which it shares. The table is frozen unless freeze = false.
---@param weight accel.Tensor (num_embeddings, embedding_dim)
---@param ... any freeze = true, padding_idx, max_norm, norm_type = 2, by position or in one table
---@return accel.nn.Embedding
function Embedding.from_pretrained(weight, ...)
  if not tensors.is_tensor(weight) or weight.ndim ~= 2 then
    raise("Embedding.from_pretrained: expected a tensor of rank 2, got %s",
      tensors.is_tensor(weight) and "shape " .. tensors.shape_string(weight) or check.shown(weight))
  end
  local o = parse_pretrained(...)
  local layer = Embedding(weight:size(1), weight:size(2), {
    weight = weight, padding_idx = o.padding_idx, max_norm = o.max_norm, norm_type = o.norm_type,
  })
  layer.weight:requires_grad_(not o.freeze)
  return layer
end

function Embedding:extra_repr()
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  if self.padding_idx then text = ("%s, padding_idx=%d"):format(text, self.padding_idx) end
  if self.max_norm then text = ("%s, max_norm=%g"):format(text, self.max_norm) end
  if self.norm_type ~= 2 then text = ("%s, norm_type=%g"):format(text, self.norm_type) end
  return text
end

return Embedding
