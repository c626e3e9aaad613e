--- What the decoders with a language-model head do with the states of their stack: logits, or with labels the loss,
--- whose logits are never whole in memory. Used by gpt2.lua, llama.lua and mixtral.lua.
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"
local class = require "accel.util.class"
local context = require "accel.models.context"
local nn = require "accel.nn"
local is_plain = require "accel.nn.is_plain"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- forward's (ids, cache, opts) without the labels: labels, cache, opts.
---@param who string
---@param ids accel.Tensor
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return accel.Tensor?, any, any
function M.labels(who, ids, cache, opts)
  local first = cache ~= nil and not class.isinstance(cache, KVCache)
  local given = opts
  if first then given = cache end
  if type(given) ~= "table" or given.labels == nil then return nil, cache, opts end
  local labels, rest = given.labels, {}
  if not tensors.is_tensor(labels) then raise("%s: labels must be a tensor, got %s", who, type(labels)) end
  context.check_ids(who, ids)
  if tensors.shape_string(labels) ~= tensors.shape_string(ids) then
    raise("%s: labels %s do not fit ids %s", who, tensors.shape_string(labels), tensors.shape_string(ids))
  end
  for key, value in next, given do
    if key ~= "labels" then rest[key] = value end
  end
  if first then return labels, rest, opts end
  return labels, cache, rest
end

--- Logits of hidden states x [B, T, width]; with labels [B, T] the mean cross entropy of each position's logits and
--- the label of the next one. Labels of -100 count nothing.
---@param head accel.nn.Module
---@param x accel.Tensor
---@param labels? accel.Tensor
---@return accel.Tensor
function M.run(head, x, labels)
  if not labels then return head(x) end
  local B, T = labels.shape[1], labels.shape[2]
  local last = accel.full({ B, math.min(T, 1) }, -100, { dtype = labels.dtype, device = labels.device })
  local target = accel.cat({ labels:narrow(2, math.min(T, 1) + 1, math.max(T - 1, 0)), last }, 2)
  -- a head that computes in a way of its own, or is watched, is asked for its logits
  if is_plain(head, nn.Linear.forward) then
    return accel.linear_cross_entropy(x, head.weight, target, head.bias)
  end
  local logits = head(x)
  return accel.cross_entropy(logits:reshape(-1, logits.shape[3]), target:reshape(-1))
end

return M
