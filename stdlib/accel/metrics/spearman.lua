--- Spearman: correlation of ranks. It must keep all values, and compute() gathers all ranks' values on each.
local Moments = require "accel.metrics.moments"
local Pearson = require "accel.metrics.pearson"
local accel = require "accel"

--- Spearman's rank correlation coefficient: {spearmanr = }. Equal values share the mean of their ranks. NaN with fewer
--- than two samples, a constant variable, or NaN among the values. 16 bytes a sample are kept.
--- example: local m = accel.metrics.Spearman() m:update({ 1, 2, 3, 4 }, { 1, 10, 100, 1000 }) return m:value() --> 1.0
---@class accel.metrics.Spearman: accel.metrics.Metric
local Spearman = Pearson:extend("accel.metrics.Spearman")

Spearman.names = { "spearmanr" }

function Spearman:start() self.x, self.y = {}, {} end

function Spearman:add(x, y)
  self.x[#self.x + 1], self.y[#self.y + 1] = x:to("f64"):clone(), y:to("f64"):clone()
end

local function joined(list)
  if #list == 0 then return accel.empty(0, { dtype = "f64" }) end
  return #list == 1 and list[1] or accel.cat(list, 1)
end

function Spearman:pack() return { x = joined(self.x), y = joined(self.y) } end

function Spearman:absorb(data)
  if data.x:numel() == 0 then return end
  self.x[#self.x + 1], self.y[#self.y + 1] = data.x, data.y
end

-- Twice the ranks, from 1, equal values at their mean: how many are smaller and how many are not larger, plus 1.
local function ranks(x)
  local sorted = x:sort()
  return sorted:searchsorted(x) + sorted:searchsorted(x, true) + 1
end

function Spearman:result()
  local x, y = joined(self.x), joined(self.y)
  if x:isnan():any():item() or y:isnan():any():item() then return { spearmanr = 0 / 0 } end
  local moments = Moments()
  moments:add(ranks(x), ranks(y))
  return { spearmanr = moments:correlation() }
end

return Spearman
