--- Losses of margins between classes, and of triplets with a distance of their own.
local accel = require "accel"
local Module = require "accel.nn.module"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local loss = require "accel.nn.loss_class"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- Logistic loss of targets 1 and -1. See accel.soft_margin_loss. Options: reduction.
--- example: accel.nn.SoftMarginLoss()(accel.tensor { 0.0, 2.0 }, accel.tensor { 1.0, -1.0 }) --> 1.410038
---@class accel.nn.SoftMarginLoss : accel.nn.Module
M.SoftMarginLoss = loss("SoftMarginLoss", {})
function M.SoftMarginLoss:forward(input, target) return accel.soft_margin_loss(input, target, self:arguments()) end

--- Hinge loss of one class against the others. See accel.multi_margin_loss. Options: p (1 or 2), margin, weight (C), reduction.
--- example: accel.nn.MultiMarginLoss()(accel.tensor { { 0.1, 0.2, 0.4, 0.8 } }, accel.tensor { 3 }) --> 0.325
---@class accel.nn.MultiMarginLoss : accel.nn.Module
M.MultiMarginLoss = loss("MultiMarginLoss", { p = 1, margin = 1.0, weight = options.none })
function M.MultiMarginLoss:forward(input, target) return accel.multi_margin_loss(input, target, self:arguments()) end

--- Hinge loss of several classes against the others. See accel.multilabel_margin_loss. Options: reduction.
--- example: accel.nn.MultiLabelMarginLoss()(accel.tensor { { 0.1, 0.2, 0.4, 0.8 } }, accel.tensor { { 3, 0, -1, 1 } }) --> 0.85
---@class accel.nn.MultiLabelMarginLoss : accel.nn.Module
M.MultiLabelMarginLoss = loss("MultiLabelMarginLoss", {})
function M.MultiLabelMarginLoss:forward(input, target) return accel.multilabel_margin_loss(input, target, self:arguments()) end

--- Logistic loss of every class by itself. See accel.multilabel_soft_margin_loss. Options: weight (C), reduction.
--- example: accel.nn.MultiLabelSoftMarginLoss()(accel.tensor { { 0.0, 2.0 } }, accel.tensor { { 1.0, 0.0 } }) --> 1.410038
---@class accel.nn.MultiLabelSoftMarginLoss : accel.nn.Module
M.MultiLabelSoftMarginLoss = loss("MultiLabelSoftMarginLoss", { weight = options.none })
function M.MultiLabelSoftMarginLoss:forward(input, target)
  return accel.multilabel_soft_margin_loss(input, target, self:arguments())
end

--- TripletMarginLoss with a distance of your own, a function or a module. See
--- nn.functional.triplet_margin_with_distance_loss. Options: distance_function, margin = 1, swap = false, reduction.
--- example: local l = accel.nn.TripletMarginWithDistanceLoss { distance_function = function(a, b) return (a - b):abs() end, margin = 2.5 }
---   return l(accel.zeros(1), accel.ones(1), accel.zeros(1)) --> 3.5
---@class accel.nn.TripletMarginWithDistanceLoss : accel.nn.Module
M.TripletMarginWithDistanceLoss = Module:extend("accel.nn.TripletMarginWithDistanceLoss")

local parse = arguments("TripletMarginWithDistanceLoss", { "distance_function" }, { "margin", 1.0 }, { "swap", false }, { "reduction", "mean" })

---@param ... any distance_function, margin, swap, reduction by position or in one table
function M.TripletMarginWithDistanceLoss:init(...)
  local who = "TripletMarginWithDistanceLoss"
  local o = parse(...)
  if type(o.distance_function or print) ~= "function" and not Module.is_module(o.distance_function) then
    raise("%s: distance_function must be a function or a module, got %s", who, check.shown(o.distance_function))
  end
  if check.number(who, "margin", o.margin) <= 0 then raise("%s: margin must be greater than 0, got %g", who, o.margin) end
  self.distance_function, self.margin, self.swap = o.distance_function, o.margin, o.swap
  self.reduction = check.word(who, "reduction", o.reduction, { "none", "mean", "sum" })
end

function M.TripletMarginWithDistanceLoss:forward(anchor, positive, negative)
  return require("accel.nn.functional").triplet_margin_with_distance_loss(anchor, positive, negative,
    { distance_function = self.distance_function, margin = self.margin, swap = self.swap, reduction = self.reduction })
end

return M
