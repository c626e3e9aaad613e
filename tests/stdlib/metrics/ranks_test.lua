-- accel.metrics over ranks: however the data lies on 1 to 4 ranks, and in whatever batches it came, every number is
-- that of one process, bit for bit. The script starts itself on the ranks.
--   accel-run tests/stdlib/metrics/ranks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local metrics = accel.metrics

if ranks.start { 1, 2, 3, 4 } then return end
local R, P, says = ranks.rank, ranks.size, ranks.fails

local function bits(numbers)
  local parts = {}
  for name, v in accel.pairs(numbers) do
    parts[#parts + 1] = ("%s=%s"):format(name, v ~= v and "nan" or ("%a"):format(v))
  end
  return table.concat(parts, " ")
end

--- Everything at once, with one exchange.
local function all_metrics()
  return metrics.combine {
    accuracy = metrics.Accuracy(), top = metrics.Accuracy { top_k = 2 }, f1 = metrics.F1 { average = "macro" },
    precision = metrics.Precision { average = "weighted" }, matthews = metrics.Matthews(),
    weighted = metrics.F1 { average = "macro" }, pearson = metrics.Pearson(), spearman = metrics.Spearman(),
    loss = metrics.MeanLoss(), mean = metrics.Mean(), perplexity = metrics.Perplexity(),
  }
end

accel.manual_seed(11)
local N = 61
local labels = accel.randint(0, 4, { N })
local logits = accel.randn(N, 4) + labels:reshape(-1, 1):eq(accel.arange(4)):to "f32"
local x = accel.randn(N, { dtype = "f64" }) * (accel.randint(-30, 30, { N }):to "f64"):exp()
local y = accel.randn(N, { dtype = "f64" }):round() + x
local weights = accel.rand(N, { dtype = "f64" })
local tokens = accel.randint(-1, 9, { N, 5 })
tokens = tokens:masked_fill(tokens:lt(0), -100)
local scores = accel.randn(N, 5, 9)

local function feed(all, first, size)
  local function of(t) return t:narrow(1, first, size) end
  local m = all.metrics
  for _, name in ipairs { "accuracy", "top", "f1", "precision", "matthews" } do
    m[name]:update(of(logits), of(labels))
  end
  m.weighted:update(of(logits), of(labels), { weights = of(weights) })
  m.pearson:update(of(x), of(y))
  m.spearman:update(of(y):round(), of(x))
  m.loss:update(of(x))
  m.mean:update(of(x), { weights = of(weights) })
  m.perplexity:update(of(scores), of(tokens))
end

local wanted = all_metrics()
feed(wanted, 1, N)
local want = bits(wanted:compute { sync = false })
local every = wanted:compute { sync = false }
for name, v in accel.pairs(every) do assert(v == v, name) end

--- Which rank has row i, in which order, and in batches of what size.
local cuts = {
  ["by turns"] = function(i) return i % P end, backwards = function(i) return P - 1 - i % P end,
  blocks = function(i) return i * P // (N + 1) end, ["first has all"] = function() return 0 end,
  ["last has all"] = function() return P - 1 end, ["one has few"] = function(i) return i < 3 and 0 or P - 1 end,
}
local all = all_metrics()
for name, owner in accel.pairs(cuts) do
  for _, size in ipairs { 1, 3, 7, N } do
    local i = name == "backwards" and N or 1
    while i >= 1 and i <= N do
      if i <= N and owner(i) == R then
        local n = 1 -- as many of the next rows as are this rank's
        while name ~= "backwards" and n < size and i + n <= N and owner(i + n) == R do n = n + 1 end
        feed(all, i, n)
        i = name == "backwards" and i - 1 or i + n
      else
        i = name == "backwards" and i - 1 or i + 1
      end
    end
    local got = bits(all:compute())
    assert(got == want, ("%s, %d: rank %d of %d:\n%s\nnot\n%s"):format(name, size, R, P, got, want))
    local state = all:state_dict()
    all:reset()
    if size == 7 then -- and again from what was kept
      all:load_state_dict(state)
      assert(bits(all:compute()) == want, name)
      all:reset()
    end
  end
end

do -- what is the same on all ranks counts once
  local m = metrics.Accuracy()
  m:update({ 1, 0, 1 }, { 1, 1, 1 }, { gathered = true })
  assert(m:value() == 2 / 3 and m.samples == (R == 0 and 3 or 0))
  local mean = metrics.Mean()
  mean:update({ R == 0 and 1.0 or 5.0 }, { gathered = true })
  local value = mean:compute()
  assert((type(value) == "table" and select(2, next(value)) or value) == 1)
  m:reset()
  m:update({ 1, 0, 1 }, { 1, 1, 1 })
  assert(m:value() == 2 / 3 and m.samples == 3)
end

for _, way in ipairs { "update", "add_batch", "compute", "value" } do -- however it is given; and what one rank alone has seen
  local m, sync = metrics.Accuracy(), metrics.Accuracy()
  local given = { predictions = { 1, R == 0 and 1 or 0 }, references = { 1, 1 }, gathered = true }
  local value
  if way == "update" then m:update(given.predictions, given.references, { gathered = true }) else value = m[way](m, given) end
  if way == "compute" then value = value.accuracy end
  if way == "update" or way == "add_batch" then value = m:value() end
  assert(value == 1, way)
  sync:update({ 1, R }, { 1, 0 })
  if way == "compute" then assert(sync:compute({ sync = false }).accuracy == (R == 0 and 1 or 0.5)) end
  if way == "value" then assert(sync:value { sync = false } == (R == 0 and 1 or 0.5)) end
end

do -- nothing anywhere, or on some ranks
  local m = all_metrics()
  for name, v in accel.pairs(m:compute()) do assert(v ~= v, name) end
  if R == P - 1 then feed(m, 1, N) end
  assert(bits(m:compute()) == want)
end

do -- a pass that add_batch began ends for all ranks, also those that had nothing to add
  local m = metrics.load "accuracy"
  m:add_batch({ 1 }, { R == 0 and 1 or 0 })
  assert(m:value() == 1 / P)
  if R == 0 then m:add_batch({ 1 }, { 1 }) end
  assert(m:value() == 1)
end

do -- an error that all ranks learn
  local m = metrics.F1()
  m:update({ R }, { R })
  if P > 2 then says("average = 'binary' needs two classes", m.compute, m) else m:compute() end
  local keeps = metrics.Metric:extend "Keeps"
  keeps.names = { "n" }
  function keeps:start() self.list = {} end
  function keeps:elements(p) return p end
  function keeps:add(p) self.list[#self.list + 1] = p:clone() end
  function keeps:pack() return accel.cat(self.list) end
  function keeps:absorb(t) self.list[#self.list + 1] = t end
  function keeps:result() return { n = accel.cat(self.list):sum():item() } end
  local own = keeps()
  own:update { R, 1 }
  assert(own:value() == P + P * (P - 1) // 2)
end
