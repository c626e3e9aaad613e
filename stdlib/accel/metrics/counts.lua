--- Counts of (true class, predicted class), for any classes, for F1, precision, recall and Matthews' coefficient.
local ExactSum = require "accel.metrics.exact_sum"
local Metric = require "accel.metrics.metric"
local accel = require "accel"
local check = require "accel.util.check"
local inputs = require "accel.metrics.inputs"
local raise = require "accel.util.raise"

local FEW = 32 -- from here on tensor operations take less time than a loop
local LARGEST = 1 << 31

---@class accel.metrics.Counts: accel.metrics.Metric
---@field cells table<integer, table<integer, integer>> cells[truth][prediction], samples without weight
---@field sums_of table<integer, table<integer, accel.metrics.ExactSum>> weights of the others
local Counts = Metric:extend("accel.metrics.Counts")

--- Takes the options that all of these metrics have.
---@param o {threshold: number?, ignore_index: integer?}
function Counts:configure(o)
  self.threshold = o.threshold and check.number(self:who(), "threshold", o.threshold)
  self.ignore_index = o.ignore_index and check.integer(self:who(), "ignore_index", o.ignore_index)
end

function Counts:start() self.cells, self.sums_of = {}, {} end

function Counts:elements(p, r)
  if not r then raise("%s: references are missing", self:who()) end
  local labels
  p, labels = inputs.classes(self:who(), p, r, self.threshold)
  return p, labels, self.ignore_index and labels:ne(self.ignore_index)
end

local function row_of(cells, truth)
  local row = cells[truth]
  if not row then
    row = {}
    cells[truth] = row
  end
  return row
end

local function add(cells, truth, predicted, n)
  local row = row_of(cells, truth)
  row[predicted] = (row[predicted] or 0) + n
end

local function sum_at(cells, truth, predicted)
  local row = row_of(cells, truth)
  row[predicted] = row[predicted] or ExactSum()
  return row[predicted]
end

-- One integer per pair of classes, each counted at once.
local function add_many(self, p, r)
  local low, high = {}, {}
  for i, t in ipairs { p, r } do
    low[i], high[i] = t:min():item(), t:max():item()
    if low[i] < -LARGEST or high[i] > LARGEST then
      raise("%s: class %d is not a number of a class", self:who(), low[i] < -LARGEST and low[i] or high[i])
    end
  end
  local span, height = high[1] - low[1] + 1, high[2] - low[2] + 1
  local key, keys, counts = (r - low[2]) * span + (p - low[1])
  if span * height <= math.max(1024, 4 * p:numel()) then
    counts = accel.bincount(key)
    keys = counts:nonzero():reshape(-1)
    counts = counts:index_select(1, keys)
  else
    local _
    keys, _, counts = key:unique()
  end
  keys, counts = keys:tolist(), counts:tolist()
  for i, k in ipairs(keys) do add(self.cells, k // span + low[2], k % span + low[1], counts[i]) end
end

function Counts:add(p, r, weights)
  if not weights and p:numel() > FEW then return add_many(self, p, r) end
  p, r = p:tolist(), r:tolist()
  if weights then
    for i, w in ipairs(weights:tolist()) do sum_at(self.sums_of, r[i], p[i]):add(w) end
  else
    for i, truth in ipairs(r) do add(self.cells, truth, p[i], 1) end
  end
end

-- Calls visit(truth, prediction, entry) for every cell, by ascending class.
local function each(cells, visit)
  for truth, row in accel.pairs(cells) do
    for predicted, entry in accel.pairs(row) do visit(truth, predicted, entry) end
  end
end

function Counts:pack()
  local cells, weights = {}, {}
  each(self.cells, function(t, p, n) cells[#cells + 1] = { t, p, n } end)
  each(self.sums_of, function(t, p, sum) weights[#weights + 1] = { t, p, sum:state_dict() } end)
  return { cells = cells, weights = weights }
end

function Counts:absorb(data)
  for _, cell in ipairs(data.cells) do add(self.cells, cell[1], cell[2], cell[3]) end
  for _, cell in ipairs(data.weights) do sum_at(self.sums_of, cell[1], cell[2]):add_state(cell[3]) end
end

--- Sums over cells: the diagonal, each row (true class), each column (predicted class), and all. Integers as long as no
--- weights were given. `classes` are those that occur, ascending.
---@return {classes: integer[], hits: table, truths: table, predictions: table, right: number, total: number}
function Counts:margins()
  local hits, truths, predictions, seen, right, total = {}, {}, {}, {}, { 0 }, { 0 }
  local function into(list, key, entry)
    if type(entry) == "number" and type(list[key] or 0) == "number" then
      list[key] = (list[key] or 0) + entry
      return
    end
    if type(list[key]) ~= "table" then
      local sum = ExactSum()
      sum:add(list[key] or 0)
      list[key] = sum
    end
    if type(entry) == "number" then list[key]:add(entry) else list[key]:merge(entry) end
  end
  local function visit(t, p, entry)
    seen[t], seen[p] = true, true
    if t == p then
      into(hits, t, entry)
      into(right, 1, entry)
    end
    into(truths, t, entry)
    into(predictions, p, entry)
    into(total, 1, entry)
  end
  each(self.cells, visit)
  each(self.sums_of, visit)
  local classes = {}
  for c in accel.pairs(seen) do classes[#classes + 1] = c end
  for _, list in ipairs { hits, truths, predictions, right, total } do
    for key, v in next, list do list[key] = type(v) == "table" and v:value() or v end
  end
  return { classes = classes, hits = hits, truths = truths, predictions = predictions, right = right[1],
    total = total[1] }
end

return Counts
