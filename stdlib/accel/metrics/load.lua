--- load, glue and combine: metrics by the names that the Python package evaluate has for them.
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

local M = {}

local classes = {
  accuracy = "Accuracy", f1 = "F1", precision = "Precision", recall = "Recall", matthews_correlation = "Matthews",
  pearsonr = "Pearson", spearmanr = "Spearman", perplexity = "Perplexity", mean = "Mean", loss = "MeanLoss",
}

local tasks = {
  cola = { "matthews_correlation" }, stsb = { pearson = "pearsonr", spearmanr = "spearmanr" },
  mrpc = { "accuracy", "f1" }, qqp = { "accuracy", "f1" }, sst2 = { "accuracy" }, mnli = { "accuracy" },
  mnli_matched = { "accuracy" }, mnli_mismatched = { "accuracy" }, qnli = { "accuracy" }, rte = { "accuracy" },
  wnli = { "accuracy" }, hans = { "accuracy" }, ax = { "accuracy" },
}

local function unknown(who, name, known)
  local near = type(name) == "string" and nearest(name, known)
  raise("%s: unknown name %s%s", who, check.shown(name), near and ("; did you mean '%s'?"):format(near) or "")
end

--- The metric of a task of the GLUE benchmark.
--- example: local m = accel.metrics.glue "mrpc" m:update({ 1, 1, 1, 0 }, { 1, 0, 1, 0 }) return m:compute()
---   --> { accuracy = 0.75, f1 = 0.8 }
---@param task string "mrpc", "cola", "stsb", ...
---@return accel.metrics.Combined
function M.glue(task)
  local names = tasks[task] or unknown("metrics.glue", task, tasks)
  return M.combine(names)
end

--- A metric by name, as evaluate.load: "accuracy", "f1", "precision", "recall", "matthews_correlation", "pearsonr",
--- "spearmanr", "perplexity", or "glue" with the name of a task.
--- example: accel.metrics.load("glue", "cola").names --> { "matthews_correlation" }
--- example: accel.metrics.load("f1", { average = "macro" }).average --> "macro"
---@param name string
---@param opts? string|table the task, or the metric's options
---@return accel.metrics.Metric
function M.load(name, opts, ...)
  check.surplus("metrics.load", ...)
  if name == "glue" then return M.glue(opts) end
  local found = classes[name] or unknown("metrics.load", name, classes)
  return require "accel.metrics"[found](opts)
end

--- Several metrics as one, given as metrics or by name: in a list, or under names of one's own.
--- example: accel.metrics.combine({ "accuracy", "f1" }).names --> { "accuracy", "f1" }
---@param metrics table<string|integer, accel.metrics.Metric|string>
---@return accel.metrics.Combined
function M.combine(metrics)
  if type(metrics) ~= "table" or class.of(metrics) then
    raise("metrics.combine: expected a table of metrics or names, got %s", check.shown(metrics))
  end
  local made = {}
  for key, metric in next, metrics do
    made[key] = type(metric) == "string" and M.load(metric) or metric
  end
  return require "accel.metrics".Combined(made)
end

return M
