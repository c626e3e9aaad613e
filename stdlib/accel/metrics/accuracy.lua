--- Accuracy: the share of samples whose predicted class is right.
local Metric = require "accel.metrics.metric"
local check = require "accel.util.check"
local inputs = require "accel.metrics.inputs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local ratio = require "accel.metrics.ratio"
local tensors = require "accel.util.tensors"

--- Share of correct predictions, optionally weighted: {accuracy = }. Predictions are classes, or logits with the
--- classes in their last dim. Predictions are classes, or logits with the classes in their last dim. Options: top_k:
--- correct if the label is among the k greatest logits. threshold: the lower bound (exclusive) of a score for class 1.
--- ignore_index: a label that is not counted.
--- example: local m = accel.metrics.Accuracy() m:update({ 1, 0, 2 }, { 1, 1, 2 }, { mask = { true, true, false } })
---   return m:compute() --> { accuracy = 0.5 }
---@class accel.metrics.Accuracy: accel.metrics.Metric
local Accuracy = Metric:extend("accel.metrics.Accuracy")

Accuracy.names = { "accuracy" }
Accuracy.sums = { "right", "total" }

---@param opts? {top_k: integer?, threshold: number?, ignore_index: integer?}
function Accuracy:init(opts)
  local o = options("metrics.Accuracy", opts, { top_k = 1, threshold = options.none, ignore_index = options.none })
  self.top_k = check.positive("metrics.Accuracy", "top_k", o.top_k)
  self.threshold = o.threshold and check.number("metrics.Accuracy", "threshold", o.threshold)
  self.ignore_index = o.ignore_index and check.integer("metrics.Accuracy", "ignore_index", o.ignore_index)
  if self.threshold and self.top_k > 1 then raise "metrics.Accuracy: top_k and threshold exclude each other" end
  self:reset()
end

function Accuracy:elements(p, r)
  local who = self:who()
  if not r then raise("%s: references are missing", who) end
  local hits, labels
  if self.top_k > 1 then
    labels = inputs.labels(who, r)
    local classes = p.shape[p:dim()]
    if not inputs.one_longer(p, r) or classes < self.top_k then
      raise("%s: top_k = %d needs logits with at least as many classes in a last dim, got %s for references %s", who,
        self.top_k, tensors.shape_string(p), tensors.shape_string(r))
    end
    local _, best = p:topk(self.top_k, -1)
    hits = best:eq(labels:unsqueeze(-1)):any(-1)
  else
    p, labels = inputs.classes(who, p, r, self.threshold)
    hits = p:eq(labels)
  end
  return hits, nil, self.ignore_index and labels:ne(self.ignore_index)
end

function Accuracy:add(hits, _, weights)
  if weights then
    self.right:add_tensor(weights:masked_select(hits))
    self.total:add_tensor(weights)
  else
    self.right:add_tensor(hits)
    self.total:add(hits.shape[1])
  end
end

function Accuracy:result() return { accuracy = ratio(self.right:value(), self.total:value()) } end

return Accuracy
