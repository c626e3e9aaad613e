-- The resolved configuration of an Accelerator: values with their origins, never changed; and what changes, which has one
-- owner. On 1, 2 and 4 ranks.
--   accel-run tests/stdlib/accelerator/config_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A = accel.accelerator

if ranks.start { 1, 2, 4 } then return end
local P, same, says = ranks.size, ranks.same, ranks.fails

local function make(opts)
  A.AcceleratorState._reset_state(true)
  return accel.Accelerator(opts)
end

--- Checks values and origins of some settings.
local function check(config, want)
  for name, pair in accel.pairs(want) do same({ config[name], config:origin(name) }, pair, name) end
end

do -- defaults
  local config = make().config
  check(config, {
    device_placement = { true, "default" }, step_unit = { "update", "default" }, mixed_precision = { "no", "default" },
    gradient_accumulation_steps = { 1, "default" }, even_batches = { true, "default" },
    rng_types = { { "generator" }, "default" }, num_processes = { P, P > 1 and "launcher" or "default" }, device = { "cpu", "default" },
  })
  assert(config.dispatch_batches == nil and config:origin "dispatch_batches" == "default")
  case "settings and their origins"
  assert(config.autocast_handler == nil and config:origin "autocast_handler" == "default")
end

do -- arguments, records, handlers
  local config = make({
    cpu = true, mixed_precision = "bf16", gradient_accumulation_steps = 3, step_unit = "process", project_dir = "runs",
    dataloader_config = A.DataLoaderConfiguration { split_batches = true, data_seed = 5 },
    kwargs_handlers = { A.AutocastKwargs { enabled = false } }, rng_types = { "torch" },
  }).config
  check(config, {
    mixed_precision = { "bf16", "argument" }, gradient_accumulation_steps = { 3, "argument" },
    step_unit = { "process", "argument" }, split_batches = { true, "dataloader_config" },
    data_seed = { 5, "dataloader_config" }, even_batches = { true, "default" },
    rng_types = { { "torch" }, "argument" }, device = { "cpu", "argument" },
  })
  assert(config.autocast_handler.enabled == false and config:origin "autocast_handler" == "kwargs_handlers")
  check(make({ split_batches = true }).config, { split_batches = { true, "argument" } })
  check(make({ project_config = A.ProjectConfiguration("runs", { total_limit = 2 }) }).config, {
    total_limit = { 2, "project_config" },
  })
  check(make({ gradient_accumulation_plugin = A.GradientAccumulationPlugin { num_steps = 4, sync_each_batch = true } })
    .config, {
    gradient_accumulation_steps = { 4, "gradient_accumulation_plugin" }, sync_with_dataloader = { true, "default" },
    sync_each_batch = { true, "gradient_accumulation_plugin" },
  })
end

do -- the environment, and the first Accelerator
  local _ <close> = A.patch_environment {
    ACCELERATE_GRADIENT_ACCUMULATION_STEPS = 4, ACCELERATE_MIXED_PRECISION = "fp16", ACCELERATE_USE_CPU = 1,
  }
  check(make({ gradient_accumulation_steps = 2 }).config, {
    gradient_accumulation_steps = { 4, "ACCELERATE_GRADIENT_ACCUMULATION_STEPS" },
    mixed_precision = { "fp16", "ACCELERATE_MIXED_PRECISION" }, device = { "cpu", "ACCELERATE_USE_CPU" },
  })
  check(accel.Accelerator().config, { mixed_precision = { "fp16", "first Accelerator" } })
end

do -- what the project's record changes as a run goes on is not here; its origin is
  local a = make { project_dir = "runs" }
  local config = a.config
  assert(config:origin "project_dir" == "argument" and config:origin "iteration" == "default")
  assert(make({ project_config = A.ProjectConfiguration("runs") }).config:origin "project_dir" == "project_config")
  local both = make { project_dir = "runs", project_config = A.ProjectConfiguration { total_limit = 2 } }
  assert(both.config:origin "project_dir" == "argument" and both.config:origin "total_limit" == "project_config")
  a.project_configuration:set_directories "elsewhere"
  a.project_configuration.iteration = 7
  assert(a.project_dir == "elsewhere" and a.save_iteration == 7)
  says("read accelerator.project_dir", function() return config.project_dir end)
  says("read accelerator.logging_dir", function() return config.logging_dir end)
  says("read accelerator.save_iteration", function() return config.iteration end)
  for name in pairs(config) do assert(name ~= "iteration" and name ~= "project_dir" and name ~= "logging_dir") end
  assert(("\n" .. tostring(config)):find("\nproject_dir = <see accelerator.project_dir>  (argument)\n", 1, true))
end

do -- it is a list of what holds, and cannot be changed
  local a = make { gradient_accumulation_steps = 2 }
  local config, seen = a.config, {}
  for name, value in pairs(config) do seen[name] = value end
  assert(seen.gradient_accumulation_steps == 2 and seen.device == "cpu" and seen.num_processes == P)
  local text = "\n" .. tostring(config) .. "\n"
  for _, line in ipairs { "gradient_accumulation_steps = 2  (argument)", "even_batches = true  (default)",
    "rng_types = { 'generator' }  (default)", "dispatch_batches = nil  (default)" } do
    assert(text:find("\n" .. line .. "\n", 1, true), line .. text)
  end
  says("config: step_unit cannot be set", function() config.step_unit = "process" end)
  says("config: mine cannot be set", function() config.mine = 1 end)
  says("did you mean 'even_batches'?", config.origin, config, "even_batchs")
  for _, name in ipairs { "device", "num_processes", "mixed_precision", "step_unit", "device_placement", "rng_types",
    "config", "process_index", "trackers", "log_with", "_models", "gradient_accumulation_plugin" } do
    if name ~= "config" then says(name .. " cannot be set", function() a[name] = 1 end) end
  end
  a.gradient_accumulation_steps, a.even_batches = 5, false
  assert(config.gradient_accumulation_steps == 2 and config.even_batches == true, "as it was resolved")
end

do -- one count of micro-steps, whoever sets it; what scripts gave stays theirs
  local plugin, loaders = A.GradientAccumulationPlugin(2), A.DataLoaderConfiguration {}
  local a = make { gradient_accumulation_plugin = plugin, dataloader_config = loaders }
  local state = a.gradient_state
  local function all(n)
    assert(a.gradient_accumulation_steps == n and state.num_steps == n and a.gradient_accumulation_plugin.num_steps == n)
    local flags = {}
    state.step = 0
    for k = 1, 2 * n do a:accumulate(function() flags[k] = state.sync_gradients end) end
    for k = 1, 2 * n do assert(flags[k] == (k % n == 0), ("%d of %d"):format(k, n)) end
  end
  all(2)
  a.gradient_accumulation_steps = 3
  all(3)
  state.num_steps = 4
  all(4)
  a.gradient_accumulation_plugin.num_steps = 5
  all(5)
  state.sync_with_dataloader = false
  assert(a.gradient_accumulation_plugin.sync_with_dataloader == false)
  a.even_batches = false
  assert(plugin.num_steps == 2 and plugin.sync_with_dataloader and loaders.even_batches, "the script's own records")
  local b = accel.Accelerator { gradient_accumulation_plugin = plugin, dataloader_config = loaders }
  assert(b.gradient_accumulation_steps == 2 and b.even_batches, "two Accelerators of one record")
end

do -- one registry of what was prepared
  local a = make()
  local net = accel.nn.Linear(2, 1)
  local optimizer = accel.optim.SGD(net:parameters())
  local m, o = a:prepare(net, optimizer)
  assert(a._models[1] == m and a._optimizers[1] == o and #a._schedulers == 0 and #a._dataloaders == 0)
  assert(a:prepare(net) == m and a:prepare(optimizer) == o and #a._models == 1)
  a:free_memory()
  assert(#a._models == 0 and #a._optimizers == 0)
end
