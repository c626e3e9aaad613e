-- What the Accelerator says about mistakes that a script ported from Python makes: a dot for a colon, `with` without
-- <close>, a loader without brackets or under ipairs, two values where one table is meant, misspelt names and
-- options. Each is an error at the script's line, on one rank as on several; the script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/mistakes_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim, data = accel.nn, accel.optim, accel.data

if ranks.start { 1, 2 } then return end

--- fn must raise at this file, with all the pieces in one line.
local function says(fn, ...)
  local ok, message = pcall(fn)
  assert(not ok, "no error, expected: " .. table.concat({ ... }, " "))
  message = tostring(type(message) == "table" and message.message or message)
  assert(message:find("mistakes_test.lua:%d+: "), "no line of the script: " .. message)
  assert(not message:find "\n", "more than a line: " .. message)
  for _, piece in ipairs { ... } do
    assert(message:find(piece, 1, true), ("'%s' is not in: %s"):format(piece, message))
  end
end

local function parts(opts, n)
  local a, model = accel.Accelerator(opts or {}), nn.Linear(1, 1)
  local x = accel.arange(n or 8):to "f32":view(-1, 1)
  return a, a:prepare(model, optim.SGD(model:parameters(), { lr = 0.1 }),
    data.DataLoader(data.TensorDataset(x, x), { batch_size = 1 }))
end

do -- a micro-step whose block nothing ends
  local a, model, optimizer, loader = parts { gradient_accumulation_steps = 2 }
  local k = 0
  says(function()
    for batch in loader() do
      k = k + 1
      a:accumulate(model)
      a:backward(model(batch[1]):sum())
      optimizer:step()
      optimizer:zero_grad()
    end
  end, "accumulate", "<close>")
  assert(k == 2, "told at the next micro-step")
  for batch in loader() do -- the error has closed it
    local _ <close> = a:accumulate(model)
    a:backward(model(batch[1]):sum())
    optimizer:step()
    optimizer:zero_grad()
  end
  local quiet = 0
  for batch in loader() do -- nor with one inside another
    local _ <close> = a:accumulate(model)
    if not a.sync_gradients then quiet = quiet + 1 end
    for inner in a:prepare(data.DataLoader(data.TensorDataset(batch[1]), { batch_size = 1 }))() do
      local _ <close> = a:accumulate(model)
      a:backward(model(inner[1]):sum())
    end
    if a.num_processes > 1 and quiet == 1 then assert(model.require_backward_grad_sync == false, "the outer block") end
    optimizer:zero_grad()
  end
  local abandoned = coroutine.wrap(function()
    for batch in loader() do
      local _ <close> = a:accumulate(model)
      a:backward(model(batch[1]):sum())
      coroutine.yield()
    end
  end)
  abandoned()
  for batch in loader() do -- nothing is wrong with this loop
    local _ <close> = a:accumulate(model)
    a:backward(model(batch[1]):sum())
    optimizer:step()
    optimizer:zero_grad()
  end
  local w = a:gather(model.weight:detach():view(1))
  assert(w:eq(w[1]):all():item(), "all ranks have the same weights")
  says(function() a:accumulate "model" end, "accumulate: expected a model, got 'model'")
  says(function() a:no_sync() end, "no_sync: expected a model, got nil")
  local one, two = a:accumulate(model, function() return 1, 2 end)
  assert(one == 1 and two == 2)
end

do -- a dot
  local a, model, optimizer = parts()
  says(function() a.prepare(model, optimizer) end, "write accelerator:prepare(...), with a colon")
  says(function() a.prepare(model) end, "with a colon")
  says(function() a.accumulate(model) end, "with a colon")
  says(function() a.backward(model(accel.ones(1, 1)):sum()) end, "write accelerator:backward(...), with a colon")
  says(function() a.print "x" end, "write accelerator:print(...), with a colon")
end

do -- loops
  local a, _, _, loader = parts()
  local plain = data.DataLoader(data.TensorDataset(accel.arange(3)), { batch_size = 1 })
  for _, each in ipairs { loader, plain } do
    says(function() for _ in each do end end, "for batch in loader() do", "parentheses")
    says(function() for _ in ipairs(each) do end end, "for batch in loader() do", "parentheses")
  end
  says(function()
    for batch in loader() do a:gather_for_metrics(batch[1], batch[2]) end
  end, "takes one value", "{ predictions, targets }")
end

do -- names
  local a = parts()
  says(function() if a.is_main_proces then print() end end, "no field 'is_main_proces'", "did you mean 'is_main_process'?")
  says(function() a:gather_for_metric(1) end, "did you mean 'gather_for_metrics'?")
  says(function() a:clip_grad_norm() end, "did you mean 'clip_grad_norm_'?")
  assert(a.scaler == nil and a.ddp_handler == nil and a.of_this_script == nil)
  a.best_accuracy = 1
  assert(a.best_accuracy == 1)
  says(function() return accel.DistributedType.MULTICPU end, "did you mean 'MULTI_CPU'?")
  assert(a.distributed_type == accel.DistributedType[a.num_processes > 1 and "MULTI_CPU" or "NO"])
  for _, hook in ipairs { "NO", "FP16", "BF16", "POWER_SGD", "BATCHED_POWER_SGD", "INT8", "INT4" } do
    accel.DistributedDataParallelKwargs { comm_hook = accel.DDPCommunicationHookType[hook] }
  end
end

do -- options of the constructor
  local make = accel.Accelerator
  says(function() make { even_batches = false } end, "dataloader_config = accel.DataLoaderConfiguration { even_batches")
  says(function() make { logging_dir = "logs" } end, "project_config", "ProjectConfiguration { logging_dir = 'logs' }")
  says(function() make { sync_each_batch = true } end, "GradientAccumulationPlugin { sync_each_batch = true }")
  says(function() make { dataloader_config = { split_batches = true } } end, "accel.DataLoaderConfiguration {")
  says(function() make { kwargs_handlers = { accel.GradScalerKwargs } } end, "GradScalerKwargs { ... }")
  says(function() make { rng_types = { "torhc" } } end, "did you mean 'torch'?")
  says(function() make { rng_types = "torch" } end, "must be a list")
end

do -- options of methods
  local a, model, optimizer = parts()
  says(function() a:autocast { enable = false } end, "did you mean 'enabled'?")
  says(function() a:autocast "fp16" end, "autocast: expected an AutocastKwargs", "'fp16'")
  says(function() a:prepare(model, { device_placment = { true } }) end, "did you mean 'device_placement'?")
  assert(a:prepare(model, { 1 }) == model and select("#", a:prepare(model, nil, optimizer)) == 3)
  says(function() a:on_process(print, { proces_index = 0 }) end, "did you mean 'process_index'?")
  assert((a:on_process(function() return 7 end, { process_index = 0 })() == 7) == a.is_main_process)
  says(function() accel.get_logger("x", { loglevel = "DEBUG" }) end, "did you mean 'log_level'?")
  assert(accel.get_logger("quiet", { log_level = "ERROR" }):is_enabled_for "INFO" == false)
  local sgd <close> = accel.LocalSGD(a, model, 3)
  assert(sgd.local_sgd_steps == 3)
  local find = accel.find_executable_batch_size(function(n) return n end, 16)
  assert(find() == 16)
end

do -- loss:backward() where accelerator:backward(loss) was meant: said once, by the main process
  local a, model, optimizer, loader = parts { gradient_accumulation_steps = 2 }
  local said = {}
  function a:_warn(text) said[text] = true end
  for batch in loader() do
    local _ <close> = a:accumulate(model)
    model(batch[1]):sum():backward()
    optimizer:step()
    optimizer:zero_grad()
  end
  local text, more = next(said)
  assert(text and text:find("accelerator:backward(loss)", 1, true) and next(said, text) == nil, tostring(more))
  said = {}
  for batch in loader() do
    local _ <close> = a:accumulate(model)
    a:backward(model(batch[1]):sum())
    optimizer:step()
    optimizer:zero_grad()
  end
  assert(next(said) == nil)
end

do -- trackers: a class is none; init_trackers takes its arguments by name, too
  local Kept = accel.accelerator.GeneralTracker:extend "Kept"
  Kept.name, Kept.requires_logging_directory, Kept.main_process_only = "kept", false, false
  function Kept:tracker() return self end
  function Kept:store_init_configuration(values) self.config = values end
  says(function() accel.Accelerator { log_with = Kept } end, "the class Kept", "Kept(...)")
  says(function() accel.Accelerator { log_with = { Kept } } end, "the class Kept")
  for _, config in ipairs { { lr = 1 }, { config = { lr = 1 } } } do
    local kept = Kept()
    accel.Accelerator { log_with = kept }:init_trackers("run", config)
    assert(kept.config.lr == 1 and next(kept.config, "lr") == nil)
  end
  local kept = Kept()
  accel.Accelerator { log_with = kept }:init_trackers("run", { config = "base.json", lr = 1 })
  assert(kept.config.config == "base.json")
end

do -- ranks that prepare different things
  local a, net = accel.Accelerator {}, nn.Linear(1, 1)
  local sgd = optim.SGD(net:parameters(), { lr = 0.1 })
  if ranks.size > 1 then
    says(function() a:prepare(sgd, ranks.rank == 0 and net or nil) end, "the ranks have different objects", "rank 0 has model",
      "call it on all of them")
  end
end

do -- gradients that no loss scale can mend
  accel.accelerator.AcceleratorState._reset_state()
  local a, model, optimizer, loader = parts({ mixed_precision = "fp16" }, 80)
  local said = 0
  function a:_warn(text) said = said + (text:find("30 updates in a row were left out", 1, true) and 1 or 0) end
  for batch in loader() do
    local _ <close> = a:accumulate(model)
    a:backward(model(batch[1]):sum() * (0 / 0))
    optimizer:step()
    optimizer:zero_grad()
  end
  assert(said == 1 and optimizer.skipped == 80 // ranks.size and optimizer.applied == 0)
end
