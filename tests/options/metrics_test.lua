-- Options of accel.metrics: each one changes the result, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/metrics_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "metrics"
local metrics = accel.metrics

local logits = { { 3.0, 2.0, 1.0 }, { 1.0, 2.0, 3.0 }, { 1.0, 3.0, 2.0 }, { 2.0, 1.0, 0.5 }, { 0.1, 0.2, 0.3 } }
local labels = { 1, 2, 0, 0, 2 }

local function of_classes(call)
  local m = call()
  m:update(accel.tensor(logits), accel.tensor(labels))
  return m:compute()
end

local function of_two(call)
  local m = call()
  m:update(accel.tensor { 0.2, 0.6, 0.9, 0.4, 0.1, 0.8 }, accel.tensor { 0, 1, 1, 1, 0, 0 })
  return m:compute()
end

s:recipe("accel.metrics.Accuracy", {
  run = function(call, given) return (given.threshold and of_two or of_classes)(call) end,
  values = { top_k = { 2 }, ignore_index = { 0, 2 }, threshold = { 0.5, 0.7 } }, with = { threshold = { threshold = 0.3 } },
})
s:recipe({ "accel.metrics.F1", "accel.metrics.Precision", "accel.metrics.Recall" }, {
  run = function(call, given)
    if given.threshold then return of_two(call) end
    local m = call()
    if given.average then
      m:update({ 0, 1, 2, 1, 0, 2, 1 }, { 0, 2, 2, 1, 1, 2, 0 })
    elseif given.zero_division then
      m:update({ 0, 0 }, { 0, 0 })
    else
      m:update({ 0, 1, 1, 1, 0, 0, 1, 0 }, { 0, 0, 1, 1, 1, 0, 0, 0 })
    end
    return m:compute()
  end,
  values = {
    average = { "micro", "weighted", "none" }, labels = { { 1, 2 } }, ignore_index = { 1 }, pos_label = { 0 },
    threshold = { 0.5, 0.7 }, zero_division = { 1, 0 / 0 },
  },
  with = {
    average = { average = "macro" }, labels = { average = "macro" }, ignore_index = { average = "macro" }, threshold = { threshold = 0.3 },
    zero_division = { zero_division = 0 },
  },
})
s:recipe("accel.metrics.Matthews", {
  run = function(call, given) return (given.threshold and of_two or of_classes)(call) end,
  values = { ignore_index = { 0, 2 }, threshold = { 0.5, 0.7 } }, with = { threshold = { threshold = 0.3 } },
})
s:recipe({ "accel.metrics.Mean", "accel.metrics.MeanLoss" }, {
  run = function(call)
    local m = call()
    m:update { 1.0, 2.0 }
    return m:compute()
  end,
  values = { name = { "other" } },
})
s:recipe({ "accel.metrics.Pearson", "accel.metrics.Spearman" }, { run = of_two })
s:recipe("accel.metrics.Perplexity", {
  run = function(call)
    local m = call()
    m:update(accel.tensor { logits, logits }, accel.tensor { labels, { 2, 1, -100, 1, 0 } })
    return m:compute()
  end,
  values = { ignore_index = { 1 } },
  raises = { ignore_index = "%-100" },
})
s:recipe("accel.metrics.load", {
  base = function() return { name = "f1" } end,
  run = function(call)
    local m = call()
    m:update({ 0, 1, 1, 1, 0, 0, 1, 0 }, { 0, 0, 1, 1, 1, 0, 0, 0 })
    return m:compute()
  end,
  values = { average = { "macro" }, ignore_index = { 1 }, labels = { { 0 } }, pos_label = { 0 }, threshold = { 0 }, zero_division = { 1 } },
  with = { labels = { average = "macro" } },
  elsewhere = { threshold = "tests/options/metrics_test.lua", zero_division = "tests/options/metrics_test.lua" },
})

local function counted(m, ...) return m:compute(...), m.samples end
local function with_references()
  return { predictions = accel.tensor { 1, 0, 1, 1 }, references = accel.tensor { 1, 1, 1, 0 } }
end
local RANKS = "tests/stdlib/metrics/accelerator_test.lua"
local by_row = { mask = { { true, false, true, true } }, weights = { { 1, 2, 3, 4 } } }
local from_loops = { gathered = RANKS, loader = RANKS, sync = RANKS }
s:recipe("accel.metrics.Metric:update", {
  base = with_references,
  run = function(call)
    local m = metrics.Accuracy()
    call(m)
    return counted(m)
  end,
  values = by_row, elsewhere = from_loops,
})
s:recipe("accel.metrics.Mean:update", {
  base = function() return { values = { 1.0, 2.0, 3.0, 5.0 } } end,
  run = function(call)
    local m = metrics.Mean()
    call(m)
    return m:compute()
  end,
  values = by_row, elsewhere = { gathered = "tests/stdlib/metrics/ranks_test.lua", loader = RANKS },
})
s:recipe("accel.metrics.Metric:add_batch", {
  base = function() return { batch = with_references() } end,
  run = function(call, given)
    local m = metrics.Accuracy()
    for name in pairs(given) do
      if name ~= "batch" then given.batch[name], given[name] = given[name], nil end
    end
    call(m)
    return counted(m)
  end,
  values = { mask = by_row.mask, weights = by_row.weights, predictions = { { 1, 1, 1, 1 } }, references = { { 1, 1, 1, 1 } } },
  elsewhere = from_loops,
})
s:recipe({ "accel.metrics.Metric:compute", "accel.metrics.Metric:value" }, {
  base = with_references, run = function(call) return call(metrics.Accuracy()) end,
  values = { mask = by_row.mask, weights = by_row.weights, predictions = { { 1, 1, 1, 1 } }, references = { { 1, 1, 1, 1 } } },
  elsewhere = from_loops,
})
s:recipe("accel.metrics.ExactSum:merge", {
  base = function()
    local other = metrics.ExactSum()
    other:add(2)
    return { other = other }
  end,
  run = function(call)
    local sum = metrics.ExactSum()
    call(sum)
    return sum:value()
  end,
  values = { sign = { -1 } },
})

s:finish()
