--- AdaptiveLogSoftmaxWithLoss (Grave et al. 2017): a softmax of many classes whose rare ones are in clusters, reached through one
--- class of the head each.
local accel = require "accel"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local ModuleList = require "accel.nn.module_list"
local Sequential = require "accel.nn.sequential"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- Log probabilities of many classes, frequent ones first. cutoffs {c1, c2, ...}: classes below c1 are in the head, those from c1 to c2 in
--- the first cluster, whose width is in_features / div_value, and so on. layer(input, target) -> log probabilities of the
--- targets, and their mean loss. See log_prob and predict.
--- example: local m = accel.nn.AdaptiveLogSoftmaxWithLoss(4, 6, { 2, 4 }, { div_value = 2 }) return m:log_prob(accel.ones(1, 4)):exp():sum() --> 1
---@class accel.nn.AdaptiveLogSoftmaxWithLoss : accel.nn.Module
local Adaptive = Module:extend("accel.nn.AdaptiveLogSoftmaxWithLoss")

local WHO <const> = "AdaptiveLogSoftmaxWithLoss"
local parse = arguments(WHO, { "in_features" }, { "n_classes" }, { "cutoffs", list = true }, { "div_value", 4.0 }, { "head_bias", false },
  { "device" }, { "dtype", "f32" })

---@param ... any in_features, n_classes, cutoffs, div_value = 4, head_bias = false, device, dtype by position or in one table
function Adaptive:init(...)
  local o = parse(...)
  self.in_features, self.n_classes = check.positive(WHO, "in_features", o.in_features), check.positive(WHO, "n_classes", o.n_classes)
  if type(o.cutoffs) ~= "table" or #o.cutoffs == 0 then raise("%s: cutoffs must be a list of classes, got %s", WHO, check.shown(o.cutoffs)) end
  self.cutoffs = {}
  for i, c in ipairs(o.cutoffs) do
    self.cutoffs[i] = check.positive(WHO, ("cutoffs[%d]"):format(i), c)
    if c >= self.n_classes or i > 1 and c <= o.cutoffs[i - 1] then
      raise("%s: cutoffs must increase and stay below n_classes = %d", WHO, self.n_classes)
    end
  end
  self.n_clusters = #self.cutoffs
  self.cutoffs[self.n_clusters + 1] = self.n_classes
  self.div_value, self.head_bias = check.number(WHO, "div_value", o.div_value), o.head_bias
  self.shortlist_size = self.cutoffs[1]
  self.head_size = self.shortlist_size + self.n_clusters
  local make = { dtype = o.dtype, device = o.device }
  local function linear(n, m, bias) return Linear(n, m, { bias = bias, dtype = make.dtype, device = make.device }) end
  self.head = linear(self.in_features, self.head_size, o.head_bias)
  self.tail = ModuleList {}
  for i = 1, self.n_clusters do
    local width, size = math.floor(self.in_features // self.div_value ^ i), self.cutoffs[i + 1] - self.cutoffs[i]
    if width < 1 then raise("%s: cluster %d would have width 0; lower div_value, or give fewer cutoffs", WHO, i) end
    self.tail:append(Sequential(linear(self.in_features, width, false), linear(width, size, false)))
  end
end

--- Draws the initial values again.
function Adaptive:reset_parameters()
  self.head:reset_parameters()
  for _, m in ipairs(self.tail:modules()) do
    if m.reset_parameters then m:reset_parameters() end
  end
end

local function rows_of(self, input)
  if not tensors.is_tensor(input) or input.ndim ~= 2 or input:size(2) ~= self.in_features then
    raise("%s: expected an input (N, %d), got %s", WHO, self.in_features, tensors.is_tensor(input) and tensors.shape_string(input)
      or check.shown(input))
  end
  return input
end

--- The log probability of each target, and minus their mean.
---@param input accel.Tensor (N, in_features) or (in_features)
---@param target accel.Tensor i64, (N) or ()
---@return accel.Tensor output
---@return accel.Tensor loss
function Adaptive:forward(input, target)
  local single = tensors.is_tensor(target) and target.ndim == 0
  if single then input, target = input:unsqueeze(1), target:unsqueeze(1) end
  rows_of(self, input)
  if not tensors.is_tensor(target) or target.ndim ~= 1 or target:size(1) ~= input:size(1) then
    raise("%s: target must have a class for each of the %d rows", WHO, input:size(1))
  end
  local head = accel.log_softmax(self.head(input), 2)
  -- in the head a class of a cluster stands for the cluster
  local at, parts = target:clone(), {}
  for i = 1, self.n_clusters do
    local low, high = self.cutoffs[i], self.cutoffs[i + 1]
    local mine = target:ge(low):logical_and(target:lt(high))
    at = at:masked_fill(mine, self.shortlist_size + i - 1)
    local rows = accel.nonzero(mine):squeeze(2)
    if rows:numel() > 0 then
      local log = accel.log_softmax(self.tail[i](input:index_select(1, rows)), 2)
      local own = log:gather(2, (target:index_select(1, rows) - low):unsqueeze(2)):squeeze(2)
      parts[#parts + 1] = { rows, own }
    end
  end
  if at:numel() > 0 and (at:max():item() >= self.head_size or at:min():item() < 0) then
    raise("%s: targets must be classes in 0 .. %d", WHO, self.n_classes - 1)
  end
  local out = head:gather(2, at:unsqueeze(2)):squeeze(2)
  for _, part in ipairs(parts) do out = out:index_add(1, part[1], part[2]) end
  local loss = -out:mean()
  return single and out:squeeze(1) or out, loss
end

--- Log probabilities of all classes: (N, in_features) -> (N, n_classes).
---@param input accel.Tensor
---@return accel.Tensor
function Adaptive:log_prob(input)
  local head = accel.log_softmax(self.head(rows_of(self, input)), 2)
  local parts = { head:narrow(2, 1, self.shortlist_size) }
  for i = 1, self.n_clusters do
    parts[i + 1] = accel.log_softmax(self.tail[i](input), 2) + head:narrow(2, self.shortlist_size + i, 1)
  end
  return accel.cat(parts, 2)
end

--- The most probable class of each row. A cluster is computed only if it is the most probable entry of some row's head.
---@param input accel.Tensor (N, in_features)
---@return accel.Tensor
function Adaptive:predict(input)
  local best = self.head(rows_of(self, input)):argmax(2)
  if best:numel() == 0 or best:max():item() < self.shortlist_size then return best end
  return self:log_prob(input):argmax(2)
end

function Adaptive:extra_repr()
  return ("in_features=%d, n_classes=%d, cutoffs=%s, div_value=%g"):format(self.in_features, self.n_classes, arguments.text(self.cutoffs),
    self.div_value)
end

return Adaptive
