--- AcceleratedScheduler: a schedule that counts applied updates, not calls and not ranks. It stands in the place of the
--- real one: every field and method that it lacks is read from that.
local check = require "accel.util.check"
local class = require "accel.util.class"
local options = require "accel.util.options"
local proxy = require "accel.util.proxy"
local raise = require "accel.util.raise"

--- The prepared form of a schedule. step() advances it by one if its optimizer's update was applied. It does nothing
--- while gradients accumulate, and after steps that were all skipped for an overflow. An Accelerator with step_unit =
--- "process" advances it by num_processes (by one with split_batches), as Accelerate does: schedules are then as long
--- as one process alone would make them. Past a schedule's total_steps nothing is added. Schedules that follow a metric
--- take every one that is given while gradients do not accumulate, once.
--- example: local a, w = accel.Accelerator(), accel.ones(1, { requires_grad = true })
---   local o = accel.optim.SGD({ w }, { lr = 1 }) local s = accel.optim.lr_scheduler.StepLR(o, 1, 0.5)
---   o, s = a:prepare(o, s) a:backward(w:sum()) o:step() s:step() a.sync_gradients = false s:step()
---   return s:get_last_lr(), s.last_epoch --> { 0.5 }, 1
---@class accel.accelerator.AcceleratedScheduler : accel.optim.LRScheduler
---@field scheduler accel.optim.LRScheduler the real one
---@field skipped integer calls that advanced nothing, since their update was left out
local AcceleratedScheduler = class("accel.accelerator.AcceleratedScheduler")

---@param scheduler accel.optim.LRScheduler
---@param opts {accelerator: accel.Accelerator, optimizers: accel.accelerator.AcceleratedOptimizer[],
--- step_with_optimizer: boolean?, split_batches: boolean?}
function AcceleratedScheduler:init(scheduler, opts)
  if type(scheduler) ~= "table" or type(scheduler.step) ~= "function" then
    raise("AcceleratedScheduler: expected a schedule, got %s", check.shown(scheduler))
  end
  local o = options("AcceleratedScheduler", opts, {
    accelerator = options.none, optimizers = {}, step_with_optimizer = true, split_batches = false,
  })
  if o.accelerator == nil then raise "AcceleratedScheduler: needs the accelerator" end
  rawset(self, "scheduler", scheduler)
  rawset(self, "step_with_optimizer", o.step_with_optimizer)
  rawset(self, "gradient_state", o.accelerator.gradient_state)
  rawset(self, "accelerator", o.accelerator)
  local by_process = o.accelerator.step_unit == "process" and not o.split_batches and not scheduler.metric_driven
  rawset(self, "units", by_process and o.accelerator.num_processes or 1)
  rawset(self, "skipped", 0)
  self:_follow(o.optimizers)
end

--- Counts the updates of these optimizers from now on.
---@param optimizers accel.accelerator.AcceleratedOptimizer[]
function AcceleratedScheduler:_follow(optimizers)
  local seen = {} -- steps that each optimizer had made at the last call
  for i, optimizer in ipairs(optimizers) do seen[i] = optimizer.applied end
  rawset(self, "optimizers", optimizers)
  rawset(self, "seen", seen)
end

proxy(AcceleratedScheduler, "scheduler")

--- Whether every optimizer has applied an update since the last call or, without a step since, its last one.
local function updated(self)
  local all = true
  for i, optimizer in ipairs(self.optimizers) do
    if optimizer.applied == self.seen[i] and optimizer.step_was_skipped then all = false end
    self.seen[i] = optimizer.applied
  end
  return all
end

--- On to the rates of the next update.
---@param ... any the metric, for ReduceLROnPlateau
function AcceleratedScheduler:step(...)
  local real = self.scheduler
  local engine = rawget(self.accelerator, "_deepspeed")
  if engine and engine.schedules[real] then return nil end -- it advances with the update itself
  if not self.step_with_optimizer then return real:step(...) end
  if not self.gradient_state.sync_gradients then return end
  if not updated(self) and not real.metric_driven then
    self.skipped = self.skipped + 1
    return
  end
  for _ = 1, self.units do
    local total = real.total_steps
    if total and real.last_epoch >= total then return end
    real:step(...)
  end
end

--- The rates of the current step, one for each group.
---@return number[]
function AcceleratedScheduler:get_lr() return self.scheduler:get_last_lr() end

--- Writes the rates of the current step, one line for each group.
function AcceleratedScheduler:print_lr()
  for i, rate in ipairs(self:get_lr()) do io.write(("group %d: lr %g\n"):format(i, rate)) end
end

function AcceleratedScheduler.__tostring(self)
  local real = self.scheduler
  local rates = {}
  for i, rate in ipairs(real:get_last_lr()) do rates[i] = ("%g"):format(rate) end
  return ("AcceleratedScheduler(%s, last_epoch=%d, lr=%s)"):format(getmetatable(real).__name:match "[^.]*$",
    real.last_epoch or 0, table.concat(rates, ", "))
end

return AcceleratedScheduler
