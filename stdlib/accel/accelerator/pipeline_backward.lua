--- accelerator:backward of a pipeline's loss. Its gradients exist since the call. This multiplies them by a weight, or by the factor that
--- the script applied to the loss (loss * n), so that they equal the gradients of the same script on one rank. Used by training.lua.
---
--- With factors f (d given / d loss) and weights w of the data ranks, and g the gradient of a call's loss:
---   a mean over the labels of all data ranks      sum over calls of sum(f) g, over sum(w)       without weights: mean(f) g
---   another loss, of n micro-batches, g its mean  sum over calls of n ranks f g, over sum(w)    without weights: f g
--- Gradients of the calls that an update accumulates are one sum, so that all of them have to need the same factor.
local accel = require "accel"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- The pipeline whose loss this is, or is computed of, and the factor.
local function find(self, loss)
  local made = self._parallel:made(loss)
  if made then return made, 1 end
  if not loss.requires_grad or loss:numel() ~= 1 then return nil end
  for _, pipeline in ipairs(self._parallel.pipelines) do
    local call = pipeline._means.last
    local grads = call and accel.grad({ loss }, { call.leaf }, { allow_unused = true, retain_graph = true })
    if grads and grads[1] then return pipeline, grads[1]:item() end
  end
end

--- Sums of factors and weights over the ranks that read other data, and whether these have the same factor.
local function over_data(axis, factor, weight)
  local t = accel.tensor({ factor, weight, factor * factor }, { dtype = "f64", device = "cpu" })
  if axis.size > 1 then dist.all_reduce(t, { group = axis.group }) end
  local factors, weights, squares = table.unpack(t:tolist())
  return factors, weights, squares * axis.size - factors ^ 2 <= 1e-9 * squares * axis.size
end

--- The factor of a call's gradients, without the sum of weights. nil if it has none.
local function factor_of(means, call, factors, same, factor, weighted)
  local ranks, steps = means.axis.size, means.steps()
  if not call.count then
    if not same then
      raise "backward: ranks have different factors on the loss of a pipeline, and its gradients are averaged already; have loss_fn return \z
        the mean of accel.cross_entropy, or a sum, and give its weight"
    end
    return weighted and ranks * call.micro_batches * steps * factor or factor
  end
  if not weighted then factors = factors / ranks / steps end
  if not means:joins() then return factors end
  if call.count > 0 then return factors / call.count end
end

--- Multiplies the gradients of an update that is complete.
local function multiply(means, params, call)
  local update = means.update
  if update.noted ~= update.calls or update.calls > 1 and not call.accumulates then
    raise("backward: only %d of the %d calls of the pipeline in this update had a weight or a factor; treat all alike, inside accumulate()",
      update.noted, update.calls)
  end
  local factor = update.factor or 1
  if call.count and means:joins() then factor = factor * (means.divisor or 1) end
  if update.weighted then
    if update.weights == 0 then return end
    factor = factor / update.weights
  end
  means:multiply(params, factor)
end

--- The backward of a pipeline's loss, or false if the loss is not one. A collective of the data ranks if there is a weight or a
--- factor.
---@param self accel.Accelerator
---@param loss accel.Tensor
---@param opts? table
---@param declared table options of backward
---@return boolean
function M.run(self, loss, opts, declared)
  local pipeline, factor = find(self, loss)
  if not pipeline then return false end
  local o = opts ~= nil and options("backward", opts, declared) or {}
  for _, key in ipairs { "gradient", "inputs", "create_graph" } do
    if o[key] then raise("backward: the gradients of a pipeline's loss exist already; %s comes too late", key) end
  end
  local means = pipeline._means
  local call, update = means.last, means.update
  means.last = nil
  local weighted = o.weight ~= nil
  local accumulates = means.joined or means.steps() > 1
  if not call or not weighted and factor == 1 and not (accumulates and update.noted > 0) then return true end
  local weight = weighted and require("accel.accelerator.update").weight(o.weight) or 0
  local factors, weights, same = over_data(means.axis, factor, weight)
  call.accumulates = accumulates
  local own = factor_of(means, call, factors, same, factor, weighted)
  if own and update.factor and math.abs(own - update.factor) > 1e-6 * math.abs(update.factor) or update.noted > 0 and
    update.weighted ~= weighted then
    raise("backward: calls of a pipeline in one update have different factors (%g and %g), but their gradients are one sum; weigh each by the \z
        number of its labels", update.factor or 1, own or 1)
  end
  update.factor, update.weights, update.weighted, update.noted = own or update.factor, update.weights + weights, weighted, update.noted + 1
  if self.gradient_state.sync_gradients then multiply(means, pipeline:parameters(), call) end
  return true
end

return M
