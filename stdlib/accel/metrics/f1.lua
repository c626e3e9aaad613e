--- F1, Precision and Recall, of one class or averaged over classes.
local Counts = require "accel.metrics.counts"
local ExactSum = require "accel.metrics.exact_sum"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local AVERAGES = { "binary", "macro", "micro", "weighted", "none" }

--- The common part of the three classes below.
---
--- Options: average, "binary" (the default: of class pos_label, 1), "macro" (the mean over classes), "weighted" (the
--- mean weighted by true counts), "micro" (of all samples together) or "none" (a list, by ascending class). labels: the
--- classes to include (default: those that occur). zero_division: the value of 0 / 0: 0, the default, 1, or NaN, which
--- leaves the class out. threshold and ignore_index as in Accuracy.
---@class accel.metrics.Share: accel.metrics.Counts
local Share = Counts:extend("accel.metrics.Share")

---@param opts? {average: string?, pos_label: integer?, labels: integer[]?, zero_division: number?, threshold: number?,
---  ignore_index: integer?}
function Share:init(opts)
  local who = self:who()
  local o = options(who, opts, {
    average = "binary", pos_label = 1, labels = options.none, zero_division = 0, threshold = options.none,
    ignore_index = options.none,
  })
  self:configure(o)
  self.average = check.word(who, "average", o.average, AVERAGES)
  self.pos_label = check.integer(who, "pos_label", o.pos_label)
  if o.pos_label ~= 1 and o.average ~= "binary" then
    no_effect.once(who, "pos_label", ("with average = '%s'; leave it out, or set average = 'binary'"):format(o.average))
  end
  if o.labels ~= nil and o.average == "binary" then
    no_effect.once(who, "labels", "with average = 'binary', which uses pos_label; set another average")
  end
  self.zero_division = o.zero_division + 0.0
  if o.labels ~= nil then
    if type(o.labels) ~= "table" or #o.labels == 0 then
      raise("%s: labels must be a list of classes, got %s", who, check.shown(o.labels))
    end
    self.labels = {}
    for i, c in ipairs(o.labels) do self.labels[i] = check.integer(who, ("labels[%d]"):format(i), c) end
  end
  self:reset()
end

local function divide(self, a, b)
  if b == 0 then return self.zero_division end
  return a / b
end

local function sum(list)
  local total = ExactSum()
  for _, v in ipairs(list) do total:add(v) end
  return total:value()
end

-- The mean of shares by weights, without those that zero_division made NaN.
local function mean(self, shares, weights)
  local top, bottom = ExactSum(), ExactSum()
  for i, share in ipairs(shares) do
    if share == share then
      top:add_product(share, weights[i])
      bottom:add(weights[i])
    end
  end
  return divide(self, top:value(), bottom:value())
end

local function only_two(self, classes)
  local others = 0
  for _, c in ipairs(classes) do others = others + (c == self.pos_label and 0 or 1) end
  if others < 2 then return end
  raise("%s: average = 'binary' needs two classes, but %d occur; set average = 'macro', 'micro', 'weighted' or 'none'",
    self:who(), #classes)
end

function Share:result()
  local m, name, average = self:margins(), self.names[1], self.average
  if average == "binary" and not self.labels then only_two(self, m.classes) end
  local classes = average == "binary" and { self.pos_label } or self.labels or m.classes
  local hits, truths, predictions = {}, {}, {}
  for i, c in ipairs(classes) do
    hits[i], truths[i], predictions[i] = m.hits[c] or 0, m.truths[c] or 0, m.predictions[c] or 0
  end
  if average == "micro" then
    return { [name] = divide(self, self:share(sum(hits), sum(truths), sum(predictions))) }
  end
  local shares, ones = {}, {}
  for i in ipairs(classes) do
    shares[i], ones[i] = divide(self, self:share(hits[i], truths[i], predictions[i])), 1
  end
  if average == "binary" then return { [name] = shares[1] } end
  if average == "none" then return { [name] = shares } end
  return { [name] = mean(self, shares, average == "macro" and ones or truths) }
end

--- F1, the harmonic mean of precision and recall: {f1 = }.
--- example: local m = accel.metrics.F1() m:update({ 1, 1, 0, 0 }, { 1, 0, 1, 0 }) return m:compute() --> { f1 = 0.5 }
--- example: local m = accel.metrics.F1 { average = "macro" } m:update({ 0, 1, 2, 2 }, { 0, 1, 2, 2 }) return m:value()
---   --> 1.0
---@class accel.metrics.F1: accel.metrics.Share
local F1 = Share:extend("accel.metrics.F1")
F1.names = { "f1" }
function F1:share(hits, truths, predictions) return 2 * hits, truths + predictions end

--- Precision, the share of right ones among the predictions of a class: {precision = }.
--- example: local m = accel.metrics.Precision() m:update({ 1, 1, 0 }, { 1, 0, 1 }) return m:value() --> 0.5
---@class accel.metrics.Precision: accel.metrics.Share
local Precision = Share:extend("accel.metrics.Precision")
Precision.names = { "precision" }
function Precision:share(hits, _, predictions) return hits, predictions end

--- Recall, the share of a class's samples that were found: {recall = }.
--- example: local m = accel.metrics.Recall() m:update({ 1, 1, 0, 0 }, { 1, 1, 1, 1 }) return m:value() --> 0.5
---@class accel.metrics.Recall: accel.metrics.Share
local Recall = Share:extend("accel.metrics.Recall")
Recall.names = { "recall" }
function Recall:share(hits, truths) return hits, truths end

return { F1 = F1, Precision = Precision, Recall = Recall }
