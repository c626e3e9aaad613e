-- Kwargs handlers, configurations, plugins of absent features, and what is read from the environment.
--   accel-run tests/stdlib/accelerator/settings_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, same = accel.accelerator, ranks.same

local function says(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  assert(tostring(err):find("settings_test.lua:%d+: "), "no line of the script: " .. tostring(err))
end

do -- to_kwargs: only what differs from the defaults
  local Mock = A.KwargsHandler:extend("Mock")
  Mock.defaults = { a = 0, b = false, c = 3.0 }
  same(Mock():to_kwargs(), {}, "defaults")
  same(Mock { a = 2 }:to_kwargs(), { a = 2 }, "one")
  same(Mock { a = 2, b = true }:to_kwargs(), { a = 2, b = true }, "two")
  same(Mock { a = 2, c = 2.25 }:to_kwargs(), { a = 2, c = 2.25 }, "a float")
  says("unknown option 'd'", Mock, { d = 1 })
end

local handlers = { "AutocastKwargs", "DistributedDataParallelKwargs", "GradScalerKwargs", "InitProcessGroupKwargs",
  "ProfileKwargs" }
for _, name in ipairs(handlers) do
  same(A[name]():to_kwargs(), {}, name)
  assert(accel.util.class.isinstance(A[name](), A.KwargsHandler), name)
end

do -- what they hold
  local scaler = A.GradScalerKwargs { init_scale = 1024, growth_factor = 2 }
  assert(scaler.init_scale == 1024 and scaler.growth_factor == 2 and scaler.backoff_factor == 0.5
    and scaler.growth_interval == 2000 and scaler.enabled == true)
  same(scaler:to_kwargs(), { init_scale = 1024 }, "scaler")
  local ddp = A.DistributedDataParallelKwargs {
    bucket_cap_mb = 15, find_unused_parameters = true, comm_hook = "power_sgd", comm_wrapper = "bf16",
    comm_state_option = { matrix_approximation_rank = 2 }, deterministic = "world",
  }
  assert(ddp.comm_state_option.matrix_approximation_rank == 2 and ddp.static_graph == false)
  for _, hook in ipairs { "no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8", "int4" } do
    for _, wrapper in ipairs { "no", "fp16", "bf16" } do
      A.DistributedDataParallelKwargs { comm_hook = hook, comm_wrapper = wrapper }
    end
  end
  local first, second = A.DistributedDataParallelKwargs(), A.DistributedDataParallelKwargs()
  first.comm_state_option.x = 1
  assert(second.comm_state_option.x == nil, "a default is shared")
  same(second:to_kwargs(), {}, "after a change of another")
  assert(A.InitProcessGroupKwargs { timeout = 5400 }.timeout == 5400)
  local profile = A.ProfileKwargs { activities = { "cpu" }, schedule_option = { wait = 1, ["repeat"] = 2 } }
  assert(profile.schedule_option["repeat"] == 2)
end

-- what is wrong is told, with what to say instead
says("did you mean 'init_scale'?", A.GradScalerKwargs, { init_scal = 1 })
says("growth_factor must be a finite number above 1", A.GradScalerKwargs, { growth_factor = 1 })
says("backoff_factor must lie between 0 and 1", A.GradScalerKwargs, { backoff_factor = 1 })
says("init_scale must be a finite number above 0", A.GradScalerKwargs, { init_scale = -1 })
says("growth_interval must be a positive integer", A.GradScalerKwargs, { growth_interval = 0 })
says("enabled' must be a boolean", A.GradScalerKwargs, { enabled = 1 })
says("comm_hook must be one of no, fp16", A.DistributedDataParallelKwargs, { comm_hook = "fp32" })
says("deterministic must be one of world", A.DistributedDataParallelKwargs, { deterministic = "yes" })
says("bucket_cap_mb must be at least 0", A.DistributedDataParallelKwargs, { bucket_cap_mb = -1 })
says("init_method must be 'env://'", A.InitProcessGroupKwargs, { init_method = "tcp://localhost:1" })
says("timeout must be a finite number above 0", A.InitProcessGroupKwargs, { timeout = 0 })
says("activities[1] must be one of cpu", A.ProfileKwargs, { activities = { "gpu" } })
says("did you mean 'warmup'?", A.ProfileKwargs, { schedule_option = { warmupp = 1 } })
says("expected one table of settings", A.AutocastKwargs, true)
says("has no field 'enable'; did you mean 'enabled'?", function() A.AutocastKwargs().enable = true end)

do -- configurations
  local c = A.DataLoaderConfiguration()
  assert(c.split_batches == false and c.dispatch_batches == nil and c.even_batches == true
    and c.use_seedable_sampler == false and c.data_seed == nil and c.non_blocking == false
    and c.use_stateful_dataloader == false)
  c.dispatch_batches, c._mine = true, 1
  says("did you mean 'even_batches'?", A.DataLoaderConfiguration, { even_batchs = true })
  says("did you mean 'even_batches'?", function() c.even_batchs = false end)
  says("dispatch_batches must be a boolean", A.DataLoaderConfiguration, { dispatch_batches = 1 })
  says("data_seed must be an integer", A.DataLoaderConfiguration, { data_seed = 0.5 })
  local p = A.ProjectConfiguration { project_dir = "run" }
  assert(p.project_dir == "run" and p.logging_dir == "run" and p.iteration == 0 and p.total_limit == nil)
  p:set_directories "other"
  assert(p.project_dir == "other" and p.logging_dir == "run", "the logging directory stays")
  assert(A.ProjectConfiguration("a", "b").logging_dir == "b")
  assert(A.ProjectConfiguration().logging_dir == nil)
  says("total_limit must be a positive integer", A.ProjectConfiguration, { total_limit = 0 })
  says("project_dir is given twice", A.ProjectConfiguration, "a", { project_dir = "b" })
  local g = A.GradientAccumulationPlugin { num_steps = 3, sync_each_batch = true }
  assert(g.num_steps == 3 and g.adjust_scheduler and g.sync_with_dataloader and g.sync_each_batch)
  assert(A.GradientAccumulationPlugin(2, { sync_with_dataloader = false }).num_steps == 2)
  says("num_steps is missing", A.GradientAccumulationPlugin)
  says("num_steps must be a positive integer", A.GradientAccumulationPlugin, 0)
end

for _, name in ipairs { "TorchTensorParallelPlugin", "MegatronEngine" } do
  says("is not in accel yet", function() return A[name] {} end)
  says(name, function() return A[name] end)
end

do -- environment
  for _, word in ipairs { "y", "Yes", "t", "TRUE", "on", "1" } do assert(A.str_to_bool(word) == true, word) end
  for _, word in ipairs { "n", "no", "F", "false", "OFF", "0" } do assert(A.str_to_bool(word) == false, word) end
  says("'maybe' is not a truth value", A.str_to_bool, "maybe")
  local flag = A.parse_flag_from_env
  assert(flag "ACCEL_TEST_FLAG" == false and flag("ACCEL_TEST_FLAG", true) == true)
  do
    local _ <close> = A.patch_environment { accel_test_flag = true, number = 7 }
    assert(flag "ACCEL_TEST_FLAG" and A.get_int_from_env({ "NUMBER" }, 1) == 7, "names in upper case, values as text")
    do
      local _ <close> = A.patch_environment { Number = -1, other = 2 }
      assert(A.get_int_from_env({ "NUMBER", "OTHER" }, 1) == 2, "the first that is not negative")
      assert(flag "ACCEL_TEST_FLAG", "the outer one holds inside")
      A.clear_environment(function()
        assert(not flag "ACCEL_TEST_FLAG" and A.get_int_from_env({ "NUMBER", "OTHER" }, 5) == 5)
      end)
    end
    assert(A.get_int_from_env({ "NUMBER" }, 1) == 7, "restored")
  end
  assert(not flag "ACCEL_TEST_FLAG", "restored")
  pcall(A.patch_environment, { accel_test_flag = 1 }, error, "inside")
  assert(not flag "ACCEL_TEST_FLAG", "restored after an error")
  A.patch_environment({ accel_test_flag = "perhaps" }, function()
    says("ACCEL_TEST_FLAG=perhaps in the environment", flag, "ACCEL_TEST_FLAG")
  end)
  A.patch_environment({ number = "many" }, function() says("NUMBER=many", A.get_int_from_env, { "NUMBER" }, 1) end)
  assert(A.purge_accelerate_environment(function(x, y) return x + y end)(1, 2) == 3)
end
