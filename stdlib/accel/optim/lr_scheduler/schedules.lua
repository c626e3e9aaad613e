--- Transformers' schedules as functions: get_linear_schedule_with_warmup and others. They are those of get_scheduler by other names.
local arguments = require "accel.util.arguments"
local get_scheduler = require "accel.optim.lr_scheduler.get_scheduler"

local M = {}

local warmup, total, last = { "num_warmup_steps" }, { "num_training_steps" }, { "last_epoch", -1 }
local parse = {
  constant = arguments("get_constant_schedule", last),
  warm = arguments("get_constant_schedule_with_warmup", warmup, last),
  linear = arguments("get_linear_schedule_with_warmup", warmup, total, last),
  cosine = arguments("get_cosine_schedule_with_warmup", warmup, total, { "num_cycles", 0.5 }, last),
  restarts = arguments("get_cosine_with_hard_restarts_schedule_with_warmup", warmup, total, { "num_cycles", 1 }, last),
  polynomial = arguments("get_polynomial_decay_schedule_with_warmup", warmup, total, { "lr_end", 1e-7 }, { "power", 1.0 }, last),
  root = arguments("get_inverse_sqrt_schedule", warmup, { "timescale" }, last),
  min_lr = arguments("get_cosine_with_min_lr_schedule_with_warmup", warmup, total, { "num_cycles", 0.5 }, last, { "min_lr" }, { "min_lr_rate" }),
  min_lr_rate = arguments("get_cosine_with_min_lr_schedule_with_warmup_lr_rate", warmup, total, { "num_cycles", 0.5 }, last, { "min_lr" },
    { "min_lr_rate" }, { "warmup_lr_rate" }),
  wsd = arguments("get_wsd_schedule", warmup, { "num_decay_steps" }, total, { "num_stable_steps" }, { "warmup_type", "linear" },
    { "decay_type", "cosine" }, { "min_lr_ratio", 0.0 }, { "num_cycles", 0.5 }, last),
}

--- The initial rate throughout.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   return accel.optim.lr_scheduler.get_constant_schedule(o):get_last_lr() --> { 2 }
---@param optimizer accel.optim.Optimizer
---@param ... any last_epoch = -1, or a table of it
---@return accel.optim.LRScheduler
function M.get_constant_schedule(optimizer, ...) return get_scheduler("constant", optimizer, parse.constant(...)) end

--- From 0 to the initial rate in num_warmup_steps, then constant.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   local s = accel.optim.lr_scheduler.get_constant_schedule_with_warmup(o, 4) s:step() return s:get_last_lr() --> { 0.5 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_constant_schedule_with_warmup(optimizer, ...) return get_scheduler("constant_with_warmup", optimizer, parse.warm(...)) end

--- From 0 to the initial rate in num_warmup_steps, then on a line to 0 at num_training_steps.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   local s = accel.optim.lr_scheduler.get_linear_schedule_with_warmup(o, 0, 4) s:step() return s:get_last_lr() --> { 1.5 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_linear_schedule_with_warmup(optimizer, ...) return get_scheduler("linear", optimizer, parse.linear(...)) end

--- After the warm-up along num_cycles waves of a cosine: half a wave ends at 0.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   local s = accel.optim.lr_scheduler.get_cosine_schedule_with_warmup(o, 0, 2) s:step() return s:get_last_lr() --> { 1 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, num_cycles = 0.5, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_cosine_schedule_with_warmup(optimizer, ...) return get_scheduler("cosine", optimizer, parse.cosine(...)) end

--- After the warm-up num_cycles times from the initial rate to 0 along half a cosine.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 }) local S = accel.optim.lr_scheduler
---   local s = S.get_cosine_with_hard_restarts_schedule_with_warmup(o, 0, 4, 2) s:step() return s:get_last_lr() --> { 1 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, num_cycles = 1, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_cosine_with_hard_restarts_schedule_with_warmup(optimizer, ...)
  return get_scheduler("cosine_with_restarts", optimizer, parse.restarts(...))
end

--- After the warm-up from the initial rate to lr_end along a power of the remaining share.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 }) local S = accel.optim.lr_scheduler
---   local s = S.get_polynomial_decay_schedule_with_warmup(o, 0, 2, { lr_end = 1 }) s:step() return s:get_last_lr() --> { 1.5 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, lr_end = 1e-7, power = 1, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_polynomial_decay_schedule_with_warmup(optimizer, ...) return get_scheduler("polynomial", optimizer, parse.polynomial(...)) end

--- After the warm-up as 1 / sqrt(step), in units of timescale steps (default: those of the warm-up, or 10,000).
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   local s = accel.optim.lr_scheduler.get_inverse_sqrt_schedule(o, 1) for _ = 1, 4 do s:step() end return s:get_last_lr() --> { 1 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, timescale, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_inverse_sqrt_schedule(optimizer, ...) return get_scheduler("inverse_sqrt", optimizer, parse.root(...)) end

--- As get_cosine_schedule_with_warmup, down to min_lr, or to min_lr_rate times the initial rate.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 }) local S = accel.optim.lr_scheduler
---   local s = S.get_cosine_with_min_lr_schedule_with_warmup(o, 0, 2, { min_lr = 1 }) s:step() return s:get_last_lr() --> { 1.5 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, num_cycles = 0.5, last_epoch = -1, min_lr, min_lr_rate, or a table of them
---@return accel.optim.LRScheduler
function M.get_cosine_with_min_lr_schedule_with_warmup(optimizer, ...)
  return get_scheduler("cosine_with_min_lr", optimizer, parse.min_lr(...))
end

--- The same with a warm-up that counts from 1, or from warmup_lr_rate times the initial rate.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 }) local S = accel.optim.lr_scheduler
---   local s = S.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(o, 4, 8, { min_lr = 1 }) return s:get_last_lr() --> { 0.5 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_training_steps, num_cycles = 0.5, last_epoch = -1, min_lr, min_lr_rate, warmup_lr_rate, or a table
---@return accel.optim.LRScheduler
function M.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(optimizer, ...)
  return get_scheduler("cosine_warmup_with_min_lr", optimizer, parse.min_lr_rate(...))
end

--- Warm-up, constant, and a fall in num_decay_steps (WSD). Give num_training_steps or num_stable_steps. warmup_type and decay_type:
--- "linear", "cosine" or "1-sqrt".
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   local s = accel.optim.lr_scheduler.get_wsd_schedule(o, 2, 2, 6) s:step() return s:get_last_lr() --> { 1 }
---@param optimizer accel.optim.Optimizer
---@param ... any num_warmup_steps, num_decay_steps, num_training_steps, num_stable_steps, warmup_type = "linear", decay_type = "cosine",
---  min_lr_ratio = 0, num_cycles = 0.5, last_epoch = -1, or a table of them
---@return accel.optim.LRScheduler
function M.get_wsd_schedule(optimizer, ...) return get_scheduler("warmup_stable_decay", optimizer, parse.wsd(...)) end

--- ReduceLROnPlateau with its options in a table.
--- example: local o = accel.optim.SGD(accel.ones(1), { lr = 2 })
---   return accel.optim.lr_scheduler.get_reduce_on_plateau_schedule(o, { patience = 3 }):get_last_lr() --> { 2 }
---@param optimizer accel.optim.Optimizer
---@param opts? table of ReduceLROnPlateau
---@return accel.optim.LRScheduler
function M.get_reduce_on_plateau_schedule(optimizer, opts, ...) return get_scheduler("reduce_lr_on_plateau", optimizer, opts, ...) end

return M
