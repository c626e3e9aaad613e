--- The head of decoders with a language model: it computes logits from the states of their stack, or with labels the
--- loss, whose logits are never whole in memory. Used by gpt2.lua, llama.lua, mixtral.lua and bert.lua.
local accel = require "accel"
local KVCache = require "accel.models.kv_cache"
local divided = require "accel.nn.divided"
local check = require "accel.util.check"
local class = require "accel.util.class"
local context = require "accel.models.context"
local nn = require "accel.nn"
local is_plain = require "accel.nn.is_plain"
local means = require "accel.autograd.means"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- forward's (ids, cache, opts) without the head's options: {labels=, logits_to_keep=}, cache, opts.
---@param who string
---@param ids accel.Tensor
---@param cache? accel.models.KVCache|accel.models.DecoderOptions
---@param opts? accel.models.DecoderOptions
---@return {labels: accel.Tensor?, shifted: boolean?, logits_to_keep: integer?}, any, any
function M.options(who, ids, cache, opts)
  local first = cache ~= nil and not class.isinstance(cache, KVCache)
  local given = opts
  if first then given = cache end
  if type(given) ~= "table" or given.labels == nil and given.logits_to_keep == nil and given.shift_labels == nil then
    return {}, cache, opts
  end
  local labels, keep, rest = given.labels, given.logits_to_keep, {}
  local parallel, shifted = divided.sequences, given.shift_labels ~= nil
  if shifted and labels ~= nil then raise("%s: give labels or shift_labels, not both", who) end
  if labels ~= nil and parallel and parallel.active() then
    raise("%s: the label of a part's last token is on another rank: shift labels before they are cut, and give shift_labels", who)
  end
  if shifted then labels = given.shift_labels end
  context.check_ids(who, ids)
  if labels ~= nil then
    if not tensors.is_tensor(labels) then raise("%s: labels must be a tensor, got %s", who, type(labels)) end
    if tensors.shape_string(labels) ~= tensors.shape_string(ids) then
      raise("%s: labels %s do not fit ids %s", who, tensors.shape_string(labels), tensors.shape_string(ids))
    end
    if keep ~= nil then raise("%s: labels need the logits of every position, logits_to_keep leaves some out", who) end
  else
    keep = check.count(who, "logits_to_keep", keep)
  end
  for key, value in next, given do
    if key ~= "labels" and key ~= "shift_labels" and key ~= "logits_to_keep" then rest[key] = value end
  end
  local own = { labels = labels, shifted = shifted, logits_to_keep = keep }
  if first then return own, rest, opts end
  return own, cache, rest
end

--- The last `keep` positions of x [B, T, width]. 0 or nil: all.
---@param x accel.Tensor
---@param keep? integer
---@return accel.Tensor
function M.last(x, keep)
  local T = x.shape[2]
  if not keep or keep == 0 or keep >= T then return x end
  return x:narrow(2, T - keep + 1, keep)
end

--- The labels of positions: each is to name the next one, unless they were shifted before.
local function targets(labels, shifted)
  if shifted then return labels end
  local B, T = labels.shape[1], labels.shape[2]
  local last = accel.full({ B, math.min(T, 1) }, -100, { dtype = labels.dtype, device = labels.device })
  return accel.cat({ labels:narrow(2, math.min(T, 1) + 1, math.max(T - 1, 0)), last }, 2)
end

--- Parts of sequences, with a mean over the labels of all parts. nil outside such a scope.
local function parts()
  local parallel = divided.sequences
  return parallel and parallel.active() and parallel
end

--- Logits of hidden states x [B, T, width], with logits_to_keep of the last positions. With labels [B, T] the mean cross
--- entropy of each position's logits and the label of the next one (shift_labels: the label at its own position, since they
--- are already shifted). Labels of -100 do not count. Without counted labels the loss is 0.
---@param head accel.nn.Module
---@param x accel.Tensor
---@param own {labels: accel.Tensor?, shifted: boolean?, logits_to_keep: integer?} as M.options returns it
---@return accel.Tensor
function M.run(head, x, own)
  local labels = own.labels
  if not labels then return head(M.last(x, own.logits_to_keep)) end
  local target, loss, parallel = targets(labels, own.shifted), nil, parts()
  if head.cross_entropy then -- its classes are shared out over ranks
    loss = head:cross_entropy(x, target)
  elseif is_plain(head, nn.Linear.forward) then
    loss = accel.linear_cross_entropy(x, head.weight, target, head.bias)
  else -- a head with its own computation, or with hooks, must return its logits
    local logits = head(x)
    loss = accel.cross_entropy(logits:reshape(-1, logits.shape[3]), target:reshape(-1))
  end
  loss = means.over(loss, target)
  if not parallel then return loss end
  local count = means.of(loss)[1].count
  loss, count = parallel.mean(loss, count)
  return means.mark(loss, { { loss = loss, count = count } })
end

--- The number of labels in a call's loss, without the call. nil without labels. For callers that need it in advance, such as a
--- pipeline.
---@param own {labels: accel.Tensor?, shifted: boolean?}
---@return accel.Tensor?
function M.count(own)
  if not own.labels then return nil end
  local count, parallel = means.labels(targets(own.labels, own.shifted)), parts()
  return parallel and parallel.total(count) or count
end

return M
