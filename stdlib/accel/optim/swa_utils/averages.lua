--- swa_utils: rules of averages. An avg_fn(average, current, n) returns the new average of one tensor after n averaged ones. A
--- multi_avg_fn(averages, currents, n) writes into lists of tensors of one device and dtype. They run without gradients.
local accel = require "accel"
local check = require "accel.util.check"
local tensors = require "accel.util.tensors"

local M = {}

--- Averages that move from each average to its current tensor by a weight. Integers (counters of batches) are rounded down.
local function moved(averages, currents, weight)
  if #averages == 0 then return end
  if tensors.is_floating(averages[1].dtype) then
    accel.foreach_lerp_(averages, currents, weight)
    return
  end
  for i, average in ipairs(averages) do average:copy_(average + (currents[i] - average) * weight) end
end

--- The exponential moving average of lists of tensors: decay * average + (1 - decay) * current.
--- example: local a = accel.ones(1) accel.optim.swa_utils.get_ema_multi_avg_fn(0.5)({ a }, { accel.zeros(1) }, 1) return a --> { 0.5 }
---@param decay? number [0.999]
---@return fun(averages: accel.Tensor[], currents: accel.Tensor[], n: integer)
function M.get_ema_multi_avg_fn(decay, ...)
  check.surplus("get_ema_multi_avg_fn", ...)
  decay = check.number("get_ema_multi_avg_fn", "decay", decay == nil and 0.999 or decay, 0, 1)
  return function(averages, currents) moved(averages, currents, 1 - decay) end
end

--- The mean of all models, of lists of tensors (stochastic weight averaging).
--- example: local a = accel.ones(1) accel.optim.swa_utils.get_swa_multi_avg_fn()({ a }, { accel.zeros(1) }, 3) return a --> { 0.75 }
---@return fun(averages: accel.Tensor[], currents: accel.Tensor[], n: integer)
function M.get_swa_multi_avg_fn(...)
  check.surplus("get_swa_multi_avg_fn", ...)
  return function(averages, currents, n) moved(averages, currents, 1 / (n + 1)) end
end

--- The exponential moving average of one tensor.
--- example: accel.optim.swa_utils.get_ema_avg_fn(0.5)(accel.ones(1), accel.zeros(1), 1) --> { 0.5 }
---@param decay? number [0.999]
---@return fun(average: accel.Tensor, current: accel.Tensor, n: integer): accel.Tensor
function M.get_ema_avg_fn(decay, ...)
  check.surplus("get_ema_avg_fn", ...)
  decay = check.number("get_ema_avg_fn", "decay", decay == nil and 0.999 or decay, 0, 1)
  return function(average, current) return average * decay + current * (1 - decay) end
end

--- The mean of all models, of one tensor.
--- example: accel.optim.swa_utils.get_swa_avg_fn()(accel.ones(1), accel.zeros(1), 3) --> { 0.75 }
---@return fun(average: accel.Tensor, current: accel.Tensor, n: integer): accel.Tensor
function M.get_swa_avg_fn(...)
  check.surplus("get_swa_avg_fn", ...)
  return function(average, current, n) return average + (current - average) / (n + 1) end
end

return M
