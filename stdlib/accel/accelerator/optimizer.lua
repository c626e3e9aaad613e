--- AcceleratedOptimizer: an optimizer whose steps belong to the updates of an Accelerator. It stands in the place of
--- the real one: every field and method that it lacks is read from that.
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local deferred = require "accel.optim.deferred"
local options = require "accel.util.options"
local proxy = require "accel.util.proxy"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local StepCounts = require "accel.accelerator.step_counts"

--- What accelerator:prepare makes of an optimizer. step and zero_grad do nothing while gradients accumulate; with loss
--- scaling, a step whose own gradients are infinite or NaN is left out, whatever those of other optimizers are.
--- example: local a, w = accel.Accelerator(), accel.ones(1, { requires_grad = true })
---   local o = a:prepare(accel.optim.SGD({ w }, { lr = 0.5 })) a:backward(w:sum()) a.sync_gradients = false o:step()
---   local before = w:item() a.sync_gradients = true o:step() return before, w:item(), o.applied --> 1, 0.5, 1
---@class accel.accelerator.AcceleratedOptimizer : accel.optim.Optimizer
---@field optimizer accel.optim.Optimizer the real one
---@field step_was_skipped boolean whether the last step was left out
---@field applied integer steps that were made
---@field skipped integer steps that were left out
local AcceleratedOptimizer = class("accel.accelerator.AcceleratedOptimizer")

local MANY <const> = 30 -- halvings that no sound loss needs: 65536 becomes 0.00006

---@param optimizer accel.optim.Optimizer
---@param opts {accelerator: accel.Accelerator}
function AcceleratedOptimizer:init(optimizer, opts)
  if type(optimizer) ~= "table" or type(optimizer.param_groups) ~= "table" then
    raise("AcceleratedOptimizer: expected an optimizer, got %s", check.shown(optimizer))
  end
  local o = options("AcceleratedOptimizer", opts, { accelerator = options.none })
  if o.accelerator == nil then raise "AcceleratedOptimizer: needs the accelerator" end
  rawset(self, "optimizer", optimizer)
  rawset(self, "accelerator", o.accelerator)
  rawset(self, "gradient_state", o.accelerator.gradient_state)
  rawset(self, "_update", o.accelerator._update)
  rawset(self, "_counts", StepCounts())
end

proxy(AcceleratedOptimizer, "optimizer")

local field = AcceleratedOptimizer.__index
function AcceleratedOptimizer.__index(self, key)
  if StepCounts.names[key] then return rawget(self, "_counts"):get(key) end
  return field(self, key)
end

--- Says so where gradients came by loss:backward() that were to come by accelerator:backward(loss).
local function check_backward(self, update, scaler)
  local steps = self.gradient_state.num_steps
  if steps == 1 and not scaler then return end
  if not (update.stepped[self] or next(update.stepped) == nil) then return end -- another optimizer stepped before
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      if p.grad then
        return self.accelerator:_warn(("optimizer:step(): there was no accelerator:backward(loss) before it, so "
          .. "gradients are not %s; loss:backward() does not do that"):format(scaler and "scaled"
          or ("divided by gradient_accumulation_steps, %d"):format(steps)))
      end
    end
  end
end

--- The parameters of all groups; sharded ones themselves, which are the same on all ranks, not this rank's parts.
function AcceleratedOptimizer:_parameters()
  local cut, list = self._sharding, {}
  local parts = cut and require("accel.shard.owners").engine_of or {}
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do list[#list + 1] = not parts[p] and p or nil end
  end
  return cut and table.move(cut.params, 1, #cut.params, #list + 1, list) or list
end

--- Steps, unless gradients still accumulate, the backward has stepped (under DeepSpeed) or, with loss scaling, are not finite; see step_was_skipped.
---@param closure? fun(): any computes the loss and its gradients, with accelerator:backward; not with loss scaling
---@return any what the closure returned
function AcceleratedOptimizer:step(closure)
  if not self.gradient_state.sync_gradients then return nil end
  local engine = rawget(self.accelerator, "_deepspeed")
  if engine and not closure and engine:made_update(self) then return nil end
  local update, real, result = self._update, self.optimizer, nil
  local scaler = update:scaler()
  if update.closed and not closure then check_backward(self, update, scaler) end
  if closure then
    if scaler then raise "step: takes no closure with loss scaling: whether to step is known before it runs" end
    local given = closure
    closure = function()
      local loss = given()
      update:finish(self)
      return loss
    end
  end
  update:finish(self)
  if engine and not closure then engine:clip(self) end
  local parallel = self.accelerator._parallel
  if parallel and parallel.megatron then parallel:clip(self) end
  local found = recording.running and scaler and not engine and not parallel and real.fuses and real:fuses() and scaler:_found(real)
  if found then -- who steps looks there: a step that is recorded is left out by its own kernels
    real.found_inf = found
    result = real:step()
    self._counts:on_device(found)
    recording.count(self)
    update:step(self)
    self.accelerator:_look_at_save()
    return result
  end
  local skip = scaler ~= nil and scaler:_overflowed(real)
  self._counts:on_host(skip)
  if skip then
    if self._counts.host._in_a_row == MANY then
      self.accelerator:_warn(("%d updates in a row were left out: their gradients are infinite or NaN, and not because "
        .. "of the loss scale, which has fallen to %g; look at the loss"):format(MANY, scaler:get_scale()))
    end
    deferred.drop(real)
    accel.step() -- the boundary that the step would have been
  else
    result = real:step(closure)
    if recording.running then recording.count(self) end
  end
  update:step(self)
  if engine then engine:after_step(self, skip) end
  self.accelerator:_look_at_save()
  return result
end

--- For recorded steps (accel.graph): n steps were made that step() knows nothing of.
function AcceleratedOptimizer:_count_steps(n) self._counts:replayed(n) end

--- Drops the gradients, unless they still accumulate.
function AcceleratedOptimizer:zero_grad(...)
  if not self.gradient_state.sync_gradients then return end
  self.optimizer:zero_grad(...)
  self._update:drop(self)
end

--- Schedule-free optimizers: the parameters become those that are trained. Others: nothing.
function AcceleratedOptimizer:train()
  local real = self.optimizer
  if real.train then real:train() end
end

--- Schedule-free optimizers: the parameters become those to evaluate and save. Others: nothing.
function AcceleratedOptimizer:eval()
  local real = self.optimizer
  if real.eval then real:eval() end
end

function AcceleratedOptimizer.__tostring(self) return ("AcceleratedOptimizer(%s)"):format(tostring(self.optimizer)) end

return AcceleratedOptimizer
