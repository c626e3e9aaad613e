--- swa_utils.update_bn: statistics of batch normalisation for averaged weights.
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- Batches of a loader, of a function that returns them one by one, or of a list.
local function batches(loader)
  if type(loader) == "table" and getmetatable(loader) == nil then
    local i = 0
    return function()
      i = i + 1
      return loader[i]
    end
  end
  if type(loader) == "function" then return loader end
  local next_, state, first = loader()
  return function()
    local batch = next_(state, first)
    first = batch
    return batch
  end
end

--- Computes the running means and variances of all BatchNorm layers anew, from one pass over a loader with the present weights: a plain mean over
--- batches. Averaged models need it, because their layers have seen no batch. The loader returns inputs, or batches whose first entry is the
--- input. The model stays in its mode, train or eval.
--- example: local net = accel.nn.BatchNorm1d(1) accel.optim.swa_utils.update_bn({ accel.tensor { { 1.0 }, { 3.0 } } }, net)
---   return net.running_mean, net.running_var --> { 2 }, { 2 }
---@param loader accel.data.DataLoader|function|table
---@param model accel.nn.Module
---@param device? string the inputs move there
return function(loader, model, device, ...)
  check.surplus("update_bn", ...)
  if not Module.is_module(model) then raise("update_bn: %s", Module.not_a_module(model)) end
  local layers, momenta = {}, {}
  for m in model:modules() do
    if m.reset_running_stats and m.running_mean then
      layers[#layers + 1] = m
      momenta[m] = m.momentum or false
      m:reset_running_stats()
      m.momentum = nil
    end
  end
  if #layers == 0 then return end
  local training = model.training
  local back <close> = setmetatable({}, { __close = function() -- luacheck: ignore back
    for _, m in ipairs(layers) do m.momentum = momenta[m] or nil end
    model:train(training)
  end })
  model:train()
  local _ <close> = accel.no_grad()
  for batch in batches(loader) do
    if type(batch) == "table" then batch = batch[1] end
    if not tensors.is_tensor(batch) then raise("update_bn: a batch must be a tensor or a list that begins with one, got %s", check.shown(batch)) end
    model(device and batch:to(device) or batch)
  end
end
