--- MegatronLMDummyScheduler: the schedule that a MegatronLMPlugin describes, of learning rate and weight decay.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "MegatronLMDummyScheduler"

--- The schedule of accel.Accelerator { megatron_lm_plugin = ... }. The rate rises from 0 over the warm-up and falls to min_lr by
--- lr_decay_style ("constant", "linear", "cosine", "inverse-square-root"). Weight decay goes from start_weight_decay to end_weight_decay by
--- weight_decay_incr_style ("constant", "linear", "cosine"), if these are given. Arguments fill the values that the plugin leaves out. The
--- plugin's train_iters take precedence over total_num_steps, and these over its train_samples. A step is an applied update. prepare
--- divides counts in samples by the samples of an update.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 1 })
---   local s = accel.accelerator.MegatronLMDummyScheduler(o, 10, 2) s:step() return s:get_last_lr() --> { 0.5 }
---@class accel.accelerator.MegatronLMDummyScheduler : accel.optim.LRScheduler
local Schedule = LRScheduler:extend "accel.accelerator.MegatronLMDummyScheduler"
M.MegatronLMDummyScheduler = Schedule

---@param optimizer accel.optim.Optimizer
---@param total_num_steps? integer until the rate is lowest. nil: the plugin's train_iters
---@param warmup_num_steps? integer 0
function Schedule:init(optimizer, total_num_steps, warmup_num_steps)
  if total_num_steps ~= nil then check.positive(WHO, "total_num_steps", total_num_steps) end
  self.total, self.warmup = total_num_steps, check.count(WHO, "warmup_num_steps", warmup_num_steps or 0)
  self.style, self.least, self.decay_style = "linear", 0, "constant"
  LRScheduler.init(self, optimizer)
end

--- How far between warm-up and end: 0 .. 1.
local function share(step, first, last)
  if last <= first then return 1 end
  return math.min(1, math.max(0, (step - first) / (last - first)))
end

--- The learning rate after so many steps.
---@param step integer
---@param base number
---@return number
function Schedule:rate(step, base)
  local warmup, total = self.warmup, self.total or math.huge
  if warmup > 0 and step <= warmup then return base * step / warmup end
  if self.style == "constant" then return base end
  if step > total then return self.least end
  if self.style == "inverse-square-root" then
    local first = math.max(warmup, 1)
    return math.max(self.least, base * math.sqrt(first) / math.sqrt(math.max(step, 1)))
  end
  local x = total == math.huge and 0 or share(step, warmup, total)
  local left = self.style == "cosine" and 0.5 * (math.cos(math.pi * x) + 1) or 1 - x
  return self.least + left * (base - self.least)
end

--- Weight decay after so many steps. nil if the plugin sets none.
---@param step integer
---@return number?
function Schedule:weight_decay(step)
  local first, last = self.first_decay, self.last_decay
  if last == nil then return nil end
  if self.decay_style == "constant" or first == nil then return last end
  local x = share(step, 0, self.total or 0)
  if self.decay_style == "cosine" then x = 0.5 * (math.cos(math.pi * (1 - x)) + 1) end
  return first + x * (last - first)
end

--- Rates and weight decay of all groups.
function Schedule:_apply(...)
  LRScheduler._apply(self, ...)
  local decay = self:weight_decay(self.last_epoch)
  for _, group in ipairs(decay and self.optimizer.param_groups or {}) do
    if group.weight_decay ~= 0 or group.decays then group.weight_decay, group.decays = decay, true end
  end
end

--- Updates until the rate is least: the plugin's lr_decay_*, its train_iters, the schedule's own, the plugin's train_samples, in this order
--- (of Megatron). Warns of the values that lose.
function Schedule:_length(plugin, steps)
  local of_data = plugin.megatron_dataset_flag -- MegatronLMDummyDataLoader takes train_*
  local train = steps(plugin.train_iters, plugin.train_samples, "train")
  local list = {
    { "MegatronLMPlugin", plugin.lr_decay_iters and "lr_decay_iters" or "lr_decay_samples",
      steps(plugin.lr_decay_iters, plugin.lr_decay_samples, "lr_decay") },
    { "MegatronLMPlugin", "train_iters", plugin.train_iters and train, of_data },
    { WHO, "total_num_steps", self.total },
    { "MegatronLMPlugin", "train_samples", plugin.train_samples and train, of_data },
  }
  local winner
  for _, row in ipairs(list) do
    if row[3] and winner and not row[4] and row[3] ~= winner[3] then
      no_effect.once(row[1], row[2], "on the schedule beside " .. winner[2])
    end
    winner = winner or row[3] and row
  end
  return winner and winner[3]
end

--- Takes over the plugin's settings. prepare calls it.
---@param plugin accel.accelerator.MegatronLMPlugin
---@param samples integer? of an update
function Schedule:configure(plugin, samples)
  local function steps(iters, given, name)
    if iters ~= nil and given ~= nil then raise("MegatronLMPlugin: give %s_iters or %s_samples, not both", name, name) end
    if given ~= nil and not samples then raise("MegatronLMPlugin: %s_samples needs a prepared loader with a batch size", name) end
    return iters or given and given // samples
  end
  self.total = self:_length(plugin, steps)
  local warmup = steps(plugin.lr_warmup_iters, plugin.lr_warmup_samples, "lr_warmup")
  if plugin.lr_warmup_fraction then
    if warmup then raise "MegatronLMPlugin: give lr_warmup_fraction or a number, not both" end
    if not self.total then raise "MegatronLMPlugin: lr_warmup_fraction needs lr_decay_iters or train_iters" end
    warmup = math.floor(plugin.lr_warmup_fraction * self.total)
  end
  if warmup and self.warmup > 0 then no_effect.once(WHO, "warmup_num_steps", "beside the warm-up of the plugin") end
  self.warmup, self.least = warmup or self.warmup, plugin.min_lr
  self.style = check.word("MegatronLMPlugin", "lr_decay_style", plugin.lr_decay_style,
    { "constant", "linear", "cosine", "inverse-square-root" })
  self.decay_style = check.word("MegatronLMPlugin", "weight_decay_incr_style", plugin.weight_decay_incr_style,
    { "constant", "linear", "cosine" })
  self.first_decay, self.last_decay = plugin.start_weight_decay, plugin.end_weight_decay
  if self.decay_style ~= "constant" and (self.first_decay == nil or self.last_decay == nil) then
    raise("MegatronLMPlugin: weight_decay_incr_style '%s' needs start_weight_decay and end_weight_decay", self.decay_style)
  end
  self:_apply()
end

return M
