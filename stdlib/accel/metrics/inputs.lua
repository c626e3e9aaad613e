--- How the metrics read their inputs: tensors or lists, the rows of a prepared loader's batch without padding, masks
--- and weights, logits and classes. Used by metric.lua and by the metrics.
local accel = require "accel"
local active = require "accel.data.active"
local check = require "accel.util.check"
local dist = require "accel.dist"
local gathered = require "accel.metrics.gathered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- A tensor, a number, or a list of numbers or booleans, nested or not, as a tensor without gradient. Numbers of lists
--- keep all their bits.
---@param who string
---@param name string
---@return accel.Tensor
function M.tensor(who, name, value)
  if tensors.is_tensor(value) then return value:detach() end
  local kind = type(value)
  if kind ~= "table" and kind ~= "number" and kind ~= "boolean" then
    raise("%s: %s must be a tensor or a list of numbers, got %s", who, name, check.shown(value))
  end
  local ok, t = pcall(accel.tensor, value)
  if not ok then raise("%s: %s: %s", who, name, (tostring(t):gsub("^[^\n]-:%d+: ", ""))) end
  return t.dtype == "f32" and accel.tensor(value, { dtype = "f64" }) or t
end

-- ---- rows ----

local function rows_of_loader(who, loader)
  if loader ~= nil then
    if type(loader) ~= "table" or not loader.gradient_state then
      raise("%s: loader must be one that accelerator:prepare returned, or false, got %s", who, check.shown(loader))
    end
  else
    -- Without an Accelerator no prepared loader is active. Whichever one prepared it counts.
    loader = active.innermost and active.innermost()
  end
  return loader and loader.rows or nil
end

--- How many of a batch's first n rows this rank counts: all, the non-padding rows by the loader, or none if another
--- rank counts them.
---@param who string
---@param n? integer size of the first dim, nil for a single number
---@param o table {loader = table|false|nil, gathered = boolean}
---@return integer?
function M.rows(who, n, o)
  if o.gathered then return dist.get_rank() == 0 and n or 0 end
  if o.loader == false then return n end
  local rows = rows_of_loader(who, o.loader)
  if not rows then return n end
  local rank = dist.get_rank()
  if not rows.counts then return rows.valid and rows.valid[rank + 1] == 0 and 0 or n end -- a stream's own shards
  local expected = rows.counts[rank + 1]
  if n == nil then
    raise("%s: got one number inside the loop over a prepared loader, in which each row has its own: give one per row "
      .. "(reduction = 'none'), or mask = false and the number of rows as weights", who)
  elseif n ~= expected then
    raise("%s: %d rows, but this rank's batch of the prepared loader has %d: give one per row, gathered = true "
      .. "for rows of all ranks (gather_for_metrics), mask = false for values that are not rows of the batch",
      who, n, expected)
  end
  return rows.valid[rank + 1]
end

--- Whether a value came from gather_for_metrics.
M.is_gathered = gathered.is

--- The first `keep` rows of t, if it has n.
function M.head(t, n, keep)
  if keep < n and t:dim() > 0 and t.shape[1] == n then return t:narrow(1, 1, keep) end
  return t
end

--- t for every element of a shape: t has one for each, or one for each of the leading dims' places.
---@param who string
---@param name string
---@param t accel.Tensor
---@param like accel.Tensor
---@return accel.Tensor flat
function M.spread(who, name, t, like)
  local shape, own = like.shape, t.shape
  if t:dim() > 0 or like:dim() == 0 then
    for i = 1, math.max(#own, #shape) do
      if i > #shape or i <= #own and own[i] ~= shape[i] then
        raise("%s: %s of shape %s do not fit rows of shape %s", who, name, tensors.shape_string(t),
          tensors.shape_string(like))
      end
    end
  end
  if #own < #shape then
    local ones = { table.unpack(own) }
    for i = #own + 1, #shape do ones[i] = 1 end
    t = t:reshape(ones):expand(shape)
  end
  return t:reshape(-1)
end

-- ---- classes ----

local function whole(t) return t:numel() == 0 or t:eq(t:round()):all():item() end

local function one_longer(p, r)
  if p:dim() ~= r:dim() + 1 then return false end
  for i, n in ipairs(r.shape) do
    if p.shape[i] ~= n then return false end
  end
  return true
end

--- Logits that stand to classes r as (n, classes) to (n): whether p has one dim more, the last.
M.one_longer = one_longer

--- p without a last dim of size 1, if r has none.
function M.squeezed(p, r)
  return one_longer(p, r) and p.shape[p:dim()] == 1 and p:squeeze(-1) or p
end

--- Raises if two tensors have different shapes.
function M.same_shape(who, p, r)
  if tensors.same_shape(p, r) then return end
  raise("%s: predictions %s and references %s do not match", who, tensors.shape_string(p), tensors.shape_string(r))
end

--- References as i64.
function M.labels(who, r)
  if tensors.is_floating(r.dtype) and not whole(r) then
    raise("%s: references must be classes, whole numbers, got %s values with fractions", who, r.dtype)
  end
  return r:to "i64"
end

--- Predicted classes and references as i64 of one shape. Predictions are classes; or logits with one dim more, the
--- last, and the greatest one wins; or, with a threshold, scores of class 1.
---@param who string
---@param p accel.Tensor
---@param r accel.Tensor
---@param threshold? number
---@return accel.Tensor predicted, accel.Tensor labels
function M.classes(who, p, r, threshold)
  local labels = M.labels(who, r)
  if threshold then
    p = M.squeezed(p, r)
    M.same_shape(who, p, r)
    return p:gt(threshold):to "i64", labels
  end
  if one_longer(p, r) then
    if p.shape[p:dim()] == 1 then
      raise("%s: predictions %s have one score per row: set threshold, the score from which on it means class 1", who,
        tensors.shape_string(p))
    end
    return p:numel() > 0 and p:argmax(-1) or labels, labels
  end
  M.same_shape(who, p, r)
  if tensors.is_floating(p.dtype) and not whole(p) then
    raise("%s: predictions are not classes: give whole numbers, logits (rows, classes), or scores and a threshold", who)
  end
  return p:to "i64", labels
end

return M
