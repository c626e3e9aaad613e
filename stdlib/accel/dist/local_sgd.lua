--- LocalSGD: ranks train on their own for some steps, then average their parameters.
local class = require "accel.util.class"
local check = require "accel.util.check"
local coalesce = require "accel.dist.coalesce"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- Local SGD: gradients are not averaged inside the block. After every local_sgd_steps calls of step(), and at its end,
--- each parameter, even a frozen one, becomes the mean over ranks. Buffers and the optimizer's state stay each rank's
--- own. With one rank, or with enabled = false, it has no effect.
---
---   local sgd <close> = dist.LocalSGD { model = model, local_sgd_steps = 8 }
---   for x, y in batches() do ... optimizer:step() optimizer:zero_grad() sgd:step() end
---
--- example: local net = accel.nn.Linear(1, 1) local sgd <close> = accel.dist.LocalSGD { model = net, local_sgd_steps =
---   2 } sgd:step() return sgd.num_steps --> 1
---@class accel.dist.LocalSGD
---@field num_steps integer
local LocalSGD = class("accel.dist.LocalSGD")

---@param opts {model: accel.nn.Module, local_sgd_steps: integer, enabled: boolean?, process_group: any}
function LocalSGD:init(opts)
  local o = options("LocalSGD", opts, {
    model = options.none, local_sgd_steps = options.none, enabled = true, process_group = options.none,
  })
  if type(o.model) ~= "table" or not o.model.parameters then
    raise("LocalSGD: model must be a module, got %s", check.shown(o.model))
  end
  local reducer = rawget(o.model, "reducer")
  if reducer and reducer.units then
    raise "LocalSGD: the model is sharded, so no rank has whole parameters to train; use DistributedDataParallel"
  end
  self.model, self.num_steps = o.model, 0
  self.local_sgd_steps = check.positive("LocalSGD", "local_sgd_steps", o.local_sgd_steps)
  local group = o.process_group
  if group == nil and rawget(o.model, "reducer") then group = o.model.reducer.o.group end -- a wrapper's own
  self.group, self.enabled = group, o.enabled and dist.get_world_size(group) > 1
  if self.enabled and o.model.no_sync then self.quiet = o.model:no_sync() end
end

--- Counts a step of the optimizer. Averages the parameters after the set number of steps.
function LocalSGD:step()
  self.num_steps = self.num_steps + 1
  if self.enabled and self.num_steps % self.local_sgd_steps == 0 then self:average() end
end

--- Replaces every parameter by its mean over the ranks, once all of them are here.
function LocalSGD:average()
  dist.barrier { group = self.group }
  coalesce.mean(self.model:parameters(), self.group)
end

--- Ends the block: a last average. After an error only the mode of the model is restored.
---@param failure any the error that ends the block
function LocalSGD:close(failure)
  local enabled = self.enabled
  self.enabled = false
  if self.quiet then self.quiet:close() end
  if enabled and failure == nil then self:average() end
end

LocalSGD.__close = LocalSGD.close

return LocalSGD
