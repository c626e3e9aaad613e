--- Combined: several metrics as one: fed together, or each by itself, and computed with one exchange between ranks.
local Metric = require "accel.metrics.metric"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

--- Metrics in a list use their own names. Metrics under names use these, with "name_" before their own if one has
--- several. Each is also available as combined.metrics[i] or combined.metrics.name, for inputs that only it takes.
--- example: local m = accel.metrics.Combined { accel.metrics.Accuracy(), accel.metrics.F1() }
---   m:update({ 1, 0, 1, 1 }, { 1, 0, 0, 1 }) return m:compute() --> { accuracy = 0.75, f1 = 0.8 }
---@class accel.metrics.Combined: accel.metrics.Metric
---@field metrics table<string|integer, accel.metrics.Metric>
local Combined = Metric:extend("accel.metrics.Combined")

---@param metrics table<string|integer, accel.metrics.Metric>
function Combined:init(metrics)
  local who = "metrics.Combined"
  if type(metrics) ~= "table" or class.of(metrics) or next(metrics) == nil then
    raise("%s: expected a list or table of metrics, got %s", who, check.shown(metrics))
  end
  self.metrics, self.names, self.parts = {}, {}, {}
  local taken = {}
  for key, metric in accel.pairs(metrics) do
    if not class.isinstance(metric, Metric) then
      raise("%s: entry %s must be a metric, got %s", who, tostring(key), check.shown(metric))
    end
    local named = {}
    for _, name in ipairs(metric.names) do
      local full = type(key) ~= "string" and name or #metric.names == 1 and key or key .. "_" .. name
      if taken[full] then raise("%s: two numbers are called '%s': give the metrics names", who, full) end
      taken[full], named[name] = true, full
      self.names[#self.names + 1] = full
    end
    self.metrics[key] = metric
    self.parts[#self.parts + 1] = { key = key, metric = metric, named = named }
  end
  self.samples, self.batched = 0, false -- the parts count for themselves
end

local function each(self, visit)
  for _, part in ipairs(self.parts) do visit(part.metric, part) end
end

function Combined:reset()
  each(self, function(metric) metric:reset() end)
  self.batched = false
end

function Combined:finish()
  if self.batched then self:reset() end
  each(self, function(metric) metric:finish() end)
end

function Combined:update(predictions, references, opts)
  each(self, function(metric) metric:update(predictions, references, opts) end)
end

function Combined:blank()
  local blanks = {}
  each(self, function(metric, part) blanks[part.key] = metric:blank() end)
  return Combined(blanks)
end

function Combined:state_dict()
  local data = {}
  each(self, function(metric, part) data[#data + 1] = { key = part.key, state = metric:state_dict() } end)
  return { metric = self.__name, samples = 0, data = data }
end

function Combined:absorb(data)
  if type(data) ~= "table" or #data ~= #self.parts then raise "metrics.Combined: that is the state of other metrics" end
  for i, part in ipairs(self.parts) do
    if data[i].key ~= part.key then
      raise("metrics.Combined: expected the state of '%s', got '%s'", tostring(part.key), tostring(data[i].key))
    end
    part.metric:merge(data[i].state)
  end
end

function Combined:numbers()
  local all = {}
  each(self, function(metric, part)
    for name, v in next, metric:numbers() do all[part.named[name]] = v end
  end)
  return all
end

function Combined:__tostring()
  local texts = {}
  each(self, function(metric) texts[#texts + 1] = tostring(metric) end)
  return ("metrics.Combined(%s)"):format(table.concat(texts, ", "))
end

return Combined
