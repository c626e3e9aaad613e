--- Metric: the common base of all metrics. A metric is fed batch by batch on every rank, and compute() gives the
--- numbers of all that was fed anywhere, the same on every rank.
---
---   local accuracy = accel.metrics.Accuracy()
---   for batch in loader() do accuracy:update(model(batch.x), batch.y) end
---   print(accuracy:compute().accuracy)
---
--- The state is integers and exact sums (exact_sum.lua), rounded once at the end: the numbers do not depend, in any
--- bit, on the division of the data into batches and ranks, as long as each row's own values do not. Inside the loop
--- over a prepared loader the rows that are padding are left out.
local ExactSum = require "accel.metrics.exact_sum"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local inputs = require "accel.metrics.inputs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local none = options.none

--- The base class of custom metrics. A subclass declares
---   names          list of the numbers in result(). The first is value()
---   sums           names of fields that are exact sums. For other fields, start(), pack() and absorb() must be
---                  extended
---   elements(p, r) predictions and references as tensors of one shape, one element per sample. The second may be
---                  nil. A third, bool, marks the elements that count
---   add(a, b, w)   adds elements, one-dimensional. w: their weights, f64, or nil
---   result()       the numbers by name, of at least one sample
---
--- example: local Largest = accel.metrics.Metric:extend "Largest" Largest.names = { "largest" }
---   function Largest:start() self.x = -math.huge end
---   function Largest:elements(p) return p end
---   function Largest:add(x) self.x = math.max(self.x, x:max():item()) end
---   function Largest:pack() return self.x end
---   function Largest:absorb(x) self.x = math.max(self.x, x) end
---   function Largest:result() return { largest = self.x } end
---   local m = Largest() m:update { 1, 5, 2 } return m:compute() --> { largest = 5 }
---@class accel.metrics.Metric
---@field names string[]
---@field samples integer counted on this rank
local Metric = class("accel.metrics.Metric")

Metric.names, Metric.sums = {}, {}
Metric.weighted = true -- whether samples can have weights

--- The metric's name in messages: "metrics.Accuracy".
function Metric:who() return (self.__name:gsub("^accel%.", "")) end

--- Begins with nothing. Subclasses take their options before.
function Metric:init() self:reset() end

--- Forgets all that was counted.
function Metric:reset()
  self.samples, self.batched = 0, false
  self:start()
end

--- Begins with nothing.
function Metric:start()
  for _, name in ipairs(self.sums) do self[name] = ExactSum() end
end

--- The counts, as plain data and tensors.
function Metric:pack()
  local data = {}
  for _, name in ipairs(self.sums) do data[name] = self[name]:state_dict() end
  return data
end

--- Adds the result of another's pack().
---@param data any result of pack()
function Metric:absorb(data)
  for _, name in ipairs(self.sums) do self[name]:add_state(data[name]) end
end

local update_options = { mask = none, weights = none, loader = none, gathered = none }

-- Options apart from a batch of data: a table without list entries and without a prediction's name.
local function is_options(value)
  return type(value) == "table" and #value == 0 and not class.of(value)
    and (next(value) ~= nil and type(next(value)) == "string")
end

--- Counts a batch of this rank. Options: mask, bool, one per row or per element, selects those that count; weights, a
--- number or one per row or element; loader, the prepared loader of this batch, for nested loops (false: none);
--- gathered = true for rows of all ranks, alike on every rank, as gather_for_metrics returns them (its direct results
--- are recognized). mask = false: the values are not rows of the active loader's batch.
---@param predictions accel.Tensor|number[]
---@param references? accel.Tensor|number[]
---@param opts? {mask: accel.Tensor|boolean[]|false|nil, weights: any, loader: table|false|nil, gathered: boolean?}
function Metric:update(predictions, references, opts, ...)
  if opts == nil and is_options(references) then references, opts = nil, references end
  local who = self:who()
  local o = options(who .. ":update", opts, update_options, ...)
  local _ <close> = accel.no_grad()
  if o.mask == false then o.mask, o.loader = nil, false end
  if o.gathered == nil then o.gathered = inputs.is_gathered(predictions) or inputs.is_gathered(references) end
  if o.weights ~= nil and not self.weighted then raise("%s: it takes no weights", who) end
  local p = inputs.tensor(who, "predictions", predictions)
  local r = references ~= nil and inputs.tensor(who, "references", references) or nil
  local n = p:dim() > 0 and p.shape[1] or nil
  if r and (r:dim() > 0 and r.shape[1] or nil) ~= n then
    raise("%s: predictions %s and references %s differ in their rows", who, tensors.shape_string(p),
      tensors.shape_string(r))
  end
  local keep = inputs.rows(who, n, o)
  if keep == 0 then return end
  local mask = o.mask ~= nil and inputs.tensor(who, "mask", o.mask) or nil
  local weights = o.weights ~= nil and inputs.tensor(who, "weights", o.weights):to "f64" or nil
  if n and keep < n then
    p, r = p:narrow(1, 1, keep), r and r:narrow(1, 1, keep)
    mask, weights = mask and inputs.head(mask, n, keep), weights and inputs.head(weights, n, keep)
  end
  local a, b, chosen = self:elements(p, r)
  if mask then
    mask = inputs.spread(who, "mask", mask:ne(0), a)
    chosen = chosen and chosen:reshape(-1):logical_and(mask) or mask
  end
  if weights then weights = inputs.spread(who, "weights", weights, a) end
  a, b = a:reshape(-1), b and b:reshape(-1)
  if chosen then
    chosen = chosen:reshape(-1)
    a, b = a:masked_select(chosen), b and b:masked_select(chosen)
    weights = weights and weights:masked_select(chosen)
  end
  local count = a.shape[1]
  if count == 0 then return end
  self:add(a, b, weights)
  self.samples = self.samples + count
end

local batch_options = { predictions = none, references = none }
for key, value in next, update_options do batch_options[key] = value end

--- As update, in the way of the Python package evaluate: the batch may be given under names, and compute() then ends
--- the pass, so that the next batch begins a new one.
--- example: local m = accel.metrics.Accuracy() m:add_batch { predictions = { 1, 0 }, references = { 1, 1 } } return
---   m:compute() --> { accuracy = 0.5 }
---@param batch {predictions: any, references: any}|accel.Tensor|number[] with the options of update
---@param references? accel.Tensor|number[]
---@param opts? table
function Metric:add_batch(batch, references, opts, ...)
  if references == nil and type(batch) == "table" and next(batch) ~= nil and #batch == 0 then
    local o = options(self:who() .. ":add_batch", batch, batch_options, opts, ...)
    self:update(o.predictions, o.references,
      { mask = o.mask, weights = o.weights, loader = o.loader, gathered = o.gathered })
  else
    self:update(batch, references, opts, ...)
  end
  self.batched = true
end

--- A metric with the same options that has counted nothing.
function Metric:blank()
  local twin = {}
  for key, value in next, self do twin[key] = value end
  setmetatable(twin, getmetatable(self))
  twin:reset()
  return twin
end

--- Adds the state_dict() of a metric of this class.
---@param state table result of state_dict()
function Metric:merge(state)
  if type(state) ~= "table" or state.metric ~= self.__name then
    raise("%s: expected the state of a %s, got %s", self:who(), self.__name,
      check.shown(type(state) == "table" and state.metric or state))
  end
  self.samples = self.samples + state.samples
  self:absorb(state.data)
end

--- This rank's counts, as plain data and tensors.
---@return table
function Metric:state_dict()
  return { metric = self.__name, samples = self.samples, data = self:pack() }
end

--- Continues from a state_dict: each rank from its own. After a change in the number of ranks, some continue from
--- several (merge), others from none (reset).
---@param state table
function Metric:load_state_dict(state)
  local twin = self:blank()
  twin:merge(state)
  self:reset()
  self:merge(state)
end

local nan = string.unpack("<d", "\0\0\0\0\0\0\xf8\x7f") -- one NaN, although 0 / 0 has either sign

--- The numbers of this object alone, without communication. NaN if nothing was counted.
---@return table<string, number>
function Metric:numbers()
  local result = {}
  if self.samples > 0 then
    result = self:result()
  else
    for _, name in ipairs(self.names) do result[name] = nan end
  end
  for name, v in next, result do
    if v ~= v then result[name] = nan end
  end
  return result
end

local compute_options = { sync = true }
for key, value in next, batch_options do compute_options[key] = value end

--- The numbers over all ranks, equal on each. All ranks must call it. NaN if nothing was counted. sync = false: of this
--- rank alone. With predictions and references it counts these first, as add_batch.
--- example: accel.metrics.F1():compute { predictions = { 1, 1, 0, 0 }, references = { 1, 0, 1, 0 } } --> { f1 = 0.5 }
---@param opts? {sync: boolean?, predictions: any, references: any}
---@return table<string, number>
function Metric:compute(opts, ...)
  local o = options(self:who() .. ":compute", opts, compute_options, ...)
  local sync = o.sync
  o.sync = nil
  if next(o) ~= nil then self:add_batch(o) end
  local total = self
  if sync and dist.get_world_size() > 1 then
    total = self:blank()
    for _, state in ipairs(dist.all_gather_object(self:state_dict())) do total:merge(state) end
  end
  local numbers = total:numbers()
  self:finish()
  return numbers
end

--- Ends a pass that add_batch began.
function Metric:finish()
  if self.batched then self:reset() end
end

--- The first number of compute().
--- example: local m = accel.metrics.Mean() m:update { 1.0, 2.0 } return m:value() --> 1.5
---@param opts? {sync: boolean?}
---@return number
function Metric:value(opts, ...) return self:compute(opts, ...)[self.names[1]] end

function Metric:__tostring() return ("%s(%d samples on this rank)"):format(self:who(), self.samples) end

return Metric
