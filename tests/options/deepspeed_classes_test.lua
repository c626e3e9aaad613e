-- Options of accel.deepspeed's classes: each one changes rates, parameters or groups; warns; or raises (support/option_sweep.lua). Keys of
-- configurations: deepspeed_test.lua.
--   accel-run tests/options/deepspeed_classes_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "deepspeed"
local optim = accel.optim

local function sgd() return optim.AdamW({ accel.nn.Parameter(accel.ones(2)) }, { lr = 0.5, betas = { 0.9, 0.99 } }) end
--- Rates and momenta of the first steps.
local function rates(call, given)
  local optimizer, out = given.optimizer, {}
  local schedule = call()
  for i = 1, 30 do
    local group = optimizer.param_groups[1]
    out[i] = { group.lr, group.betas[1] }
    schedule:step()
  end
  return out
end
local D <const> = "accel.deepspeed."
s:recipe(D .. "WarmupLR", {
  base = function() return { optimizer = sgd(), warmup_num_steps = 10 } end, run = rates,
  values = { warmup_min_lr = { 0.1 }, warmup_max_lr = { 0.2 }, warmup_num_steps = { 5 }, warmup_type = { "linear" }, last_batch_iteration = { 3 } },
})
s:recipe(D .. "WarmupDecayLR", {
  base = function() return { optimizer = sgd(), total_num_steps = 25, warmup_num_steps = 10 } end, run = rates,
  values = { total_num_steps = { 20 }, warmup_min_lr = { 0.1 }, warmup_max_lr = { 0.2 }, warmup_num_steps = { 5 }, warmup_type = { "linear" },
    last_batch_iteration = { 3 } },
})
s:recipe(D .. "WarmupCosineLR", {
  base = function() return { optimizer = sgd(), total_num_steps = 25, warmup_num_steps = 10 } end, run = rates,
  values = { total_num_steps = { 20 }, warmup_min_ratio = { 0.1 }, warmup_num_steps = { 5 }, cos_min_ratio = { 0.3 },
    warmup_type = { "linear", "log", any = true },
    last_batch_iteration = { 3 } },
})
s:recipe(D .. "LRRangeTest", {
  base = function() return { optimizer = sgd(), lr_range_test_step_size = 4 } end, run = rates,
  values = { lr_range_test_min_lr = { 0.1 }, lr_range_test_step_size = { 3 }, lr_range_test_step_rate = { 2.0 }, lr_range_test_staircase = { true },
    last_batch_iteration = { 3 } },
})
s:recipe(D .. "OneCycle", {
  base = function()
    return { optimizer = sgd(), cycle_min_lr = 0.1, cycle_max_lr = 0.9, cycle_first_step_size = 4, cycle_second_step_size = 4, decay_lr_rate = 0.1,
      decay_mom_rate = 0.1, decay_step_size = 3 }
  end,
  run = rates,
  values = { cycle_min_lr = { 0.2 }, cycle_max_lr = { 0.8 }, decay_lr_rate = { 0.3 }, cycle_first_step_size = { 6 }, cycle_second_step_size = { 6 },
    cycle_first_stair_count = { 2 }, cycle_second_stair_count = { 2 }, decay_step_size = { 2 }, cycle_momentum = { false }, cycle_min_mom = { 0.7 },
    cycle_max_mom = { 0.95 }, decay_mom_rate = { 0.3 }, last_batch_iteration = { 3 } },
})
s:leave(D .. "DynamicLossScaler", "its argument is the block fp16 of a configuration: deepspeed_test.lua")
s:leave({ D .. "DummyOptim", D .. "DummyScheduler", D .. "GatheredParameters" }, "accel.accelerator's: accelerator_classes_test.lua")
s:leave({ D .. "zero.Init", D .. "zero.cut" }, "tests/stdlib/deepspeed/zero_test.lua")
s:finish()
