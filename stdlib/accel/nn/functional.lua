--- nn.functional: the functions behind the modules, with PyTorch's names. Dimensions are 1-based here as
--- everywhere.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local F = {}

for _, name in ipairs {
  "relu", "gelu", "silu", "sigmoid", "tanh", "softmax", "log_softmax", "linear", "layer_norm", "rms_norm",
  "scaled_dot_product_attention", "cross_entropy", "rope",
} do
  F[name] = accel[name]
end

--- Zeroes elements with probability p and scales the rest by 1 / (1 - p); nothing outside of training.
---@param x accel.Tensor
---@param p? number default 0.5
---@param training? boolean default true
function F.dropout(x, p, training)
  if training == false or p == 0 then return x end
  return accel.dropout(x, p or 0.5, true)
end

--- Rows of weight named by ids (0-based values).
---@param ids accel.Tensor
---@param weight accel.Tensor
---@param opts? table options of the op
function F.embedding(ids, weight, opts)
  if opts then return accel.embedding(ids, weight, opts) end
  return accel.embedding(ids, weight)
end

--- Mean (default), sum or, with "none", the elements of (input - target)^2.
---@param opts? {reduction: string?}
function F.mse_loss(input, target, opts)
  local reduction = opts and opts.reduction or "mean"
  if not tensors.same_shape(input, target) then
    raise("mse_loss: input %s and target %s differ in shape", tensors.shape_string(input),
      tensors.shape_string(target))
  end
  local d = input - target
  local square = d * d
  if reduction == "mean" then return square:mean() end
  if reduction == "sum" then return square:sum() end
  if reduction == "none" then return square end
  raise("mse_loss: reduction must be mean, sum or none, got '%s'", tostring(reduction))
end

return F
