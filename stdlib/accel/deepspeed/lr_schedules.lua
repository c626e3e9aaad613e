--- The schedules of DeepSpeed configurations: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest, with DeepSpeed's
--- numbers. A rate belongs to the number of steps taken. DeepSpeed counts from -1, so that after n steps its iteration is n -
--- 1: the first two updates of a logarithmic warm-up have the rate warmup_min_lr.
local LRScheduler = require "accel.optim.lr_scheduler.scheduler"
local arguments = require "accel.util.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- A number for all groups, or one for each.
local function of_group(who, name, value, group)
  if type(value) ~= "table" then return value end
  if value[group] == nil then raise("%s: %s has %d values, there is a parameter group %d", who, name, #value, group) end
  return value[group]
end

--- Checks and keeps the options of a schedule, and sets its first rates.
local function begin(self, optimizer, o)
  self.options = o
  LRScheduler.init(self, optimizer, o.last_batch_iteration)
end

local function warm_up_of(who, o)
  check.positive(who, "warmup_num_steps", o.warmup_num_steps)
  check.word(who, "warmup_type", o.warmup_type, { "log", "linear" })
  o.warmup_num_steps = math.max(2, o.warmup_num_steps)
end

--- How far the warm-up is at an iteration before its end: from 0 to 1.
local function warmed(o, iteration)
  if o.warmup_type == "linear" then return iteration / o.warmup_num_steps end
  return math.log(iteration + 1) / math.log(o.warmup_num_steps)
end

--- WarmupLR(optimizer, warmup_min_lr = 0, warmup_max_lr = the group's lr, warmup_num_steps = 1000, warmup_type = "log"): from the
--- least rate to the largest, by the logarithm of the step or linearly, and constant then.
--- example: local o = accel.optim.SGD(accel.ones(1)) local s = accel.deepspeed.WarmupLR(o, 0, 0.5, 4) for _ = 1, 3 do
---   s:step() end return o.param_groups[1].lr --> 0.39624
---@class accel.deepspeed.WarmupLR : accel.optim.LRScheduler
local WarmupLR = LRScheduler:extend "accel.deepspeed.WarmupLR"
M.WarmupLR = WarmupLR

local warmup = arguments("WarmupLR", { "warmup_min_lr", 0.0, any = true }, { "warmup_max_lr" }, { "warmup_num_steps", 1000 },
  { "warmup_type", "log" }, { "last_batch_iteration", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type, last_batch_iteration, or a table of them
function WarmupLR:init(optimizer, ...)
  local o = warmup(...)
  warm_up_of("WarmupLR", o)
  begin(self, optimizer, o)
end

--- The share of the way from the least rate to the largest after the warm-up.
function WarmupLR:after_warmup() return 1.0 end -- luacheck: ignore self

--- See LRScheduler:rate.
---@param step integer steps taken
---@param base number the initial learning rate of the group
---@param group table parameter group
function WarmupLR:rate(step, base, group)
  local o, iteration = self.options, step - 1
  local low = of_group("WarmupLR", "warmup_min_lr", o.warmup_min_lr, group)
  if iteration < 0 then return low end
  local high = o.warmup_max_lr == nil and base or of_group("WarmupLR", "warmup_max_lr", o.warmup_max_lr, group)
  local gamma = iteration < o.warmup_num_steps and warmed(o, iteration) or self:after_warmup(iteration)
  return low + (high - low) * gamma
end

--- WarmupDecayLR(optimizer, total_num_steps, warmup_min_lr = 0, warmup_max_lr = 0.001, warmup_num_steps = 1000, warmup_type =
--- "log"): WarmupLR, then linearly down to the least rate at total_num_steps.
--- example: local o = accel.optim.SGD(accel.ones(1)) local s = accel.deepspeed.WarmupDecayLR(o, 4, 0, 1, 2) for _ = 1, 4 do
---   s:step() end return o.param_groups[1].lr --> 0.5
---@class accel.deepspeed.WarmupDecayLR : accel.deepspeed.WarmupLR
local WarmupDecayLR = WarmupLR:extend "accel.deepspeed.WarmupDecayLR"
M.WarmupDecayLR = WarmupDecayLR

local decay = arguments("WarmupDecayLR", { "total_num_steps" }, { "warmup_min_lr", 0.0, any = true },
  { "warmup_max_lr", 0.001, any = true }, { "warmup_num_steps", 1000 }, { "warmup_type", "log" }, { "last_batch_iteration", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any total_num_steps, then as WarmupLR
function WarmupDecayLR:init(optimizer, ...)
  local o = decay(...)
  check.positive("WarmupDecayLR", "total_num_steps", o.total_num_steps)
  warm_up_of("WarmupDecayLR", o)
  begin(self, optimizer, o)
end

function WarmupDecayLR:after_warmup(iteration)
  local o = self.options
  return math.max(0.0, (o.total_num_steps - iteration) / math.max(1.0, o.total_num_steps - o.warmup_num_steps))
end

--- WarmupCosineLR(optimizer, total_num_steps, warmup_min_ratio = 0, warmup_num_steps = 1000, cos_min_ratio = 0.0001, warmup_type =
--- "log"): shares of each group's own rate: a warm-up from warmup_min_ratio to 1, then half a cosine down to cos_min_ratio.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 1 }) local s = accel.deepspeed.WarmupCosineLR(o, 6, 0, 2, 0.5)
---   for _ = 1, 4 do s:step() end return o.param_groups[1].lr --> 0.75
---@class accel.deepspeed.WarmupCosineLR : accel.optim.LRScheduler
local WarmupCosineLR = LRScheduler:extend "accel.deepspeed.WarmupCosineLR"
M.WarmupCosineLR = WarmupCosineLR

local cosine = arguments("WarmupCosineLR", { "total_num_steps" }, { "warmup_min_ratio", 0.0 }, { "warmup_num_steps", 1000 },
  { "cos_min_ratio", 0.0001 }, { "warmup_type", "log" }, { "last_batch_iteration", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any total_num_steps, warmup_min_ratio, warmup_num_steps, cos_min_ratio, warmup_type, or a table of them
function WarmupCosineLR:init(optimizer, ...)
  local o = cosine(...)
  check.positive("WarmupCosineLR", "total_num_steps", o.total_num_steps)
  warm_up_of("WarmupCosineLR", o)
  begin(self, optimizer, o)
end

--- See LRScheduler:rate.
---@param step integer steps taken
---@param base number the initial learning rate of the group
function WarmupCosineLR:rate(step, base)
  local o, iteration = self.options, step - 1
  if iteration < 0 then return 0.0 end
  if iteration < o.warmup_num_steps then
    return base * (o.warmup_min_ratio + (1 - o.warmup_min_ratio) * warmed(o, iteration))
  end
  local progress = math.min(1.0, (iteration - o.warmup_num_steps + 1) / math.max(1, o.total_num_steps - o.warmup_num_steps))
  return base * math.max(0.0, o.cos_min_ratio + (1 - o.cos_min_ratio) * (1 + math.cos(math.pi * progress)) / 2)
end

--- OneCycle(optimizer, cycle_min_lr, cycle_max_lr, { ... }): up and down once, the first momentum against it, then down by
--- decay_lr_rate every decay_step_size steps. Options: decay_lr_rate = 0, cycle_first_step_size = 2000, cycle_second_step_size,
--- cycle_first_stair_count = 0, cycle_second_stair_count, decay_step_size = 0, cycle_momentum = true, cycle_min_mom = 0.8,
--- cycle_max_mom = 0.9, decay_mom_rate = 0.
--- example: local o = accel.optim.Adam(accel.ones(1)) local s = accel.deepspeed.OneCycle(o, 0.1, 0.5, { cycle_first_step_size = 2 })
---   s:step() return o.param_groups[1].lr --> 0.3
---@class accel.deepspeed.OneCycle : accel.optim.LRScheduler
local OneCycle = LRScheduler:extend "accel.deepspeed.OneCycle"
M.OneCycle = OneCycle

local one_cycle = arguments("OneCycle", { "cycle_min_lr" }, { "cycle_max_lr" }, { "decay_lr_rate", 0.0 },
  { "cycle_first_step_size", 2000 }, { "cycle_second_step_size" }, { "cycle_first_stair_count", 0 }, { "cycle_second_stair_count" },
  { "decay_step_size", 0 }, { "cycle_momentum", true }, { "cycle_min_mom", 0.8, any = true }, { "cycle_max_mom", 0.9, any = true },
  { "decay_mom_rate", 0.0 }, { "last_batch_iteration", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any cycle_min_lr, cycle_max_lr, ..., or a table of them
function OneCycle:init(optimizer, ...)
  local o = one_cycle(...)
  if o.cycle_min_lr == nil or o.cycle_max_lr == nil then raise "OneCycle: needs cycle_min_lr and cycle_max_lr" end
  check.positive("OneCycle", "cycle_first_step_size", o.cycle_first_step_size)
  o.cycle_second_step_size = check.count("OneCycle", "cycle_second_step_size", o.cycle_second_step_size or o.cycle_first_step_size)
  o.cycle_second_stair_count = o.cycle_second_stair_count or o.cycle_first_stair_count
  self.total_size = o.cycle_first_step_size + o.cycle_second_step_size
  begin(self, optimizer, o)
end

--- How high the cycle is at a number of batches: from 0 to 1.
---@param batches integer batches since the start
function OneCycle:height(batches)
  local o, total = self.options, self.total_size
  local at, first = batches % total, o.cycle_first_step_size
  local rises = at <= first
  local count = rises and o.cycle_first_stair_count or o.cycle_second_stair_count
  local share = rises and at / first or (total - at) / o.cycle_second_step_size
  if count > 0 then
    share = math.floor((rises and at * count / first) or (total - at) * count / o.cycle_second_step_size) / count
  end
  return share
end

--- The value of a number after the cycle. nil within it.
local function decayed(self, iteration)
  local o = self.options
  if iteration < self.total_size then return nil end
  return o.decay_step_size > 0 and (iteration - self.total_size + 1) / o.decay_step_size or 0
end

--- See LRScheduler:rate.
---@param step integer steps taken
---@param group table parameter group
function OneCycle:rate(step, _, group)
  local o = self.options
  local low = of_group("OneCycle", "cycle_min_lr", o.cycle_min_lr, group)
  if step == 0 then return low end
  local interval = decayed(self, step - 1)
  if interval then return low / (1 + o.decay_lr_rate * interval) end
  return low + (of_group("OneCycle", "cycle_max_lr", o.cycle_max_lr, group) - low) * self:height(step)
end

--- See LRScheduler:momentum.
---@param step integer steps taken
---@param group table parameter group
function OneCycle:momentum(step, group)
  local o, at = self.options, self.optimizer.param_groups[group]
  if not o.cycle_momentum or at.betas == nil then return nil end
  local low = of_group("OneCycle", "cycle_min_mom", o.cycle_min_mom, group)
  if step == 0 then return low end
  local high, interval = of_group("OneCycle", "cycle_max_mom", o.cycle_max_mom, group), decayed(self, step - 1)
  if interval then return high * (1 + o.decay_mom_rate * interval) end
  return high - (high - low) * self:height(step)
end

--- The second beta is 0.99 while the first one moves, as DeepSpeed has it.
function OneCycle:_apply()
  LRScheduler._apply(self)
  for _, group in ipairs(self.options.cycle_momentum and self.optimizer.param_groups or {}) do
    if group.betas then group.betas = { group.betas[1], 0.99 } end
  end
end

--- LRRangeTest(optimizer, lr_range_test_min_lr = 0.001, lr_range_test_step_size = 2000, lr_range_test_step_rate = 1,
--- lr_range_test_staircase = false): a rate that only grows, to find the one at which a model begins to diverge.
--- example: local o = accel.optim.SGD(accel.ones(1)) local s = accel.deepspeed.LRRangeTest(o, 0.1, 2) s:step() s:step()
---   return o.param_groups[1].lr --> 0.2
---@class accel.deepspeed.LRRangeTest : accel.optim.LRScheduler
local LRRangeTest = LRScheduler:extend "accel.deepspeed.LRRangeTest"
M.LRRangeTest = LRRangeTest

local range = arguments("LRRangeTest", { "lr_range_test_min_lr", 1e-3, any = true }, { "lr_range_test_step_size", 2000 },
  { "lr_range_test_step_rate", 1.0 }, { "lr_range_test_staircase", false }, { "last_batch_iteration", -1 })

---@param optimizer accel.optim.Optimizer
---@param ... any lr_range_test_min_lr, ..., or a table of them
function LRRangeTest:init(optimizer, ...)
  local o = range(...)
  check.positive("LRRangeTest", "lr_range_test_step_size", o.lr_range_test_step_size)
  begin(self, optimizer, o)
end

--- See LRScheduler:rate.
---@param step integer steps taken
---@param group table parameter group
function LRRangeTest:rate(step, _, group)
  local o = self.options
  local interval = step / o.lr_range_test_step_size
  if o.lr_range_test_staircase then interval = math.floor(interval) end
  return of_group("LRRangeTest", "lr_range_test_min_lr", o.lr_range_test_min_lr, group)
    * (1 + o.lr_range_test_step_rate * interval)
end

return M
