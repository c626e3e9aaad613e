-- accel.metrics on one rank: against scikit-learn, scipy and numpy (metrics_cases.json, made by make_metrics.py),
-- against closed forms, and what is wrong or missing.
--   accel-run tests/stdlib/metrics/metrics_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local metrics, says = accel.metrics, ranks.fails

local function is_nan(x) return x ~= x end
local function near(a, b, bar) return is_nan(a) and is_nan(b) or math.abs(a - b) <= (bar or 1e-12) end

-- ---- what others compute ----

local golden = ranks.json "stdlib/metrics/metrics_cases.json"
assert(#golden.cases > 500)

local function sevenths(n)
  local list = {}
  for i = 1, n do list[i] = 1 / (1 + (i - 1) % 7) end
  return list
end

--- A part of a list; parts are what a loader would hand out.
local function slice(list, from, to) return list and table.move(list, from, to, 1, {}) end

local function numbers_equal(got, want)
  if type(want) == "table" then
    if #got ~= #want then return false end
    for i, v in ipairs(want) do
      if not numbers_equal(got[i], v) then return false end
    end
    return true
  end
  return near(got, want == "nan" and 0 / 0 or want)
end

for i, case in ipairs(golden.cases) do
  local o = case.options
  if o.zero_division == "nan" then o.zero_division = 0 / 0 end
  local p, r = golden.data[case.data][1], golden.data[case.data][2]
  if r == accel.json.null then r = nil end
  local weights = case.weights and sevenths(#p)
  local whole = metrics[case.metric](o)
  local dtype = math.type(p[1]) ~= "integer" and "f64" or nil
  whole:update(accel.tensor(p, { dtype = dtype }), r, { weights = weights })
  local got = whole:compute()[whole.names[1]]
  assert(numbers_equal(got, case.want), ("case %d, %s: %s"):format(i, case.metric, tostring(got)))
  -- in pieces, as lists, by turns into two metrics that are merged
  local one, two, at = metrics[case.metric](o), metrics[case.metric](o), 1
  while at <= #p do
    local to = math.min(#p, at + at % 5 + (at > 50 and 40 or 0))
    one:update(slice(p, at, to), slice(r, at, to), { weights = slice(weights, at, to) })
    one, two, at = two, one, to + 1
  end
  one:merge(accel.decode(accel.encode(two:state_dict())))
  assert(one.samples == #p)
  local again = one:compute()[one.names[1]]
  if type(got) ~= "table" then got, again = { got }, { again } end
  for k, v in ipairs(got) do assert(v == again[k] or is_nan(v) and is_nan(again[k]), case.metric) end
end

for _, sum in ipairs(golden.sums) do
  local s = metrics.ExactSum()
  for _, v in ipairs(sum.values) do s:add(tonumber(v)) end
  assert(s:value() == tonumber(sum.want))
end

-- ---- perplexity ----

do
  local m = metrics.Perplexity()
  local logits, labels = accel.randn(4, 6, 11), accel.randint(0, 11, { 4, 6 })
  labels:narrow(1, 2, 1):fill_(-100)
  m:update(logits, labels)
  local nll = accel.cross_entropy(logits:reshape(24, 11), labels:reshape(24))
  assert(near(m:value(), math.exp(nll:item()), 1e-5) and m.samples == 18)
  local shifted = metrics.Perplexity { shift = true }
  shifted:update(logits, labels)
  nll = accel.cross_entropy(logits:narrow(2, 1, 5):reshape(20, 11), labels:narrow(2, 2, 5):reshape(20))
  assert(near(shifted:value(), math.exp(nll:item()), 1e-5) and shifted.samples == 15)
  local masked = metrics.Perplexity { shift = true } -- a mask stands beside the labels
  local mask = accel.ones({ 4, 6 }, { dtype = "i64" })
  mask:narrow(2, 5, 2):fill_(0)
  masked:update(logits, labels, { mask = mask })
  nll = accel.cross_entropy(logits:narrow(2, 1, 3):reshape(12, 11), labels:narrow(2, 2, 3):reshape(12))
  assert(near(masked:value(), math.exp(nll:item()), 1e-5) and masked.samples == 9)
  local given = metrics.Perplexity()
  given:update(accel.tensor { { 1.0, 2.0 }, { 3.0, 50.0 } }, { mask = { { true, true }, { true, false } } })
  assert(given:value() == math.exp(2))
  given:update { 1e6 }
  assert(given:value() == math.huge)
  local bf16 = metrics.Perplexity()
  bf16:update(accel.zeros({ 2, 3, 8 }, { dtype = "bf16" }), accel.zeros({ 2, 3 }, { dtype = "i64" }))
  assert(near(bf16:value(), 8, 1e-5))
  says("shift = true needs logits", shifted.update, shifted, { 1.0 })
  says("do not fit labels", m.update, m, logits, accel.zeros({ 4, 5 }, { dtype = "i64" }))
end

-- ---- closed forms ----

do -- far from 0, where the difference of squares would lose everything
  local m, x, y = metrics.Pearson(), {}, {}
  for i = 1, 1000 do
    x[i], y[i] = 1e8 + (i % 10) / 1024, -1e8 - (i % 10) / 512
  end
  m:update(x, y)
  assert(m:value() == -1)
  m:update({ 1e8 + 3 }, { -1e8 - 6 })
  assert(m:value() == -1)
  for _, scale in ipairs { 2.0 ^ -1000, 2.0 ^ 1000 } do -- sums of squares outside the range of f64
    for _, n in ipairs { 3, 100 } do
      local small, a, b = metrics.Pearson(), {}, {}
      for i = 1, n do a[i], b[i] = i * scale, 3 * i * scale end
      small:update(a, b)
      assert(small:value() == 1)
    end
  end
  local half = metrics.Pearson()
  half:update({ 1, 1, -1, -1 }, { 1, -1, 1, -1 })
  assert(half:value() == 0)
end

do -- ties share a rank: 1, 2.5, 2.5, 4 against 1, 2, 3, 4
  local m = metrics.Spearman()
  m:update({ 1, 2, 2, 3 }, { 1, 2, 3, 4 })
  assert(m:value() == 4.5 / math.sqrt(4.5 * 5))
  local x = accel.tensor({ 1.0, 5.0, 2.0 }, { dtype = "f64" })
  local kept = metrics.Spearman()
  kept:update(x, { 1, 2, 3 })
  x:zero_() -- what was counted does not change
  assert(kept:value() == 0.5)
end

do -- every dtype and form of input
  for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8" } do
    local p, r = accel.tensor({ 1, 0, 1, 1 }, { dtype = dtype }), accel.tensor({ 1, 1, 1, 0 }, { dtype = dtype })
    local m = metrics.combine { "accuracy", "f1", "matthews_correlation", "pearsonr", "spearmanr" }
    m:update(p, r)
    local got = m:compute()
    assert(got.accuracy == 0.5 and near(got.f1, 2 / 3) and near(got.matthews_correlation, -1 / 3), dtype)
    assert(near(got.pearsonr, -1 / 3) and near(got.spearmanr, -1 / 3), dtype)
    local mean = metrics.Mean()
    mean:update(p, { weights = r })
    assert(near(mean:value(), 2 / 3), dtype)
  end
  local m = metrics.Accuracy()
  m:update(accel.tensor { true, false }, accel.tensor { true, true })
  m:update({ true, false }, { true, true })
  m:update(accel.tensor { { 1, 0 }, { 0, 0 } }, { { 1, 1 }, { 1, 0 } }) -- any shape
  assert(m:value() == 0.5 and m.samples == 8)
  local x = accel.tensor({ 0.25, 0.75 }, { requires_grad = true })
  local mean = metrics.MeanLoss()
  mean:update(x * 2)
  mean:update(1.0)
  mean:update(accel.tensor(1.0), { weights = 6 })
  assert(mean:compute().loss == 1 and metrics.Mean({ name = "loss_b" }).names[1] == "loss_b")
  local tokens = metrics.Accuracy { ignore_index = -100 }
  tokens:update(accel.eye(3):reshape(1, 3, 3), { { 0, -100, 1 } })
  assert(tokens:value() == 0.5)
end

do -- masks and weights: by row, by element, both
  local p, r = { { 1, 1 }, { 1, 1 }, { 1, 1 } }, { { 1, 0 }, { 0, 0 }, { 1, 1 } }
  local function of(opts)
    local m = metrics.Accuracy()
    m:update(p, r, opts)
    return m:value()
  end
  assert(of() == 0.5 and of { mask = { true, true, false } } == 0.25 and of { mask = { false, false, false } } ~= of())
  assert(of { mask = accel.tensor { { 1, 0 }, { 0, 0 }, { 1, 1 } } } == 1)
  assert(of { weights = { 1, 0, 3 } } == 7 / 8 and of { weights = { 1, 5, 3 }, mask = { true, false, true } } == 7 / 8)
  assert(of { weights = { { 1, 3 }, { 0, 0 }, { 0, 0 } } } == 0.25)
  local m = metrics.Mean()
  m:update({ 1.0, 0 / 0 }, { mask = { 1, 0 } }) -- what is masked out leaves no trace
  assert(m:value() == 1)
  says("mask of shape (2) do not fit", of, { mask = { true, true } })
  says("weights of shape (3, 1) do not fit", of, { weights = { { 1 }, { 1 }, { 1 } } })
end

-- ---- nothing, and no number ----

do
  for _, name in ipairs { "accuracy", "f1", "precision", "recall", "matthews_correlation", "pearsonr", "spearmanr",
    "perplexity", "mean", "loss" } do
    local m = metrics.load(name)
    assert(is_nan(m:value()) and is_nan(m:compute()[name]))
    local alone = name == "mean" or name == "loss"
    m:update({}, not alone and {} or nil)
    if name ~= "perplexity" then m:update(accel.zeros(0), not alone and accel.zeros(0) or nil) end
    assert(is_nan(m:value()) and m.samples == 0)
  end
  local function of(name, p, r)
    local m = metrics.load(name)
    m:update(p, r)
    return m:value()
  end
  for _, name in ipairs { "pearsonr", "spearmanr" } do
    assert(is_nan(of(name, { 1.0 }, { 2.0 })) and is_nan(of(name, { 1.0, 2.0 }, { 3.0, 3.0 })))
    assert(is_nan(of(name, { 1.0, 0 / 0, 3.0 }, { 1.0, 2.0, 3.0 })) and of(name, { 1.0, 2.0 }, { 3.0, 9.0 }) == 1)
  end
  assert(is_nan(of("pearsonr", { 1.0, math.huge, 3.0 }, { 1.0, 2.0, 3.0 })))
  assert(of("spearmanr", { 1.0, math.huge, 3.0 }, { 1.0, 3.0, 2.0 }) == 1)
  assert(of("mean", { 1.0, math.huge }) == math.huge and is_nan(of("mean", { -math.huge, math.huge })))
  local none = metrics.Mean()
  none:update({ 1.0 }, { weights = 0 })
  assert(is_nan(none:value()) and none.samples == 1)
  assert(of("f1", { 0, 0 }, { 0, 0 }) == 0 and of("matthews_correlation", { 1, 1 }, { 0, 1 }) == 0)
end

-- ---- the ways of use ----

do -- evaluate's: compute ends a pass that add_batch began; torchmetrics': reset does
  local m = metrics.load "accuracy"
  m:add_batch { predictions = { 1, 0 }, references = { 1, 1 } }
  m:add_batch({ 1, 1 }, { 1, 1 })
  assert(m:compute().accuracy == 0.75)
  m:add_batch({ 0 }, { 1 })
  assert(m:compute().accuracy == 0)
  assert(m:compute({ predictions = { 1, 1 }, references = { 1, 0 } }).accuracy == 0.5 and m.samples == 0)
  m:update({ 1 }, { 1 })
  assert(m:value() == 1 and m:value() == 1)
  m:update({ 0 }, { 1 })
  assert(m:value() == 0.5)
  m:reset()
  assert(m.samples == 0 and is_nan(m:value()))
  local glue = metrics.glue "mrpc"
  glue:add_batch { predictions = { 1, 1, 1, 0 }, references = { 1, 0, 1, 0 } }
  local got = glue:compute()
  assert(got.accuracy == 0.75 and got.f1 == 0.8 and is_nan(glue:compute().f1))
  assert(glue:value() ~= glue:value())
end

do -- several at once
  local m = metrics.combine { a = "accuracy", b = metrics.glue "mrpc", loss = "mean" }
  assert(table.concat(m.names, " ") == "a b_accuracy b_f1 loss")
  m.metrics.a:update({ 1 }, { 1 })
  m.metrics.b:update({ 1, 0 }, { 1, 1 })
  m.metrics.loss:add_batch { 2.0 }
  local got = m:compute()
  assert(got.a == 1 and got.b_accuracy == 0.5 and near(got.b_f1, 2 / 3) and got.loss == 2)
  got = m:compute()
  assert(got.a == 1 and is_nan(got.loss), "what add_batch began is over")
  local state = accel.decode(accel.encode(m:state_dict()))
  local other = m:blank()
  assert(is_nan(other:compute().a))
  other:load_state_dict(state)
  other:load_state_dict(state) -- replaces
  assert(other:compute().b_f1 == got.b_f1 and other.metrics.b.metrics[1].samples == 2)
  assert(tostring(m):find("metrics.Accuracy(1 samples on this rank)", 1, true))
  assert(table.concat(metrics.glue("stsb").names, " ") == "pearson spearmanr")
  says("two numbers are called 'f1'", metrics.combine, { "f1", "f1" })
  says("the state of other metrics", m.load_state_dict, m, metrics.glue("mrpc"):state_dict())
end

do -- a metric of one's own
  local Largest = metrics.Metric:extend "Largest"
  Largest.names = { "largest" }
  function Largest:start() self.x = -math.huge end
  function Largest:elements(p) return p end
  function Largest:add(x) self.x = math.max(self.x, x:max():item()) end
  function Largest:pack() return self.x end
  function Largest:absorb(x) self.x = math.max(self.x, x) end
  function Largest:result() return { largest = self.x } end
  local m = Largest()
  m:update { 1.0, 5.0, 2.0 }
  m:update { 3.0 }
  assert(m:compute().largest == 5 and m.samples == 4)
  m:merge(m:state_dict())
  assert(m.samples == 8)
end

-- ---- what is wrong ----

do
  local m, f1 = metrics.Accuracy(), metrics.F1()
  says("unknown option 'top'", metrics.Accuracy, { top = 1 })
  says("did you mean 'f1'", metrics.load, "F11")
  says("unknown name", metrics.glue, "xyz")
  says("must be one of binary", metrics.F1, { average = "mean" })
  says("unknown option 'masks'; did you mean 'mask'?", m.update, m, { 1 }, { 1 }, { masks = {} })
  says("references are missing", m.update, m, { 1 })
  says("predictions (2) and references (3) differ in their rows", m.update, m, { 1, 2 }, { 1, 2, 3 })
  says("predictions are not classes", m.update, m, { 0.5 }, { 1 })
  says("references must be classes", m.update, m, { 1 }, { 0.5 })
  says("set threshold", m.update, m, accel.zeros(3, 1), { 1, 0, 1 })
  says("predictions must be a tensor or a list of numbers, got a ", m.update, m, print, { 1 })
  says("predictions (2, 2, 2) and references (2) do not match", m.update, m, accel.zeros(2, 2, 2), { 1, 1 })
  says("takes no weights", metrics.Pearson.update, metrics.Pearson(), { 1.0 }, { 1.0 }, { weights = 2 })
  says("no references", metrics.Mean.update, metrics.Mean(), { 1.0 }, { 1.0 })
  says("needs logits with at least as many classes", function()
    metrics.Accuracy({ top_k = 5 }):update(accel.zeros(2, 3), { 1, 1 })
  end)
  f1:update({ 0, 1, 2 }, { 0, 1, 2 })
  says("average = 'binary' needs two classes, but 3 occur", f1.compute, f1)
  assert(m.samples == 0, "what was refused is not counted")
  says("expected the state of a accel.metrics.Accuracy, got 'accel.metrics.F1'", m.load_state_dict, m, f1:state_dict())
  local sum = metrics.ExactSum()
  says("expected the table that state_dict returned", sum.load_state_dict, sum, { digits = {} })
end
