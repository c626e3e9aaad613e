--- The mean loss of a call of a pipeline, over all labels of its micro-batches and of the ranks that read other data: the sum over the
--- count, for any distribution of labels, including micro-batches without any. Used by runner.lua. accelerator/parallelism.lua sets the
--- fields.
---
--- A mean loss of the model's own has its count before (model:_loss_counts), so that gradients come out right at once. A loss function is a
--- mean over labels if it returns a cross entropy's mean, whose count is known after it: its gradients are sums over a unit, and are
--- divided at the end of the call. Other losses count every micro-batch alike.
---
--- If the calls of an update are joined (it accumulates), gradients are left divided by the count of its first call that has labels, and
--- complete ones are multiplied by that over the count of all: sums over labels would not fit fp16.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local class = require "accel.util.class"
local dist = require "accel.dist"
local gradients = require("accel.optim.core").gradients
local means = require "accel.autograd.means"

---@class accel.parallel.pipeline.Means
---@field axis accel.parallel.Axis|{size: integer} ranks over which gradients are averaged
---@field steps fun(): integer calls of an update, by which the seed of a backward divides
---@field joined boolean? the calls of an update are joined even if it does not accumulate
---@field by_micro_batch boolean? Megatron-LM's mean of the means of micro-batches
---@field of_targets (fun(targets: table): accel.Tensor[])? counts of a loss function's means, by its last argument
---@field count_arguments (fun(args: table, learns: boolean): accel.Tensor?)? the count of a loss without a known one
local Means = class "accel.parallel.pipeline.Means"

---@param model accel.nn.Module
function Means:init(model)
  self.model, self.axis = model._loss_counts and model or nil, { size = 1 }
  self.steps = function() return 1 end
  self.counted, self.calls, self.divisor = 0, 0, nil -- labels and calls of the update so far, and the divisor of present gradients
  self:begin(true)
end

--- An update begins, or continues.
---@param new boolean
function Means:begin(new)
  if not new then return end
  self.counted, self.calls, self.divisor = 0, 0, nil
  self.update = { calls = 0, noted = 0, weights = 0 } -- for accelerator:backward with a weight
end

function Means:joins() return self.joined or self.steps() > 1 end

--- The counts of a micro-batch's loss from its arguments, one for each mean in it. nil if unknown.
function Means:of_arguments(args, inputs)
  local counts
  if self.of_targets then
    counts = self.of_targets(args[args.n])
  elseif self.model then
    counts = self.model:_loss_counts(table.unpack(args, 1, inputs or args.n))
  end
  if not counts or #counts == 0 or counts[1].device:find "^meta" and not absent.simulated then return nil end
  return counts
end

--- Counts for a dry run, which knows none: each mean of each micro-batch counts alike.
local function alike(n, terms, count)
  local out = {}
  for m = 1, n do
    out[m] = {}
    for t = 1, terms do out[m][t] = count end
  end
  return out
end

--- Own and all ranks' counts, by micro-batch and then by mean. A collective.
local function ahead(self, micro, inputs)
  local list, terms = {}, 0
  for _, args in ipairs(micro) do
    local counts = self:of_arguments(args, inputs)
    if not counts then return nil end
    for t, count in ipairs(counts) do list[#list + 1], terms = count:to "f64", t end
  end
  local own = accel.stack(list, 1):to "cpu"
  local all = own:clone()
  if self.axis.size > 1 then dist.all_reduce(all, { group = self.axis.group }) end
  if absent.simulated then return alike(#micro, terms, 1), alike(#micro, terms, self.axis.size) end
  return own:reshape(-1, terms):tolist(), all:reshape(-1, terms):tolist()
end

--- Begins a call: the data known before its first micro-batch.
---@param micro table[] arguments of the micro-batches
---@param inputs? integer how many of them the model takes
---@param learns boolean
---@return table call
function Means:open(micro, inputs, learns)
  local call = { n = #micro, learns = learns, numerators = {}, denominators = {}, mode = 0 }
  call.own, call.all = ahead(self, micro, inputs)
  if not call.own then
    if self.count_arguments then -- raises the error on every rank
      for _, args in ipairs(micro) do self.count_arguments(args, learns) end
    end
    return call
  end
  call.totals = {}
  for _, counts in ipairs(call.all) do
    for t, count in ipairs(counts) do call.totals[t] = (call.totals[t] or 0) + count end
  end
  return call
end

--- The factor of a mean, if the mean over micro-batches and ranks depends on it.
local function share(self, call, m, t, whole)
  local total = call.totals[t]
  if total == 0 then return 0 end
  return call.n * (whole and call.all[m][t] or self.axis.size * call.own[m][t]) / total
end

--- The factor of a call's gradients, so that gradients of an update's calls add up.
local function scale(self, call)
  if not call.learns or not self:joins() then return 1 end
  local n = call.totals[1]
  if n > 0 then self.divisor = self.divisor or n end
  return n * self.steps() / (self.divisor or 1)
end

--- The divisor of the sums of a call whose counts arrive late: about a micro-batch's count, the same on all ranks. A collective, once.
local function unit_of(self, count)
  if not self.unit then
    local t = accel.tensor({ math.max(count:item(), 1) }, { dtype = "f64", device = "cpu" })
    if self.axis.size > 1 then dist.all_reduce(t, { op = "max", group = self.axis.group }) end
    self.unit = t:item()
  end
  return self.unit
end

--- Adds to the parts of a call's loss. Nothing waits for the device.
local function note(call, loss, factor)
  local _ <close> = accel.no_grad()
  call.wide = call.wide or loss.dtype == "f64"
  call.numerators[#call.numerators + 1] = loss:detach():to "f64" * factor
end

--- A micro-batch's loss whose count the arguments tell.
local function add_known(self, call, m, terms)
  local list, by_count = {}, scale(self, call)
  call.mode = self.by_micro_batch and 0 or 1
  for t, term in ipairs(terms) do
    local factor, times = share(self, call, m, t, term.whole), by_count
    if self.by_micro_batch then factor, times = t == 1 and call.own[m][1] == 0 and 0 or 1, 1 end
    note(call, term.loss, factor / call.n)
    list[t] = { loss = term.loss, factor = factor * times }
  end
  return list
end

--- A micro-batch's loss with a known count, which may be 0. It is NaN then.
local function add_late(self, call, loss, count)
  local _ <close> = accel.no_grad()
  call.mode, count = 2, count:detach():to "f64"
  note(call, loss:detach():masked_fill(count:eq(0), 0), count)
  call.denominators[#call.denominators + 1] = count
  if not call.learns then return { { loss = loss, factor = 1 } } end
  local divisor = self:joins() and self.divisor or unit_of(self, count)
  if self:joins() then self.divisor = divisor end
  return { { loss = loss, factor = count * (call.n * self.axis.size * self.steps() / divisor) } }
end

--- The loss of a micro-batch, on the last stage: means with the factors of their gradients, which are 0 if nothing counts.
---@param call table
---@param m integer
---@param loss accel.Tensor
---@param args table
---@return {loss: accel.Tensor, factor: number|accel.Tensor}[]
function Means:add(call, m, loss, args)
  local terms = means.of(loss)
  if call.own and terms and #terms == #call.totals then return add_known(self, call, m, terms) end
  local count = means.count(loss) or self.count_arguments and self.count_arguments(args, call.learns)
  if count and not self.by_micro_batch then return add_late(self, call, loss, count) end
  local factor = count and count:ne(0):to(loss.dtype) or 1
  note(call, count and loss:detach():masked_fill(count:eq(0), 0) or loss, 1 / call.n)
  return { { loss = loss, factor = factor } }
end

--- The sums of a call: [numerator, denominator], on the CPU.
local function sums_of(call)
  local out = accel.zeros(2, { dtype = "f64", device = "cpu" })
  for i, list in ipairs { call.numerators, call.denominators } do
    if #list > 0 then out[i]:copy_(accel.stack(list, 1):sum():to "cpu") end
  end
  return out
end

--- The loss of a call, over all ranks that read other data. own: this rank belongs to the last stage. A collective of all ranks of a
--- stage.
local function over_data(self, call, t)
  if call.mode == 0 or self.axis.size == 1 then return t end
  dist.all_reduce(t, { group = self.axis.group })
  return t
end

--- In evaluation, on the ranks of the last stage: the loss of the call. nil if each micro-batch counts alike.
---@return number?
function Means:evaluated(call)
  if call.mode == 0 and not (self.by_micro_batch and call.own) then return nil end
  local t = over_data(self, call, sums_of(call)):tolist()
  if call.mode == 2 then return t[1] / math.max(t[2], 1) end
  return call.mode == 1 and t[1] / self.axis.size or t[1]
end

--- After the last micro-batch of a training call: its loss, on every rank of the pipeline and, if labels are counted, over all data.
---@param call table
---@param axis accel.parallel.Axis of the pipeline
---@param last integer the rank of its last stage
---@return number
function Means:close(call, axis, last)
  local sums = sums_of(call)
  local t = accel.cat({ sums, accel.tensor({ self.unit or 0, call.mode, call.wide and 1 or 0 }, { dtype = "f64", device = "cpu" }) }, 1)
  if axis.size > 1 then dist.broadcast(t, { group_src = last, group = axis.group }) end
  local told = t:tolist()
  call.mode, call.wide = told[4], told[5] == 1
  if absent.simulated and axis.rank ~= last and not self.by_micro_batch then -- unknown: assume a cross entropy, like most losses
    call.mode = call.own and 1 or 2
  end
  self.update.calls = self.update.calls + 1
  sums = over_data(self, call, t:narrow(1, 1, 2):clone()):tolist()
  if call.mode == 2 then
    self.unit, call.count = told[3], sums[2]
    if self:joins() then
      self.divisor = self.divisor or self.unit
    else
      self.counted, self.calls, self.divisor = 0, 0, self.unit
    end
    self.counted, self.calls = self.counted + sums[2], self.calls + 1
    return sums[1] / math.max(sums[2], 1)
  elseif call.mode == 1 then
    call.count = call.totals[1]
    if self:joins() then
      scale(self, call) -- also on ranks that saw no loss
      self.counted, self.calls = self.counted + call.totals[1], self.calls + 1
    end
    return sums[1] / self.axis.size
  end
  return sums[1]
end

local function own_gradients(params)
  local owners = package.loaded["accel.shard.owners"]
  local list = {}
  for _, grad in ipairs((gradients(owners and owners.pieces(params) or params))) do list[#list + 1] = grad or nil end
  return list
end

--- Before a call that adds to existing gradients and divides its own at the end: those existing gradients, replaced by zeros.
---@param params accel.Tensor[]
---@return fun()? adds them again
function Means:set_apart(params)
  if not self.unit or self:joins() then return nil end
  local _ <close> = accel.no_grad()
  local list, kept = own_gradients(params), {}
  for i, grad in ipairs(list) do
    kept[i] = grad:clone()
    grad:zero_()
  end
  return #list > 0 and function()
    local _ <close> = accel.no_grad()
    for i, grad in ipairs(list) do grad:add_(kept[i]) end
  end or nil
end

--- When gradients are complete: divided by the labels of all calls of the update so far. If an update has fewer calls than planned, at
--- the end of a data set, its gradients are scaled down like other losses' gradients.
---@param params accel.Tensor[]
function Means:finish(params)
  local divisor, wanted = self.divisor, self.counted
  if not divisor or wanted == 0 then return end
  if not self.joined then wanted = wanted * self.steps() / self.calls end
  self.divisor = wanted
  self:multiply(params, divisor / wanted)
end

--- Multiplies the gradients of parameters, or of the parts of them that are here.
---@param params accel.Tensor[]
---@param factor number
function Means:multiply(params, factor) -- luacheck: no self
  if factor == 1 then return end
  local _ <close> = accel.no_grad()
  for _, grad in ipairs(own_gradients(params)) do grad:mul_(factor) end
end

--- The loss of a call as a tensor that records further computation, and that has the call's count.
---@param call table
---@param value number
---@return accel.Tensor
function Means:loss(call, value)
  local leaf = accel.tensor(value, { dtype = call.wide and "f64" or "f32", device = "cpu", requires_grad = true })
  self.last = { leaf = leaf, count = call.count, micro_batches = call.n }
  local loss = leaf * 1
  return call.count and means.mark(loss, { { loss = loss, count = accel.tensor(call.count, { dtype = "f64" }) } }) or loss
end

return Means
