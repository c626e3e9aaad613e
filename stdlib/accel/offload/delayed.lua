--- Delayed parameter update (ZeRO-Offload, Ren et al. 2021): a step hands its gradients to a thread that updates on the host, and the next
--- forward and backward compute with the parameters of one update before; the step after that takes what the thread made. Asked for by
--- nn.parallel.FullyShardedDataParallel(net, { zero_stage = 2, offload = { optimizer = "host", delayed_update = true } }).
---
---   step k:   parameters <- those after update k - 1;   update k begins with the gradients of step k
---
--- Whoever looks (state_dict, summon_full_params, saves, a forward without gradients) finds all updates done, so that training goes on
--- from what was saved.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local WHO <const> = "offload: delayed_update"

---@class accel.offload.Delayed
---@field engine accel.shard.Engine? whose units have new parameters behind an update
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

--- A number that its owner changes while the thread still reads it: GradScaler:update zeroes what was found.
local function copy_of(t) return t and accel.unscoped(t.clone, t) end

--- The step of a step group: those of the step before are done, this one begins when all parameters are published.
function Delayed:step(optimizer, group, step_group, grads)
  local name = getmetatable(optimizer).__name:match "[^.]*$"
  if rawget(accel.optim, name) ~= getmetatable(optimizer) and accel.optim[name] ~= getmetatable(optimizer) then
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
  self.jobs[#self.jobs + 1] = job
end

--- All parameters of the updates before are published: those of this step begin.
function Delayed:launch()
  local jobs = self.jobs
  self.jobs, self.fresh = {}, false
  for _, job in ipairs(jobs) do
    self.worker = self.worker or accel.worker.start("accel.offload.stepper", {})
    assert(self.worker:send(job))
    self.running = self.running + 1
  end
end

--- All updates are done and published. A collective where ranks share parameters.
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
