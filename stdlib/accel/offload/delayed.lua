--- Delayed parameter update (ZeRO-Offload, Ren et al. 2021): a step hands its gradients to a thread that updates on the host. The next
--- forward and backward compute with the parameters of one update before, and the step after that takes the thread's result. Asked for by
--- nn.parallel.FullyShardedDataParallel(net, { zero_stage = 2, offload = { optimizer = "host", delayed_update = true } }).
---
---   step k:   parameters <- those after update k - 1.   update k begins with the gradients of step k
---
--- Any reader (state_dict, summon_full_params, saves, a forward without gradients) finds all updates completed, so that training
--- continues from the saved state.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local WHO <const> = "offload: delayed_update"

---@class accel.offload.Delayed
---@field engine accel.shard.Engine? whose units have new parameters after an update
local Delayed = class("accel.offload.Delayed")

function Delayed:init() self.jobs, self.running, self.seconds = {}, 0, { busy = 0.0, wait = 0.0 } end

--- Waits for the updates that were begun.
function Delayed:wait()
  if self.running == 0 then return end
  local from = accel.clock()
  while self.running > 0 do
    local ok, answer, message = self.worker:receive(3600)
    if not ok or math.type(answer) ~= "float" then raise("%s: the thread failed: %s", WHO, tostring(message or answer)) end
    self.seconds.busy = self.seconds.busy + answer
    self.running = self.running - 1
  end
  self.fresh = true
  self.seconds.wait = self.seconds.wait + accel.clock() - from
end

--- A number that its owner changes while the thread still reads it: GradScaler:update zeroes the found flag.
local function copy_of(t) return t and accel.unscoped(t.clone, t) end

--- The step of a step group: the updates of the previous step are complete, and this one begins when all parameters are
--- published.
function Delayed:step(optimizer, group, step_group, grads)
  local stepper, name = optimizer:_stepper()
  if not stepper then
    raise("%s: the thread knows the optimizers of accel.optim, not %s", WHO, getmetatable(optimizer).__name)
  end
  self:wait()
  local own = {} -- the step spends its handles
  for i, grad in ipairs(grads) do own[i] = accel.unscoped(grad.detach, grad) end
  local job = { optimizer = name, group = {}, grads = own, lists = { params = step_group.params }, shared = {},
    lr = accel.full({}, group.lr, { dtype = "f64", device = "cpu" }), factor = copy_of(optimizer.inv_scale), skip = copy_of(optimizer.found_inf) }
  for key, value in next, group do job.group[key] = key ~= "params" and value or nil end
  for _, key in ipairs { "step", table.unpack(optimizer.numbers) } do job.shared[key] = step_group[key] end
  for _, key in ipairs(optimizer.buffers) do job.lists[key] = step_group[key] end
  self.stepper, self.jobs[#self.jobs + 1] = stepper, job
end

--- All parameters of earlier updates are published: this step's updates begin.
function Delayed:launch()
  local jobs = self.jobs
  self.jobs, self.fresh = {}, false
  for _, job in ipairs(jobs) do
    self.worker = self.worker or accel.worker.start(self.stepper, {})
    assert(self.worker:send(job))
    self.running = self.running + 1
  end
end

--- All updates are done and published. A collective if ranks share parameters.
function Delayed:flush()
  if self.flushing then return end
  self:wait()
  if not self.fresh then return end
  self.flushing = true
  local ok, err = pcall(self.engine.after_step, self.engine)
  self.flushing, self.fresh = nil, false
  if not ok then error(err, 0) end
end

return Delayed
