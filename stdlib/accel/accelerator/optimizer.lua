--- AcceleratedOptimizer: an optimizer whose steps belong to the updates of an Accelerator. It stands in the place of
--- the real one: every field and method that it lacks is read from that.
local accel = require "accel"
local check = require "accel.util.check"
local checkpoint_folder = require "accel.accelerator.checkpoint_folder"
local class = require "accel.util.class"
local deferred = require "accel.nn.deferred"
local foreign = require "accel.accelerator.foreign"
local low_memory = require "accel.accelerator.low_memory"
local options = require "accel.util.options"
local proxy = require "accel.util.proxy"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local StepCounts = require "accel.accelerator.step_counts"

--- The prepared form of an optimizer. step and zero_grad do nothing while gradients accumulate. With loss scaling, a
--- step whose own gradients are infinite or NaN is skipped, independently of other optimizers.
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
  rawset(self, "_groups", foreign.divides(o.accelerator) and 0 or #optimizer.param_groups)
end

proxy(AcceleratedOptimizer, "optimizer")

local field = AcceleratedOptimizer.__index
function AcceleratedOptimizer.__index(self, key)
  if StepCounts.names[key] then return rawget(self, "_counts"):get(key) end
  return field(self, key)
end

--- Warns if gradients came from loss:backward() instead of accelerator:backward(loss).
local function check_backward(self, update, scaler)
  local steps = self.gradient_state.num_steps
  if steps == 1 and not scaler then return end
  if not (update.stepped[self] or next(update.stepped) == nil) then return end -- another optimizer stepped before
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      if p.grad then
        return self.accelerator:_warn(("optimizer:step(): accelerator:backward(loss) was not called before it, so "
          .. "gradients are not %s; loss:backward() does not do that"):format(scaler and "scaled"
          or ("divided by gradient_accumulation_steps, %d"):format(steps)))
      end
    end
  end
end

--- Groups added since the last step must hold only parameters of prepared models. If ranks divide models, this applies to groups from
--- before the first step as well.
local function check_groups(self)
  local real, seen = self.optimizer, rawget(self, "_groups")
  if #real.param_groups == seen then return end
  rawset(self, "_groups", #real.param_groups)
  if seen == 0 or foreign.counts(self.accelerator) then foreign.check(self.accelerator, real, "optimizer:step()", nil, seen + 1) end
end

--- The parameters of all groups. For sharded ones the parameters themselves, which are the same on all ranks, not this
--- rank's shards.
function AcceleratedOptimizer:_parameters()
  local cut, list = self._sharding, {}
  local parts = cut and require("accel.shard.owners").engine_of or {}
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do list[#list + 1] = not parts[p] and p or nil end
  end
  return cut and table.move(cut.params, 1, #cut.params, #list + 1, list) or list
end

--- Steps, unless gradients still accumulate, the backward has stepped (under DeepSpeed) or, with loss scaling, are not finite. See
--- step_was_skipped.
---@param closure? fun(): any computes the loss and its gradients, with accelerator:backward. Not available with loss scaling
---@return any the closure's result
function AcceleratedOptimizer:step(closure, ...)
  check.surplus("AcceleratedOptimizer:step", ...)
  if not self.gradient_state.sync_gradients then return nil end
  local random = self.gradient_state.random
  if random then random:leave() end
  check_groups(self)
  if self.accelerator._checkpointing.entering then checkpoint_folder.enter(self.accelerator, "optimizer:step()") end
  local engine = rawget(self.accelerator, "_deepspeed")
  if engine and not closure and engine:made_update(self) then return nil end
  local elastic = rawget(self.accelerator, "_elastic")
  if elastic then
    if closure then raise "step: takes no closure in an elastic job, whose ranks vote before an optimizer steps" end
    if not elastic:may_step() then return nil end
  end
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
  if update.consumed then low_memory.changed(self.accelerator, update, real) end
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
        .. "of the loss scale, which has fallen to %g; check the loss"):format(MANY, scaler:get_scale()))
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

--- For recorded steps (accel.graph): counts n steps that did not pass through step().
function AcceleratedOptimizer:_count_steps(n)
  if self.gradient_state.random then self.gradient_state.random:leave(true) end
  self._counts:replayed(n)
end

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
