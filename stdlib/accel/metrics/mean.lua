--- Mean and MeanLoss: weighted means of numbers.
local Metric = require "accel.metrics.metric"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ratio = require "accel.metrics.ratio"

--- The mean of values, by weight where weights are given: {mean = }, or under the name that is given. update(values,
--- {weights =, mask =}); one value per sample makes it exact: the mean loss of a batch is rounded, and differs with the
--- batch. NaN where nothing was counted or the weights add up to 0.
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
