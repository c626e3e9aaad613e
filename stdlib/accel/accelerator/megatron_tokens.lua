--- calculate_per_token_loss of a MegatronLMPlugin: the loss of an update is the sum over all tokens that count, of all micro-batches and data
--- ranks, over their number; without it the mean of the means of micro-batches. Used by parallelism.lua.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

--- Labels that count of a micro-batch; nil where its arguments have none.
local function count(args, shifts)
  for i = 1, args.n do
    local t = args[i]
    if type(t) == "table" and getmetatable(t) == nil then
      local own = t.shift_labels or t.labels
      if accel.is_tensor(own) and own.ndim == 2 then
        if shifts and not t.shift_labels and not t.loss_mask then own = own:narrow(2, 2, own.shape[2] - 1) end
        return own:ne(-100):sum():to "f64"
      end
    end
  end
end

--- The factor of each micro-batch's mean loss, by which the mean over micro-batches and data ranks becomes that over tokens: tokens of the
--- micro-batch, times micro-batches and ranks, over tokens of all.
---@param model accel.nn.Module
---@param axis accel.parallel.Axis over which gradients are averaged
---@return fun(micro: table[]): number[]
return function(model, axis)
  local config = type(model.config) == "table" and model.config or {}
  local shifts = config.model_type ~= "bert" and config.model_type ~= "t5"
  return function(micro)
    local counts = {}
    for m, args in ipairs(micro) do
      counts[m] = count(args, shifts)
      if not counts[m] then
        raise("MegatronLMPlugin: calculate_per_token_loss counts labels [B, T] among the arguments of %s, and there are none",
          class.of(model).__name)
      end
    end
    local each = accel.stack(counts, 1):to "cpu"
    local all = each:sum():reshape(1)
    if axis.size > 1 then dist.all_reduce(all, { group = axis.group }) end
    return (each * (#micro * axis.size) / all):tolist()
  end
end
