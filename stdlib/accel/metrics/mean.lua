--- Mean and MeanLoss: weighted means of numbers.
local accel = require "accel"
local means = require "accel.autograd.means"
local Metric = require "accel.metrics.metric"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ratio = require "accel.metrics.ratio"

--- The mean of values, optionally weighted: {mean = }, or under a given name. update(values, {weights =, mask =}). One value per
--- sample makes it exact: the mean loss of a batch is rounded, and differs with the batch. A loss that a model computed from labels
--- counts by their number. A model's loss from labels counts by their number. NaN if nothing was counted or the weights add up to
--- 0.
--- example: local m = accel.metrics.Mean() m:update({ 1.0, 4.0 }, { weights = { 3, 1 } }) return m:compute()
---   --> { mean = 1.75 }
---@class accel.metrics.Mean: accel.metrics.Metric
local Mean = Metric:extend("accel.metrics.Mean")

Mean.names = { "mean" }
Mean.sums = { "total", "weight" }

---@param opts? {name: string?}
function Mean:init(opts)
  local o = options(self:who(), opts, { name = self.names[1] })
  self.names = { o.name }
  self:reset()
end

function Mean:elements(p, r)
  if r then raise("%s: it takes values and options, no references", self:who()) end
  return p
end

--- Values of one kind: see Metric:update.
---@param values accel.Tensor|number
---@param opts? table options by name
function Mean:update(values, opts, ...)
  local terms = accel.is_tensor(values) and means.of(values)
  if terms and opts == nil and select("#", ...) == 0 then
    return Metric.update(self, values:detach():reshape(1), { weights = terms[1].count:reshape(1), mask = false })
  end
  return Metric.update(self, values, opts, ...)
end

function Mean:add(values, _, weights)
  if weights then
    self.total:add_products(values, weights)
    self.weight:add_tensor(weights)
  else
    self.total:add_tensor(values)
    self.weight:add(values:numel())
  end
end

function Mean:result() return { [self.names[1]] = ratio(self.total:value(), self.weight:value()) } end

--- The mean of losses, one per sample (reduction = "none"): {loss = }.
--- example: local m = accel.metrics.MeanLoss() m:update(accel.tensor { 0.5, 1.5 }) return m:value() --> 1.0
---@class accel.metrics.MeanLoss: accel.metrics.Mean
local MeanLoss = Mean:extend("accel.metrics.MeanLoss")

MeanLoss.names = { "loss" }

return { Mean = Mean, MeanLoss = MeanLoss }
