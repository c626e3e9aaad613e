--- Matthews: the correlation of predicted and true classes.
local Counts = require "accel.metrics.counts"
local ExactSum = require "accel.metrics.exact_sum"
local options = require "accel.util.options"

--- Matthews' correlation coefficient, for two or more classes: {matthews_correlation = }. 0 if all samples have one
--- class, or all predictions do. Options: threshold and ignore_index as in Accuracy.
--- example: local m = accel.metrics.Matthews() m:update({ 1, 0, 1, 0 }, { 1, 0, 1, 0 }) return m:value() --> 1.0
---@class accel.metrics.Matthews: accel.metrics.Counts
local Matthews = Counts:extend("accel.metrics.Matthews")

Matthews.names = { "matthews_correlation" }

---@param opts? {threshold: number?, ignore_index: integer?}
function Matthews:init(opts)
  self:configure(options("metrics.Matthews", opts, { threshold = options.none, ignore_index = options.none }))
  self:reset()
end

-- total * first - the sum over classes of a[c] * b[c].
local function covariance(total, first, classes, a, b)
  local sum = ExactSum()
  sum:add_product(total, first)
  for _, c in ipairs(classes) do sum:add_product(-(a[c] or 0), b[c] or 0) end
  return sum:value()
end

function Matthews:result()
  local m = self:margins()
  local both = covariance(m.total, m.right, m.classes, m.truths, m.predictions)
  local truths = covariance(m.total, m.total, m.classes, m.truths, m.truths)
  local predictions = covariance(m.total, m.total, m.classes, m.predictions, m.predictions)
  local size = truths * predictions
  return { matthews_correlation = size == 0 and 0.0 or both / math.sqrt(size) }
end

return Matthews
