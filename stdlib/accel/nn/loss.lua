--- Loss modules: CrossEntropyLoss, MSELoss.
local accel = require "accel"
local check = require "accel.util.check"
local F = require "accel.nn.functional"
local Module = require "accel.nn.module"
local options = require "accel.util.options"

local M = {}

local reductions = { "mean", "sum", "none" }

--- Cross entropy of logits [N, C] (or [N, C, ...]) and class labels [N] (0-based values).
---@class accel.nn.CrossEntropyLoss : accel.nn.Module
M.CrossEntropyLoss = Module:extend("accel.nn.CrossEntropyLoss")

---@param opts? {ignore_index: integer?, reduction: string?}
function M.CrossEntropyLoss:init(opts)
  self.options = options("CrossEntropyLoss", opts, { ignore_index = -100, reduction = "mean" })
  check.word("CrossEntropyLoss", "reduction", self.options.reduction, reductions)
  check.integer("CrossEntropyLoss", "ignore_index", self.options.ignore_index)
end

function M.CrossEntropyLoss:forward(logits, target)
  return accel.cross_entropy(logits, target, self.options)
end

---@class accel.nn.MSELoss : accel.nn.Module
M.MSELoss = Module:extend("accel.nn.MSELoss")

---@param opts? {reduction: string?}
function M.MSELoss:init(opts)
  self.options = options("MSELoss", opts, { reduction = "mean" })
  check.word("MSELoss", "reduction", self.options.reduction, reductions)
end

function M.MSELoss:forward(input, target) return F.mse_loss(input, target, self.options) end

return M
