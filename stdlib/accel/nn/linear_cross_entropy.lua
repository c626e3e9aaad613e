--- nn.LinearCrossEntropyLoss(in_features, num_classes, {...}): the last layer of a classifier or language model and its
--- loss in one, so that the logits are never whole in memory.
local accel = require "accel"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local options = require "accel.util.options"
local tensors = require "accel.util.tensors"
local raise = require "accel.util.raise"

local what = "LinearCrossEntropyLoss"
local defaults = {
  bias = false, device = options.none, dtype = "f32",
  weight = options.none, reduction = "mean", ignore_index = -100, label_smoothing = 0.0, keep = false,
}

--- Cross entropy of a linear layer's outputs (the layer is `linear`) and classes (0-based values). See
--- accel.linear_cross_entropy. Options: bias (false), device, dtype, weight (num_classes), reduction, ignore_index,
--- label_smoothing, keep (keeps intermediates of the logits' size, to save one product).
--- example: accel.nn.LinearCrossEntropyLoss(3, 4)(accel.zeros(2, 3), accel.tensor { 0, 3 }) --> 1.386294
---@class accel.nn.LinearCrossEntropyLoss : accel.nn.Module
---@field linear accel.nn.Linear
local Loss = Module:extend("accel.nn.LinearCrossEntropyLoss")

---@class accel.nn.LinearCrossEntropyOptions
---@field bias? boolean
---@field device? string
---@field dtype? string
---@field weight? accel.Tensor
---@field reduction? "mean"|"sum"|"none"
---@field ignore_index? integer
---@field label_smoothing? number
---@field keep? boolean

---@param in_features integer
---@param num_classes integer
---@param opts? accel.nn.LinearCrossEntropyOptions
function Loss:init(in_features, num_classes, opts)
  local o = options(what, opts, defaults)
  check.word(what, "reduction", o.reduction, { "mean", "sum", "none" })
  check.number(what, "label_smoothing", o.label_smoothing)
  self.num_classes = check.positive(what, "num_classes", num_classes)
  if o.weight ~= nil and not tensors.is_tensor(o.weight) then
    raise("%s: weight must be a tensor, got %s", what, type(o.weight))
  end
  self.linear = Linear(in_features, num_classes, { bias = o.bias, device = o.device, dtype = o.dtype })
  self:register_buffer("weight", o.weight)
  self.options = { reduction = o.reduction, ignore_index = o.ignore_index, label_smoothing = o.label_smoothing,
    keep = o.keep }
end

function Loss:forward(input, target)
  local o, linear = self.options, self.linear
  return accel.linear_cross_entropy(input, linear.weight, target, linear.bias, self.weight, o.reduction, o.ignore_index,
    o.label_smoothing, o.keep)
end

function Loss:extra_repr()
  return self.options.reduction ~= "mean" and ("reduction='%s'"):format(self.options.reduction) or ""
end

return Loss
