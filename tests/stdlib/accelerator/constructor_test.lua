-- accel.Accelerator's table: every key, what it means, and what is said of wrong ones.
--   accel-run tests/stdlib/accelerator/constructor_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A = accel.accelerator

local function reset()
  A.PartialState._reset_state()
  A.AcceleratorState._reset_state()
end

--- The Accelerator of a table of options, in a process that has none.
local function make(opts)
  reset()
  return accel.Accelerator(opts)
end

local function refused(part, opts)
  reset()
  ranks.fails(part, accel.Accelerator, opts)
end

do -- defaults
  local a = make()
  assert(a.device_placement == true and a.mixed_precision == "no" and a.gradient_accumulation_steps == 1)
  assert(a.split_batches == false and a.even_batches == true and a.dispatch_batches == nil)
  assert(a.use_seedable_sampler == false and a.non_blocking == false and a.step_scheduler_with_optimizer == true)
  assert(a.num_processes == 1 and a.process_index == 0 and a.local_process_index == 0 and a.device == "cpu")
  assert(a.is_main_process and a.is_local_main_process and a.is_last_process and a.use_distributed == false)
  assert(a.distributed_type == "NO" and a.sync_gradients == true and a.scaler == nil and a.project_dir == nil)
  assert(a.step_unit == "update" and a.rng_types[1] == "generator" and #a.rng_types == 1)
  assert(tostring(a):find("process 0 of 1", 1, true), tostring(a))
  assert(a.config.num_processes == 1 and a.config:origin "num_processes" == "default", "without a launcher")
end

do -- what may be set
  local a = make { gradient_accumulation_steps = 3 }
  assert(a.gradient_accumulation_steps == 3 and a.gradient_state.num_steps == 3)
  a.gradient_accumulation_steps = 5
  assert(a.gradient_accumulation_steps == 5 and a.gradient_accumulation_plugin.num_steps == 5)
  a.sync_gradients = false
  assert(a.gradient_state.sync_gradients == false)
  a.even_batches = false
  assert(a.dataloader_config.even_batches == false)
  assert(not pcall(function() a.even_batches = 1 end))
  assert(not pcall(function() a.process_index = 1 end), "process_index can be set")
  assert(not pcall(function() a.gradient_accumulation_steps = 0 end))
end

do -- configurations and handlers
  local a = make {
    dataloader_config = A.DataLoaderConfiguration { split_batches = true, even_batches = false, dispatch_batches = false },
    project_config = A.ProjectConfiguration { project_dir = "runs" },
    gradient_accumulation_plugin = A.GradientAccumulationPlugin { num_steps = 2, sync_with_dataloader = false },
    kwargs_handlers = { A.GradScalerKwargs { init_scale = 1024 }, A.AutocastKwargs { enabled = false } },
    mixed_precision = "fp16", rng_types = { "torch" }, step_unit = "process",
  }
  assert(a.split_batches and not a.even_batches and a.dispatch_batches == false)
  assert(a.project_dir == "runs" and a.logging_dir == "runs" and a.save_iteration == 0)
  assert(a.gradient_accumulation_steps == 2 and a.gradient_state.sync_with_dataloader == false)
  assert(a.scaler:get_scale() == 1024 and a.autocast_handler.enabled == false and a.step_unit == "process")
  assert(make({ split_batches = true }).split_batches == true, "split_batches has no effect")
  assert(make({ project_dir = "here" }).logging_dir == "here")
  assert(make({ mixed_precision = "fp16" }).scaler:get_scale() == 65536)
end

-- wrong ones
refused("did you mean 'mixed_precision'", { mixed_precison = "fp16" })
refused("no, fp16, bf16", { mixed_precision = "fp8x" })
refused("gradient_accumulation_steps must be a positive integer", { gradient_accumulation_steps = 0 })
refused("not both", { gradient_accumulation_steps = 2, gradient_accumulation_plugin = A.GradientAccumulationPlugin { num_steps = 2 } })
refused("must be a DataLoaderConfiguration", { dataloader_config = { split_batches = true } })
refused("differs from dataloader_config.split_batches", { split_batches = true, dataloader_config = A.DataLoaderConfiguration {} })
refused("two GradScalerKwargs", { kwargs_handlers = { A.GradScalerKwargs {}, A.GradScalerKwargs {} } })
refused("kwargs_handlers[1] must be a handler", { kwargs_handlers = { 3 } })
refused("step_unit must be one of update, process", { step_unit = "steps" })
refused("not in accel yet", { torch_tp_plugin = "inductor" })
refused("backend must be one of", { dynamo_backend = "indctor" })
refused("unknown tracker 'wandbb'; did you mean 'wandb'?", { log_with = "wandbb" })
assert(make { dynamo_backend = "no" })

do -- another precision later is a mistake
  local first = make { mixed_precision = "bf16" }
  assert(first.mixed_precision == "bf16" and accel.Accelerator().mixed_precision == "bf16")
  ranks.fails("bf16", accel.Accelerator, { mixed_precision = "fp16" })
end

do -- what is not there says so
  local a = make()
  ranks.fails("not in accel yet", function() a:lomo_backward() end)
end

do -- the environment
  local _ <close> = A.patch_environment { accelerate_gradient_accumulation_steps = 4, ACCELERATE_MIXED_PRECISION = "bf16" }
  local a = make { gradient_accumulation_steps = 2 }
  assert(a.gradient_accumulation_steps == 4 and a.mixed_precision == "bf16")
end
assert(make().gradient_accumulation_steps == 1)
