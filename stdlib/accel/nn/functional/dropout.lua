--- Dropouts of nn.functional. training defaults to true, as in PyTorch: modules pass their own mode. p and
--- training are given by position or in one table.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

-- A function that reads p and training of a call. Only a call with a table allocates one.
local function reader(who)
  local parse = arguments(who, { "p", 0.5 }, { "training", true })
  return function(p, training)
    if type(p or 0) ~= "number" or type(training or false) ~= "boolean" then
      local o
      if training == nil then o = parse(p) else o = parse(p, training) end
      p, training = o.p, o.training
    end
    return check.number(who, "p", p or 0.5, 0, 1), training
  end
end

local read, read_alpha = reader "dropout", reader "alpha_dropout"
local read_lead = { reader "dropout1d", reader "dropout2d", reader "dropout3d" }

--- Zeroes elements with probability p and scales the rest by 1 / (1 - p). Outside training it has no effect.
--- example: accel.nn.functional.dropout(accel.tensor { 1.0, 2.0 }, 0.5, { training = false }) --> { 1, 2 }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default true
---@return accel.Tensor
function F.dropout(x, p, training)
  p, training = read(p, training)
  if training == false or p == 0 then return x end
  return accel.dropout(x, p, true)
end

--- x times 0 or 1 / (1 - p), one draw for each entry of the first `lead` dimensions.
local function drop_lead(x, lead, p)
  local shape = x.shape
  for i = lead + 1, #shape do shape[i] = 1 end
  local mask
  do
    local _ <close> = accel.no_grad()
    mask = accel.dropout(accel.ones(shape, { dtype = x.dtype, device = x.device }), p, true)
  end
  return x * mask
end

local function need(who, x, low, high, text)
  if x.ndim < low or x.ndim > high then
    raise("%s: expected %s, got shape %s", who, text, tensors.shape_string(x))
  end
end

--- Zeroes whole channels of (N, C, L) or (C, L).
--- example: accel.nn.functional.dropout1d(accel.ones(1, 2, 3), 1) --> { { { 0, 0, 0 }, { 0, 0, 0 } } }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default true
---@return accel.Tensor
function F.dropout1d(x, p, training)
  need("dropout1d", x, 2, 3, "(N, C, L) or (C, L)")
  p, training = read_lead[1](p, training)
  if training == false or p == 0 then return x end
  return drop_lead(x, x.ndim - 1, p)
end

--- Zeroes whole channels of (N, C, H, W), and of (N, C, L), as in PyTorch.
--- example: accel.nn.functional.dropout2d(accel.ones(1, 1, 1, 2), 0.5, false) --> { { { { 1, 1 } } } }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default true
---@return accel.Tensor
function F.dropout2d(x, p, training)
  need("dropout2d", x, 3, 4, "(N, C, H, W)")
  p, training = read_lead[2](p, training)
  if training == false or p == 0 then return x end
  return drop_lead(x, 2, p)
end

--- Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W).
--- example: accel.nn.functional.dropout3d(accel.ones(1, 1, 1, 1, 2), 0.5, false).shape --> { 1, 1, 1, 1, 2 }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default true
---@return accel.Tensor
function F.dropout3d(x, p, training)
  need("dropout3d", x, 4, 5, "(N, C, D, H, W) or (C, D, H, W)")
  p, training = read_lead[3](p, training)
  if training == false or p == 0 then return x end
  return drop_lead(x, x.ndim - 3, p)
end

-- The limit of SELU for x -> -infinity: minus its scale times its alpha.
local LIMIT = -1.7580993408473766

--- Dropped elements become LIMIT, then a x + b restores mean 0, variance 1. keep: whether an element stays.
local function alpha(x, p, keep)
  local a = 1 / math.sqrt((1 - p) * (1 + p * LIMIT * LIMIT))
  return accel.where(keep, x, LIMIT) * a - a * p * LIMIT
end

--- Dropout for networks of SELU: dropped elements become its limit, then a x + b restores mean 0, variance 1.
--- example: accel.nn.functional.alpha_dropout(accel.tensor { 1.0, 2.0 }, 0.5, false) --> { 1, 2 }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default true
---@return accel.Tensor
function F.alpha_dropout(x, p, training)
  p, training = read_alpha(p, training)
  if training == false or p == 0 then return x end
  if p == 1 then return x * 0 end
  local keep
  do
    local _ <close> = accel.no_grad()
    keep = accel.empty_like(x):bernoulli_(1 - p):gt(0)
  end
  return alpha(x, p, keep)
end

local read_feature = reader "feature_alpha_dropout"

--- alpha_dropout of whole channels of (N, C, ...). training defaults to false here, as in PyTorch.
--- example: accel.nn.functional.feature_alpha_dropout(accel.ones(1, 2, 1), 0.5) --> { { { 1 }, { 1 } } }
---@param x accel.Tensor
---@param p? number|{p: number?, training: boolean?} default 0.5
---@param training? boolean|{training: boolean?} default false
---@return accel.Tensor
function F.feature_alpha_dropout(x, p, training)
  local given = training ~= nil or type(p) == "table" and p.training ~= nil
  p, training = read_feature(p, training)
  if not given then training = false end
  if training == false or p == 0 then return x end
  need("feature_alpha_dropout", x, 2, 16, "(N, C, ...)")
  if p == 1 then return x * 0 end
  local shape, keep = x.shape, nil
  for i = 3, #shape do shape[i] = 1 end
  do
    local _ <close> = accel.no_grad()
    keep = accel.empty(shape, { dtype = x.dtype, device = x.device }):bernoulli_(1 - p):gt(0)
  end
  return alpha(x, p, keep)
end

return F
