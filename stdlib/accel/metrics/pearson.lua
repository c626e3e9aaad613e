--- Pearson: linear correlation, from exact moments: as good for data far from 0 as for any other.
local Metric = require "accel.metrics.metric"
local Moments = require "accel.metrics.moments"
local inputs = require "accel.metrics.inputs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- Pearson's correlation coefficient: {pearsonr = }. NaN with fewer than two samples, a constant variable, or values
--- that are not finite.
--- example: local m = accel.metrics.Pearson() m:update({ 1.0, 2.0, 3.0 }, { 3.0, 5.0, 7.0 }) return m:value() --> 1.0
---@class accel.metrics.Pearson: accel.metrics.Metric
local Pearson = Metric:extend("accel.metrics.Pearson")

Pearson.names = { "pearsonr" }
Pearson.weighted = false

---@param opts? table it takes none
function Pearson:init(opts)
  options(self:who(), opts, {})
  self:reset()
end

function Pearson:start() self.moments = Moments() end

function Pearson:elements(p, r)
  if not r then raise("%s: references are missing", self:who()) end
  p = inputs.squeezed(p, r)
  inputs.same_shape(self:who(), p, r)
  return p, r
end

function Pearson:add(x, y) self.moments:add(x, y) end

function Pearson:pack()
  local data = {}
  for _, name in ipairs(Moments.sums) do data[name] = self.moments[name]:state_dict() end
  return data
end

function Pearson:absorb(data)
  for _, name in ipairs(Moments.sums) do self.moments[name]:add_state(data[name]) end
end

function Pearson:result() return { pearsonr = self.moments:correlation() } end

return Pearson
